"""The sentences of the policy page and the table of the README: their numbers are those of the runs in `results/`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from isfl.experiment import columns
from isfl.experiment.cells import Cell, planned_cells
from isfl.experiment.paired import Paired
from isfl.experiment.policy import WINNER
from isfl.experiment.standings import gains
from tests.worlds import module_at

ROOT = Path(__file__).parent.parent
CONFIRM, SCREEN, EXPLAIN, SKEW = (
    f"policy-{step}-half-published" for step in ("confirm", "screen", "explain", "skew")
)


@cache
def cells(results: str) -> list[Cell]:
    return planned_cells(ROOT / "results" / results)[1]


@cache
def against(reference: str, results: str) -> dict[str, dict[str, Paired]]:
    return gains(cells(results), reference)


def lead(setting: str, other: str, results: str = CONFIRM, label: str = WINNER) -> float:
    """Return the points by which a policy is ahead of another, mean over seeds."""
    return against(other, results)[label][setting].mean


def leads(other: str) -> dict[str, float]:
    """Return the winner's lead over another policy on every setting to confirm on."""
    return {setting: lead(setting, other) for setting in against(other, CONFIRM)[WINNER]}


def worst(setting: str, label: str, results: str = CONFIRM) -> str:
    """Return the accuracy of the worst client in percent, mean over the last five rounds and over seeds."""
    runs = [cell.lines for cell in cells(results) if (cell.group, cell.label) == (setting, label) and cell.complete]
    return f"{columns.last_five(runs, 'worst_client_accuracy'):.0f}"


def sentences() -> Iterator[str]:
    fedavg, uniform, tempered = leads("fedavg"), leads("uniform-is"), leads("t-0.5-cal")
    assert min(fedavg.values()) > 0 and min(uniform.values()) > 0
    yield (
        f"**`adaptive` is ahead of FedAvg and of Uniform-IS on all {len(fedavg)} settings**: of FedAvg by "
        f"{min(fedavg.values()):.1f} to {max(fedavg.values()):.1f} points, of Uniform-IS by "
        f"{min(uniform.values()):.1f} to {max(uniform.values()):.1f}."
    )
    behind = [setting for setting, points in tempered.items() if points < 0]
    yield (
        f"`calibrated` is ahead of `adaptive` on {', '.join(f'`{at}`' for at in behind)} by "
        f"{-min(tempered.values()):.1f} points, and behind on the other {len(tempered) - len(behind)}"
    )


def test_the_numbers_in_the_sentences_are_those_of_the_runs() -> None:
    page = " ".join((ROOT / "docs/policy.md").read_text(encoding="utf-8").split())
    assert [sentence for sentence in sentences() if sentence not in page] == []


def test_the_table_of_the_readme_is_made_from_the_runs() -> None:
    writer = module_at(ROOT / "scripts/write_gains.py")
    page = writer.PAGE.read_text(encoding="utf-8")
    assert "<!-- gains -->" in page and writer.written(page, writer.text()) == page
    assert writer.text().count("\n| ") > 6, "settings with a run of the recommended scheme"


def test_the_recommended_scheme_is_the_row_that_the_study_chose() -> None:
    from isfl.diagnose.evidence import RECOMMENDED
    from isfl.experiment.policy import ROWS
    from isfl.federation.scheme import Scheme

    assert Scheme.model_validate(RECOMMENDED).sampling == Scheme.model_validate(ROWS[WINNER]).sampling
    assert Scheme.model_validate(RECOMMENDED).objective == Scheme.model_validate(ROWS[WINNER]).objective
