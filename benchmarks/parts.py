"""The parts of the benchmark and their interface."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = dict[str, Any]
"""`title`; `rows`: a list of dictionaries, a table whose columns are their keys; `missed`: a line for every bar that is
missed; `notes` (may be left out): lines to show below the table. Everything else is kept in the JSON file."""


class MeasureError(Exception):
    """A requirement that the user must provide is missing; the text names it."""


@dataclass(frozen=True)
class Options:
    quick: bool
    images: int | None = None
    repetitions: int | None = None


@dataclass(frozen=True)
class Part:
    measure: Callable[[Options], Result]
    draw: Callable[[Result, Path], None] | None = None


def turns_each(number: int) -> str:
    """Return how often each contestant was measured, in words."""
    return "one turn each" if number == 1 else f"{number} turns each"


# Parts are imported when they run. `peers` and `models` come first: a part that loads torch into this process would
# share its pages with contestants, and their measured memory would be too small.


def _peers(options: Options) -> Result:
    from benchmarks import peers

    return peers.measure(options.quick, options.images, options.repetitions)


def _draw_peers(result: Result, file: Path) -> None:
    from benchmarks.chart import draw

    draw(result, file)


def _draw_growth(result: Result, file: Path) -> None:
    from benchmarks.growth import draw

    draw(result, file)


def _million_tempered(options: Options) -> Result:
    from benchmarks import million

    return million.measure(options.quick, "tempered")


def _module(name: str) -> Callable[[Options], Result]:
    """A part that is a module with `measure(quick)`."""

    def measure(options: Options) -> Result:
        result: Result = importlib.import_module(f"benchmarks.{name}").measure(options.quick)
        return result

    return measure


PARTS = {
    "peers": Part(_peers, _draw_peers),
    "models": Part(_module("models")),
    "crowd": Part(_module("crowd")),
    "million": Part(_module("million")),
    "million-tempered": Part(_million_tempered),
    "startup": Part(_module("startup")),
    "convolutions": Part(_module("convolutions")),
    "steps": Part(_module("steps")),
    "augmentation": Part(_module("augmentation")),
    "lipschitz": Part(_module("lipschitz")),
    "price": Part(_module("price")),
    "solvers": Part(_module("solvers")),
    "growth": Part(_module("growth"), _draw_growth),
    "accuracy": Part(_module("accuracy")),
    "estimators": Part(_module("estimators")),
    "wire": Part(_module("wire")),
    "secure": Part(_module("secure")),
    "thousand": Part(_module("thousand")),
    "pages": Part(_module("pages")),
    "large": Part(_module("large")),
}
