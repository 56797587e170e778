"""Numbers in the documents come from results, and the example runs. (`test_pages.py` has the rest.)"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks import million

from isfl.cli import main
from isfl.experiment.cells import planned_cells
from isfl.federation.aggregations import AGGREGATIONS
from isfl.federation.objectives import OBJECTIVES
from isfl.federation.sampling_rules import RULES
from isfl.federation.scheme import SHORTHANDS
from isfl.problem.config import parse_config
from isfl.report import attacks
from isfl.report.reproduction import is_shown, write_reproduction
from tests.grids import PRIVATE, config_of, run_locally
from tests.worlds import module_at

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["demo", "variants", "attacks", "stragglers"])
def test_the_numbers_of_a_comparison_are_those_of_the_results(name: str) -> None:
    publish = module_at(ROOT / "scripts/publish_comparison.py")
    assert publish.section(ROOT / "results" / name) in publish.PAGES[name].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "results", sorted(p.parent for p in (ROOT / "results").glob("*/cells.json")), ids=lambda p: p.name
)
def test_published_tables_are_those_of_their_runs(results: Path, tmp_path: Path) -> None:
    """A table made from the metrics in `results/` equals the one there and in the documentation."""
    plan, cells = planned_cells(results)
    write_reproduction(plan, cells, tmp_path)
    name = f"{plan['title']}.md"
    assert (tmp_path / name).read_text(encoding="utf-8") == (results / name).read_text(encoding="utf-8")
    publish = module_at(ROOT / "scripts/publish_reproduction.py")
    assert publish.tables(results) in publish.page_of(plan).read_text(encoding="utf-8")
    provenance = json.loads((results / "provenance.json").read_text(encoding="utf-8"))
    assert all(is_shown(plan["title"], cell) == (str(cell.out.relative_to(results)) in provenance) for cell in cells)


def test_the_million_clients_on_the_page_are_those_that_are_measured() -> None:
    page = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if '"virtual"' in block]
    settings = {"scheme": million.SCHEMES["private ISFL"], "clients": 10**6, "rounds": 20, "participation": 0.001}
    assert parse_config(block, "page") == parse_config(million.CONFIG.format(**settings), "measured")


def test_the_bytes_per_client_seen_on_the_page_are_those_of_the_state() -> None:
    page = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
    for scheme, line in (
        ("isfl", "{} bytes for ten classes, in memory and in every checkpoint"),
        (PRIVATE, "{} bytes"),
    ):
        state, _ = run_locally(config_of(scheme, target={"kind": "uniform"}, training={"rounds": 1}))
        rows = [value for value in vars(state).values() if isinstance(value, np.ndarray)]
        assert line.format(sum(row.nbytes for row in rows) // 3) in page


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells of fig-q at smoke scale."""
    out = tmp_path_factory.mktemp("runs") / "fig-q"
    with pytest.raises(SystemExit) as ending:
        main(["reproduce", "fig-q", "--scale", "smoke", "--as", "text", "--clients", "5", "--out", str(out)])
    assert ending.value.code in (None, 0)
    return out


def emptied(root: Path, mark: str) -> Path:
    """A repository with a single page that has a place for results."""
    (root / "docs").mkdir()
    page = root / "docs/results.md"
    page.write_text(f"# Results\n\n<!-- {mark} -->\nold\n<!-- /{mark} -->\n\nThe end.\n", encoding="utf-8")
    return page


