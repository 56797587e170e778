"""The sentences of the policy page and the table of the README: their numbers are those of the runs in `results/`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from isfl.experiment import columns
from isfl.experiment.cells import Cell, planned_cells
from isfl.experiment.paired import Paired
from isfl.experiment.policy import WINNER
from isfl.experiment.standings import gains, score
from tests.worlds import module_at

ROOT = Path(__file__).parent.parent
CONFIRM, SCREEN, EXPLAIN, SKEW = (f"policy-{step}-half-published" for step in ("confirm", "screen", "explain", "skew"))


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
    """Return the winner's lead over another policy on every setting to confirm on but `shards`."""
    return {setting: lead(setting, other) for setting in against(other, CONFIRM)[WINNER] if setting != "shards"}


def score_on_shards(label: str) -> str:
    (lines,) = [cell.lines for cell in cells(CONFIRM) if (cell.group, cell.label) == ("shards", label)]
    return f"{score(lines):.1f}"


def worst(setting: str, label: str, results: str = CONFIRM) -> str:
    """Return the accuracy of the worst client in percent, mean over the last five rounds and over seeds."""
    runs = [cell.lines for cell in cells(results) if (cell.group, cell.label) == (setting, label) and cell.complete]
    return f"{columns.last_five(runs, 'worst_client_accuracy'):.0f}"


def sentences() -> Iterator[str]:
    fedavg, uniform, tempered = leads("fedavg"), leads("uniform-is"), leads("t-0.5-cal")
    assert fedavg.keys() == uniform.keys() and min(fedavg.values()) > 0 and min(uniform.values()) > 0
    yield (
        f"**`adaptive` is ahead of FedAvg and of Uniform-IS on {len(fedavg)} of {len(fedavg) + 1} settings**: "
        f"of FedAvg by {min(fedavg.values()):.1f} to {max(fedavg.values()):.1f} points, of Uniform-IS by "
        f"{min(uniform.values()):.1f} to {max(uniform.values()):.1f}."
    )
    yield (
        f"On `shards` nothing helps: FedAvg has {score_on_shards('fedavg')}, Uniform-IS "
        f"{score_on_shards('uniform-is')} and `adaptive` {score_on_shards(WINNER)} (mean of D_S and D_G in %)."
    )
    (behind,) = [setting for setting, points in tempered.items() if points < 0]
    yield (
        f"`calibrated` is {-tempered[behind]:.1f} points ahead of it on `{behind}`, and behind on the other "
        f"{len(tempered) - 1} settings where both ran."
    )
    isfl = leads("isfl")
    yield "ISFL is " + " and ".join(f"{points:.1f} points behind on `{at}`" for at, points in isfl.items()) + "."
    few = [(worst("epochs-1", label), worst("SR=0.1", label, SCREEN)) for label in ("uniform-is", WINNER)]
    yield (
        f"With few draws, Uniform-IS serves its worst client better: {few[0][0]} % against {few[1][0]} on `epochs-1`, "
        f"{few[0][1]} against {few[1][1]} on `SR=0.1`."
    )
    yield (
        f"With many draws it is the other way round: {worst('dirichlet-0.2', 'uniform-is', SCREEN)} against "
        f"{worst('dirichlet-0.2', WINNER, SCREEN)} on `dirichlet-0.2`."
    )
    flat = {label: lead("digits-dirichlet-100", "fedavg", SKEW, label) for label in ("uniform-is", "t-0.5-cal", WINNER)}
    assert abs(flat[WINNER]) < 0.05
    yield (
        f"On `digits-dirichlet-100` it is level with FedAvg; Uniform-IS and `calibrated` lose "
        f"{-flat['uniform-is']:.1f} and {-flat['t-0.5-cal']:.1f} points, because they draw with replacement."
    )
    gained = {at: pair.mean for at, pair in against("fedavg", SKEW)[WINNER].items()}
    lost = {at: points for at, points in gained.items() if points < -0.05}
    yield (
        f"`adaptive` is between {min(gained.values()):+.1f} and {max(gained.values()):+.1f} points from FedAvg on "
        f"these {len(gained)} settings, and behind on {len(lost)}"
    )
    missing = against("fedavg", SKEW)[WINNER]["clothes-nr-1"]
    assert missing.mean < 0 and missing.ahead == missing.seeds and gained["digits-shards"] > 0
    yield (
        f"On `clothes-nr-1` all policies are behind FedAvg with every seed, `adaptive` by {-missing.mean:.1f} points "
        f"and Uniform-IS by {-lead('clothes-nr-1', 'fedavg', SKEW, 'uniform-is'):.1f}."
    )
    parts = {label: lead("dirichlet-0.2", "fedavg", EXPLAIN, label) for label in ("t-0-cal", "cap-10", WINNER)}
    yield (
        f"Calibration alone (`t-0-cal`) gains {parts['t-0-cal']:.1f} points, sampling alone (`cap-10`) "
        f"{parts['cap-10']:.1f}, and both together {parts[WINNER]:.1f}."
    )
    drawn = lead("dirichlet-0.2", "cap-10-cal-drawn", EXPLAIN)
    yield f"Even draws instead of independent ones make a difference of {drawn:.1f} points here"
    group = lead("groupnorm", "fedavg", EXPLAIN)
    yield f"With GroupNorm the gain is {group:.1f} points"


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
