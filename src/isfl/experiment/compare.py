"""Schemes side by side, over several seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from isfl import layout
from isfl.errors import UserError
from isfl.experiment import columns
from isfl.experiment.cells import Cell
from isfl.experiment.paired import Paired, paired
from isfl.federation.scheme import SHORTHANDS
from isfl.files import read_object
from isfl.problem.config import Config, apply, config_from

_NAME = re.compile(r"[\w+-][\w.+-]*")

GOAL = 0.95
"""The share of the first row's last accuracy that every row should reach soon, unless another one is given."""

Metric = Literal["accuracy_standard", "accuracy_global", "worst_client_accuracy"]
"""Accuracies of the last round that are compared seed by seed."""


@dataclass(frozen=True)
class Summary:
    """A scheme's last round over its seeds: means and sample standard deviations, in percent."""

    scheme: str
    seeds: int
    standard: float
    standard_spread: float
    global_: float
    global_spread: float
    worst_client: float
    worst_client_spread: float
    rarest_class: float
    """Recall on D_S of the class that is rarest over all clients; NaN where clients keep their counts."""
    rarest_class_spread: float
    rounds_to_goal: float | None
    """Mean rounds to `goal` of the first row's last D_S with the same seed; None if a seed never gets there."""
    samples_to_goal: float | None
    """Mean gradient evaluations, for training and sampling, up to the end of that round."""
    simulated_seconds: float | None
    """Mean time that a run would have taken; None without simulated latencies (`stragglers.simulated`)."""
    simulated_seconds_to_goal: float | None
    """Likewise up to the end of the round that reaches the goal."""
    extra_gradients: float
    """Gradient evaluations for sampling, in percent of those for training."""
    seconds: float
    """Mean seconds of computing (training and sampling) per run."""
    standard_by_seed: tuple[float, ...]
    """D_S of each seed, in the order they were given: rows of one comparison can be paired."""
    against_first: dict[str, Paired]
    """Percentage points ahead of the first row with the same seeds, by metric; empty for the first row itself."""


ALL = "all"
"""Stands for every scheme by name."""


def comparison_cells(
    config: Config,
    schemes: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    variants: Sequence[tuple[str, Sequence[str]]] = (),
) -> list[Cell]:
    """Return one cell for each scheme or variant and each seed.

    A variant is a name and the overrides that make it. `all` among the schemes stands for every name.
    """
    schemes = tuple(SHORTHANDS) if ALL in schemes else schemes
    if not schemes or not seeds:
        raise UserError("--schemes and --seeds need at least one value each, for instance --schemes fedavg,isfl")
    # The file's own scheme keeps its parts; another name stands for its own.
    changes = [(name, [] if name == config.scheme.name else [f"scheme={name}"]) for name in schemes]
    changes += [(_checked_name(name), list(overrides)) for name, overrides in variants]
    for option, values in (("--schemes and --variant", [name for name, _ in changes]), ("--seeds", seeds)):
        if len(set(values)) != len(values):
            raise UserError(f"{option} names something twice: {','.join(map(str, values))}")
    cells = []
    for label, overrides in changes:
        for seed in seeds:
            raw = config.model_dump(mode="json") | {"seed": seed}
            for override in overrides:
                apply(raw, override)
            cells.append(Cell("", label, seed, config_from(raw, label), out / label / f"seed-{seed}"))
    return cells


def variant_from(text: str) -> tuple[str, list[str]]:
    """Split `NAME: key=value; key=value` into its name and its overrides."""
    name, colon, changes = text.partition(":")
    overrides = [change.strip() for change in changes.split(";") if change.strip()]
    if not colon or not _NAME.fullmatch(name.strip()) or not overrides:
        raise UserError(
            f"--variant {text}: write NAME: key=value; key=value, for instance "
            "--variant 'isfl-before: scheme=isfl; scheme.sampling.reference=before'"
        )
    return name.strip(), overrides


def _checked_name(name: str) -> str:
    """Return the name of a variant, which is also that of its directory."""
    if not _NAME.fullmatch(name):
        raise UserError(f"variant {name!r}: a name has letters, digits and . + - _ alone")
    return name


def summarise(cells: Sequence[Cell], goal: float = GOAL) -> list[Summary]:
    """Return one row per label, in the order the labels were given; `goal` is a share of the first row's accuracy."""
    by_label = _by_label(cells)
    return [_summary(label, own, by_label[cells[0].label], goal) for label, own in by_label.items()]