def test_cells_are_published_once_they_are_complete(reproduced: Path, tmp_path: Path) -> None:
    publish = module_at(ROOT / "scripts/publish_reproduction.py").publish
    name = "fig-q-smoke-text-K=5"
    page = emptied(tmp_path, name)
    run = Path(shutil.copytree(reproduced, tmp_path / "run"))
    metrics = run / "nr-0.98/isfl-0.05/seed-0/metrics.jsonl"
    whole = metrics.read_text()
    other = run / "nr-0.98/isfedavg/seed-0/metrics.jsonl"
    for file in (metrics, other):
        file.rename(file.with_suffix(".later"))
    with pytest.raises(SystemExit, match="no cell is complete yet"):
        publish(run, "abc", root=tmp_path)
    assert not (tmp_path / "results").exists()
    for file in (metrics, other):
        file.with_suffix(".later").rename(file)
    metrics.write_text(whole.splitlines(keepends=True)[0])  # the second round is still to come
    results = publish(run, "abc", root=tmp_path)
    assert results == tmp_path / "results" / name
    first = json.loads((results / "provenance.json").read_text())
    assert list(first) == ["nr-0.98/isfedavg/seed-0"] and first["nr-0.98/isfedavg/seed-0"]["commit"] == "abc"
    assert not (results / "nr-0.98/isfl-0.05").exists()
    assert "One run of this experiment has not been made" in page.read_text()
    metrics.write_text(whole)
    publish(run, "def", root=tmp_path)
    text = page.read_text()
    assert text.startswith("# Results\n\n<!-- fig") and text.endswith("-->\n\nThe end.\n") and "old" not in text
    assert "| isfedavg |" in text and "| isfl-0.05 |" in text and "have not been made" not in text
    second = json.loads((results / "provenance.json").read_text())
    assert {place: row["commit"] for place, row in second.items()} == {
        "nr-0.98/isfedavg/seed-0": "abc",
        "nr-0.98/isfl-0.05/seed-0": "def",
    }
    assert second["nr-0.98/isfl-0.05/seed-0"]["made by"] == (
        "isfl reproduce fig-q --scale smoke --as text --clients 5 --seeds 0 --only nr-0.98/isfl-0.05"
    )
    before = {file: file.read_bytes() for file in [page, *results.rglob("*.*")] if file.is_file()}
    publish(run, "ghi", root=tmp_path)
    assert {file: file.read_bytes() for file in before} == before, "nothing is new, nothing changes"


def test_overridden_runs_are_published_under_a_name_and_with_their_overrides(reproduced: Path, tmp_path: Path) -> None:
    publish = module_at(ROOT / "scripts/publish_reproduction.py").publish
    emptied(tmp_path, "plain")
    run = Path(shutil.copytree(reproduced, tmp_path / "run"))
    plan = json.loads((run / "cells.json").read_text())
    plan["set"], plan["clients"] = ["training.augment=[]", "model.name='mlp'"], None
    (run / "cells.json").write_text(json.dumps(plan))
    with pytest.raises(SystemExit, match="give the results a name"):
        publish(run, "abc", root=tmp_path)
    results = publish(run, "abc", name="plain", root=tmp_path)
    assert results == tmp_path / "results/plain"
    row = json.loads((results / "provenance.json").read_text())["nr-0.98/isfedavg/seed-0"]
    command = shlex.split(row["made by"])
    assert [command[i + 1] for i, word in enumerate(command) if word == "--set"] == plan["set"]
    assert "--clients" not in command and command[command.index("--as") + 1] == "text"
    with pytest.raises(SystemExit, match="holds runs of another setting"):
        publish(reproduced, "abc", name="plain", root=tmp_path)


def test_other_seeds_join_what_is_published_and_other_cells_are_left_out(reproduced: Path, tmp_path: Path) -> None:
    publish = module_at(ROOT / "scripts/publish_reproduction.py").publish
    page = emptied(tmp_path, "fig-q-smoke-text-K=5")
    publish(reproduced, "abc", root=tmp_path)
    other = Path(shutil.copytree(reproduced, tmp_path / "other"))
    plan = json.loads((other / "cells.json").read_text())
    for row in plan["cells"]:
        row["seed"] = row["config"]["seed"] = 1
        (other / row["out"]).rename((other / row["out"]).with_name("seed-1"))
        row["out"] = row["out"].replace("seed-0", "seed-1")
    plan["cells"].append({**plan["cells"][0], "out": "nr-0.98/isfedavg/seed-2", "seed": 2, "wanted": False})
    (other / "cells.json").write_text(json.dumps(plan))
    results = publish(other, "def", root=tmp_path)
    provenance = json.loads((results / "provenance.json").read_text())
    assert len(provenance) == 4
    assert {row["out"] for row in json.loads((results / "cells.json").read_text())["cells"]} == set(provenance)
    assert "standard deviation of up to 2 seeds" in page.read_text()


