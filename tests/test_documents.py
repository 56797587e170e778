"""What the documents promise: numbers come from results, and the example runs. (`test_pages.py` has the rest.)"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isfl.experiment.cells import planned_cells
from isfl.report.reproduction import write_reproduction
from tests.worlds import module_at

ROOT = Path(__file__).parent.parent


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


def test_the_example_of_an_own_loop_runs_and_is_short() -> None:
    path = ROOT / "examples/own_loop.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60
    assert module_at(path).main() > 0.6