def _summary(label: str, cells: Sequence[Cell], first: Sequence[Cell], goal: float) -> Summary:
    runs = [cell.lines for cell in cells]
    standard, standard_spread = columns.final_spread(runs, "accuracy_standard")
    global_, global_spread = columns.final_spread(runs, "accuracy_global")
    worst, worst_spread = columns.final_spread(runs, "worst_client_accuracy")
    rarest, rarest_spread = columns.spread([columns.recall(cell.lines, _rarest_class(cell)) for cell in cells])
    goals = {cell.seed: goal * columns.last(cell.lines, "accuracy_standard") for cell in first}
    reached = [(cell.lines, goals[cell.seed]) for cell in cells if cell.seed in goals]
    return Summary(
        scheme=label,
        seeds=len(runs),
        standard=standard,
        standard_spread=standard_spread,
        global_=global_,
        global_spread=global_spread,
        worst_client=worst,
        worst_client_spread=worst_spread,
        rarest_class=rarest,
        rarest_class_spread=rarest_spread,
        rounds_to_goal=_mean([columns.first_round_with(*each) for each in reached]),
        samples_to_goal=_mean([columns.cost_of_reaching(*each) for each in reached]),
        simulated_seconds=_mean([columns.simulated_seconds(lines) for lines in runs]),
        simulated_seconds_to_goal=_mean([columns.time_of_reaching(*each) for each in reached]),
        extra_gradients=columns.extra_gradients(runs),
        seconds=columns.mean_seconds(runs),
        standard_by_seed=tuple(100 * columns.last(lines, "accuracy_standard") for lines in runs),
        against_first={} if cells[0].label == first[0].label else _ahead(cells, first),
    )


def _ahead(cells: Sequence[Cell], first: Sequence[Cell]) -> dict[str, Paired]:
    pairs = {metric: _pair(cells, first, metric) for metric in get_args(Metric)}
    return {metric: pair for metric, pair in pairs.items() if pair is not None}


def _pair(cells: Sequence[Cell], others: Sequence[Cell], metric: Metric) -> Paired | None:
    """Return the accuracies of the last round minus those of the others, in percentage points."""
    last = [{cell.seed: 100 * columns.last(cell.lines, metric) for cell in each} for each in (cells, others)]
    return paired(*last)


def _by_label(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    by_label: dict[str, list[Cell]] = {}
    for cell in cells:
        by_label.setdefault(cell.label, []).append(cell)
    return by_label


def _rarest_class(cell: Cell) -> int | None:
    """Return the class with the fewest samples over all clients, the first of equals."""
    counts = read_object(cell.out / layout.SPLIT).get("client_counts")
    return None if counts is None else int(np.sum(counts, axis=0).argmin())


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class PairedRow:
    """A scheme's accuracy minus that of another scheme with the same seeds, in percentage points."""

    scheme: str
    against: str
    seeds: int
    difference: float
    """Mean over seeds."""
    spread: float
    """Sample standard deviation over seeds."""
    low: float | None
    """Lower end of the 95 % interval of the mean; None for one seed."""
    high: float | None
    better: int
    """The number of seeds on which the scheme is ahead."""
    equal: int
    worse: int
    by_seed: Mapping[int, float]


def paired_rows(cells: Sequence[Cell], against: str, metric: Metric = "accuracy_standard") -> list[PairedRow]:
    """Return one row per label other than `against`; a label without a seed in common with it has none."""
    if metric not in get_args(Metric):
        raise UserError(f"metric is {metric!r}; choose one of {', '.join(get_args(Metric))}")
    by_label = _by_label(cells)
    if against not in by_label:
        raise UserError(f"against is {against!r}; choose one of {', '.join(by_label)}")
    base = by_label.pop(against)
    pairs = {label: _pair(own, base, metric) for label, own in by_label.items()}
    return [_paired_row(label, against, pair) for label, pair in pairs.items() if pair is not None]


def _paired_row(label: str, against: str, pair: Paired) -> PairedRow:
    differences = list(pair.by_seed.values())
    half = pair.half_width
    return PairedRow(
        scheme=label,
        against=against,
        seeds=pair.seeds,
        difference=pair.mean,
        spread=pair.spread,
        low=None if half is None else pair.mean - half,
        high=None if half is None else pair.mean + half,
        better=sum(value > 0 for value in differences),
        equal=sum(value == 0 for value in differences),
        worse=sum(value < 0 for value in differences),
        by_seed=pair.by_seed,
    )
