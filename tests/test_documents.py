"""What the documents promise: numbers come from results, examples run, links lead somewhere."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from isfl.experiment.cells import planned_cells
from isfl.experiment.config import config_from
from isfl.report.reproduction import write_reproduction
from tests.worlds import module_at

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", ["demo", "variants"])
def test_the_numbers_of_a_comparison_are_those_of_the_results(name: str) -> None:
    publish = module_at(ROOT / "scripts/publish_comparison.py")
    assert publish.section(ROOT / "results" / name) in publish.PAGES[name].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "results", sorted(p.parent for p in (ROOT / "results").glob("*/cells.json")), ids=lambda p: p.name
)
def test_published_tables_are_those_of_their_runs(results: Path, tmp_path: Path) -> None:
    """Drawn anew from the metrics in `results/`, a table is the one that stands there and in the documentation."""
    plan, cells = planned_cells(results)
    write_reproduction(plan["title"], plan["scale"], cells, tmp_path)
    name = f"{plan['title']}.md"
    assert (tmp_path / name).read_text(encoding="utf-8") == (results / name).read_text(encoding="utf-8")
    publish = module_at(ROOT / "scripts/publish_reproduction.py")
    assert publish.tables(results) in (ROOT / "docs/results.md").read_text(encoding="utf-8")
    provenance = json.loads((results / "provenance.json").read_text(encoding="utf-8"))
    assert all(cell.complete == (str(cell.out.relative_to(results)) in provenance) for cell in cells)


@pytest.mark.parametrize("file", sorted((ROOT / "results/performance").glob("*.json")), ids=lambda p: p.stem)
def test_performance_tables_are_those_of_the_results(file: Path) -> None:
    publish = module_at(ROOT / "scripts/publish_performance.py")
    section = publish.section(json.loads(file.read_text(encoding="utf-8")), file.stem)
    assert any(section in page.read_text(encoding="utf-8") for page in publish.PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8"))
    for target in targets:
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_configurations_in_the_documents_are_valid(page: Path) -> None:
    for block in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        config_from(tomllib.loads(block), page.name)


def test_the_example_of_an_own_loop_runs_and_is_short() -> None:
    path = ROOT / "examples/own_loop.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    assert module_at(path).main() > 0.6
