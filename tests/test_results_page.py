"""The sentences of the results page: their numbers are those of the runs in `results/`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from isfl.experiment import columns
from isfl.experiment.columns import Lines
from isfl.experiment.published import published
from isfl.lines import read_lines

ROOT = Path(__file__).parent.parent
PLAIN, AUGMENTED = "table2-half-published", "table2-half-published-augmented"
OURS = ("tempered", "calibrated", "adaptive")
PAPER = ("fedavg", "uniform-is", "isfl-0.05")


@cache
def lines(label: str, seed: int, table: str = PLAIN) -> Lines:
    return read_lines(ROOT / "results" / table / "nr-0.98" / label / f"seed-{seed}" / "metrics.jsonl")


def mean(label: str, seed: int, table: str = PLAIN) -> tuple[float, float]:
    """Return D_S and D_G in percent, means over the last five rounds."""
    run = [lines(label, seed, table)]
    return columns.last_five(run, "accuracy_standard"), columns.last_five(run, "accuracy_global")


def lead(label: str, other: str, seed: int, form: str = "{:.1f} / {:.1f}", table: str = PLAIN) -> str:
    ours, theirs = mean(label, seed, table), mean(other, seed, table)
    return form.format(ours[0] - theirs[0], ours[1] - theirs[1])


def worst(label: str, seed: int) -> str:
    return f"{columns.last_five([lines(label, seed)], 'worst_client_accuracy'):.1f}"


def pair(label: str, seed: int = 0, table: str = PLAIN) -> str:
    return "{:.1f} / {:.1f}".format(*mean(label, seed, table))


def speedup(label: str) -> float:
    ratios = []
    for seed in (0, 1):
        fedavg = lines("fedavg", seed)
        reached = columns.first_round_with(lines(label, seed), columns.last(fedavg, "accuracy_standard"))
        assert reached is not None
        ratios.append(len(fedavg) / reached)
    return sum(ratios) / 2


def peak_share(seed: int) -> str:
    rho = [line["rho_used"] for line in lines("isfl-0.05", seed)]
    assert rho.index(max(rho)) + 1 in (4, 5)
    return f"{100 * rho[-1] / max(rho):.0f}"


def ratio(seed: int, at: int) -> str:
    line = lines("isfl-0.05", seed)[at]
    return f"{line['rho_minimum'] / line['rho_used']:.2f}"


def distance(table: str) -> float:
    """Return how far D_S and D_G of the paper's rows are from the published ones, on average, with seed 0."""
    known = published().rows("table2")["nr-0.98"]
    return sum(
        abs(ours - known[label][key])
        for label in PAPER
        for ours, key in zip(mean(label, 0, table), ("standard", "global"), strict=True)
    ) / (2 * len(PAPER))


def gaps(table: str) -> list[str]:
    return [f"{g - s:.1f}" for s, g in (mean(label, 0, table) for label in PAPER)]


def sentences() -> Iterator[str]:
    """Yield what the page says, with the numbers that follow from the runs."""
    signed = "{:+.1f} / {:+.1f}"
    yield (
        f"Uniform-IS is {lead('uniform-is', 'fedavg', 0)} points ahead of FedAvg with seed 0 and "
        f"{lead('uniform-is', 'fedavg', 1)} with seed 1, ISFL {lead('isfl-0.05', 'fedavg', 0)} and "
        f"{lead('isfl-0.05', 'fedavg', 1)}."
    )
    yield f"speed-ups of {speedup('uniform-is'):.2f} and {speedup('isfl-0.05'):.2f} (means over the two seeds)"
    yield f"a balanced one: {pair('tempered')}."
    yield f"for the rest of the skew: {pair('calibrated')}."
    yield f"corrects the loss too: {pair('adaptive')}."
    ahead = [lead(ours, "fedavg", 0, "{:.0f}") for ours in OURS]
    further = [lead(ours, "isfl-0.05", 0, "{:.0f}") for ours in OURS]
    yield (
        f"They are {min(ahead)} to {max(ahead)} points ahead of FedAvg with the same seed on D_S and {min(further)} to "
        f"{max(further)} ahead of ISFL"
    )
    yield f"The worst client has {', '.join(worst(ours, 0) for ours in OURS[:2])} and {worst('adaptive', 0)} %."
    yield (
        f"ISFL minus Uniform-IS is {lead('isfl-0.05', 'uniform-is', 0, signed)} with seed 0 and "
        f"{lead('isfl-0.05', 'uniform-is', 1, signed)} with seed 1;"
    )
    yield f"is {lead('isfl-0.05', 'pj-is', 0, signed)} and {lead('isfl-0.05', 'pj-is', 1, signed)}."
    yield (
        f"it has {worst('isfl-0.05', 0)} % with seed 0 and {worst('isfl-0.05', 1)} % with seed 1 under ISFL, "
        f"{worst('pj-is', 0)} and {worst('pj-is', 1)} under `pj-is`, {worst('uniform-is', 0)} and "
        f"{worst('uniform-is', 1)} under Uniform-IS, {worst('fedavg', 0)} and {worst('fedavg', 1)} under FedAvg."
    )
    yield f"`isfl-calibrated` has {pair('isfl-calibrated')} with seed 0, ISFL without it {pair('isfl-0.05')}."
    yield f"has {mean('centralized', 0)[0]:.1f} on D_S and {mean('centralized', 0)[1]:.1f} on D_G"
    yield f"ISFL with floor 0.01 has {pair('isfl-0.01')} with seed 0, with 0.05 {pair('isfl-0.05')} (published"
    yield f"its worst client has {worst('isfl-0.01', 0)} instead of {worst('isfl-0.05', 0)} %"
    yield f"has {pair('isfedavg')} with seed 0, {lead('isfedavg', 'fedavg', 0, signed)} points against FedAvg"
    yield f"({pair('pj-unnormalised')} against {pair('fedavg')})"
    yield f"to {peak_share(0)} and {peak_share(1)} % of its peak in the last round"
    yield (
        f"goes from {ratio(0, 0)} to {ratio(0, -1)} with seed 0 and from {ratio(1, 0)} to {ratio(1, -1)} with seed 1"
    )
    yield (
        f"{distance(AUGMENTED):.1f} points away from the published D_S and D_G with augmentation, and "
        f"{distance(PLAIN):.1f} without"
    )
    with_, without = gaps(AUGMENTED), gaps(PLAIN)
    yield f"are {with_[0]}, {with_[1]} and {with_[2]} points (FedAvg, Uniform-IS, ISFL) with it"
    yield f"with it and {without[0]}, {without[1]} and {without[2]} without it;"
    yield f"{pair('calibrated', table=AUGMENTED)}, 16 points ahead of FedAvg"
    yield f"**`pj-is` is second**: {pair('pj-is', table=AUGMENTED)}."


def test_the_numbers_in_the_sentences_are_those_of_the_runs() -> None:
    page = " ".join((ROOT / "docs/results.md").read_text(encoding="utf-8").split())
    assert [sentence for sentence in sentences() if sentence not in page] == []