def test_a_run_that_was_started_again_replaces_what_is_published_only_once_it_is_as_long(
    reproduced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = module_at(ROOT / "scripts/publish_reproduction.py")
    page = emptied(tmp_path, "fig-q-smoke-text-K=5")
    results = script.publish(reproduced, "abc", root=tmp_path)
    before = {file: file.read_bytes() for file in [page, *results.rglob("*.*")] if file.is_file()}
    again = Path(shutil.copytree(reproduced, tmp_path / "again"))
    for metrics in again.rglob("metrics.jsonl"):
        metrics.write_text(metrics.read_text().splitlines(keepends=True)[0])
    monkeypatch.setattr(script, "is_shown", lambda title, cell: True)  # as runs of a screen are at the end of a stage
    script.publish(again, "def", root=tmp_path)
    assert {file: file.read_bytes() for file in before} == before


def test_cells_of_an_earlier_version_are_the_same_setting_if_only_new_defaults_differ(
    reproduced: Path, tmp_path: Path
) -> None:
    publish = module_at(ROOT / "scripts/publish_reproduction.py").publish
    emptied(tmp_path, "fig-q-smoke-text-K=5")
    published = publish(reproduced, "abc", root=tmp_path) / "cells.json"
    plan = json.loads(published.read_text())
    for row in plan["cells"]:
        del row["config"]["diagnostics"]["bound"]
    published.write_text(json.dumps(plan))
    publish(reproduced, "def", root=tmp_path)
    plan["cells"][0]["config"]["training"]["rounds"] += 1
    published.write_text(json.dumps(plan))
    with pytest.raises(SystemExit, match="holds runs of another setting"):
        publish(reproduced, "def", root=tmp_path)


def test_the_tables_of_attacks_are_those_of_their_numbers() -> None:
    content = json.loads((ROOT / "results/attacks/attacks.json").read_text(encoding="utf-8"))
    results = [SimpleNamespace(**result) for result in content["results"]]
    text = attacks.markdown({"title": "attacks"}, [], results, content["remarks"])
    assert text == (ROOT / "results/attacks/attacks.md").read_text(encoding="utf-8")
    assert len(results) == 108 and {result.seeds for result in results} == {3}


def test_the_gains_of_a_liar_are_those_of_the_theory() -> None:
    lies = module_at(ROOT / "scripts/write_lies.py")
    assert lies.section() in lies.PAGE.read_text(encoding="utf-8")


def test_the_measured_bound_is_that_of_the_results() -> None:
    publish = module_at(ROOT / "scripts/publish_bound.py")
    assert publish.section(ROOT / "results/bound") in publish.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", sorted((ROOT / "results/performance").glob("*.json")), ids=lambda p: p.stem)
def test_performance_tables_are_those_of_the_results(file: Path) -> None:
    publish = module_at(ROOT / "scripts/publish_performance.py")
    section = publish.section(json.loads(file.read_text(encoding="utf-8")), file.stem)
    assert any(section in page.read_text(encoding="utf-8") for page in publish.PAGES)


@pytest.mark.parametrize("file", sorted((ROOT / "results/reliability").glob("*.json")), ids=lambda p: p.stem)
def test_reliability_tables_are_those_of_the_results(file: Path) -> None:
    publish = module_at(ROOT / "scripts/publish_reliability.py")
    section = publish.section(json.loads(file.read_text(encoding="utf-8")), file.stem)
    assert f"<!-- {file.stem} -->\n{section}<!-- /{file.stem} -->" in publish.PAGE.read_text(encoding="utf-8")


def test_the_example_of_an_own_loop_runs_and_is_short() -> None:
    path = ROOT / "examples/own_loop.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    assert module_at(path).main() > 0.6


def test_the_readme_and_the_method_page_name_every_choice() -> None:
    """A new sampling rule, objective, aggregation or scheme has to be found by readers, too."""
    choices = [(RULES, "rule"), (OBJECTIVES, "kind"), (AGGREGATIONS, "rule")]
    kinds = {str(choice.model_fields[key].default) for room, key in choices for choice in room}
    readme, method = (ROOT / "README.md").read_text(), (ROOT / "docs/method.md").read_text()
    assert {name for name in kinds | SHORTHANDS.keys() if f"`{name}`" not in readme} == set()
    assert {name for name in SHORTHANDS if f"`{name}`" not in method} == set()
