"""The paper's figures from run directories alone, as vector PDF and as PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from isfl.errors import UserError
from isfl.files import write_whole
from isfl.plotting import in_print, picture_of, plain
from isfl.report.pictures import NotDrawnError, convergence, cost, probabilities, rho
from isfl.report.reading import FoundRun
from isfl.report.split import federation
from isfl.report.sweeps import sampling_ratio, sizes

FIGURES: dict[str, Callable[[Sequence[FoundRun]], Figure]] = {
    "split": federation,
    "convergence": convergence,
    "rho": rho,
    "q": probabilities,
    "cost": cost,
    "sizes": sizes,
    "sampling-ratio": sampling_ratio,
}
KINDS = ("pdf", "png")


def write_figures(runs: Sequence[FoundRun], out: Path) -> tuple[list[str], dict[str, str]]:
    """Write `NAME.pdf` and `NAME.png`; return the names drawn, and why the others were not."""
    written: list[str] = []
    missing: dict[str, str] = {}
    runs = [replace(run, label=plain(run.label), class_names=tuple(map(plain, run.class_names))) for run in runs]
    for name, draw in FIGURES.items():
        with in_print():
            try:
                figure = draw(runs)
            except NotDrawnError as reason:
                missing[name] = str(reason)
                continue
            content = {kind: picture_of(figure, kind) for kind in KINDS}
        try:
            out.mkdir(parents=True, exist_ok=True)
            for kind in KINDS:
                write_whole(out / f"{name}.{kind}", content[kind])
        except OSError as error:
            raise UserError(f"{out}: figures cannot be written there ({error.strerror}); give another --out") from None
        written.append(name)
    if not written:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise UserError(f"no figure can be drawn from these runs ({reasons})")
    return written, missing
