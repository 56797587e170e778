"""Schemes side by side, over several seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isfl.errors import UserError
from isfl.experiment import columns
from isfl.experiment.cells import Cell
from isfl.problem.config import Config, apply, config_from


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
    extra_gradients: float
    """Gradient evaluations for sampling, in percent of those for training."""
    seconds: float
    """Mean seconds of computing (training and sampling) per run."""
    standard_by_seed: tuple[float, ...]
    """D_S of each seed, in the order they were given: rows of one comparison can be paired."""


def comparison_cells(
    config: Config, schemes: Sequence[str], seeds: Sequence[int], out: Path, variants: Sequence[str] = ()
) -> list[Cell]:
    """Return one cell for each scheme or variant and each seed."""
    if not schemes or not seeds:
        raise UserError("--schemes and --seeds need at least one value each, for instance --schemes fedavg,isfl")
    # The file's own scheme keeps its parts; another name stands for its own.
    changes = [(name, [] if name == config.scheme.name else [f"scheme={name}"]) for name in schemes]
    changes += [_variant(text) for text in variants]
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


def _variant(text: str) -> tuple[str, list[str]]:
    """Split `NAME: key=value; key=value` into its name and its overrides."""
    name, colon, changes = text.partition(":")
    overrides = [change.strip() for change in changes.split(";") if change.strip()]
    if not colon or not re.fullmatch(r"[\w.+-]+", name.strip()) or not overrides:
        raise UserError(
            f"--variant {text}: write NAME: key=value; key=value, for instance "
            "--variant 'isfl-before: scheme=isfl; scheme.sampling.reference=before'"
        )
    return name.strip(), overrides


def summarise(cells: Sequence[Cell]) -> list[Summary]:
    """Return one row per label, in the order the labels were given."""
    rows = []
    for label in dict.fromkeys(cell.label for cell in cells):
        runs = [cell.lines for cell in cells if cell.label == label]
        standard, standard_spread = columns.final_spread(runs, "accuracy_standard")
        global_, global_spread = columns.final_spread(runs, "accuracy_global")
        worst, worst_spread = columns.final_spread(runs, "worst_client_accuracy")
        rows.append(
            Summary(
                scheme=label,
                seeds=len(runs),
                standard=standard,
                standard_spread=standard_spread,
                global_=global_,
                global_spread=global_spread,
                worst_client=worst,
                worst_client_spread=worst_spread,
                extra_gradients=columns.extra_gradients(runs),
                seconds=columns.mean_seconds(runs),
                standard_by_seed=tuple(100 * columns.last(lines, "accuracy_standard") for lines in runs),
            )
        )
    return rows
