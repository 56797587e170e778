"""A reproduced table or figure: Markdown and JSON with the published numbers beside ours, and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from isfl.experiment.cells import Cell
from isfl.experiment.directory import told_when_full
from isfl.experiment.paper import INTERPRETATIONS, SCALES
from isfl.experiment.reproduce import Result, published, results_of
from isfl.files import write_whole
from isfl.report.pictures import NotDrawnError, convergence, probabilities, rho
from isfl.report.reading import SEPARATOR, FoundRun, read_run
from isfl.report.style import COLOURS, COLUMN, in_print, legend_below, picture_of, sheet, tidy
from isfl.report.sweeps import sampling_ratio, sizes


def setting_of(plan: Mapping[str, Any]) -> str:
    """One sentence on how the cells of a plan were set."""
    scale, interpretation = plan["scale"], plan["as"]
    parts = [f"scale {scale}: {SCALES[scale]}", f"as {interpretation}: {INTERPRETATIONS[interpretation]}"]
    if plan["clients"] is not None:
        parts.append(f"{plan['clients']} clients")
    if plan["set"]:
        parts.append(f"with {', '.join(plan['set'])}")
    return "; ".join(parts)


def write_reproduction(plan: Mapping[str, Any], cells: Sequence[Cell], out: Path) -> list[Result]:
    """`NAME.md`, `NAME.json` and `NAME.png` in `out`, from the cells that are complete."""
    name: str = plan["title"]
    results = results_of(name, cells)
    complete = [cell for cell in cells if cell.complete]
    content = {
        "experiment": name,
        "setting": {key: plan[key] for key in ("scale", "as", "clients", "set")},
        "source of the published numbers": published()["source"],
        "runs": [json.loads((cell.out / "run.json").read_text(encoding="utf-8")) for cell in complete[:1]],
        "results": [{**asdict(r), "difference": {key: r.difference(key) for key in r.published}} for r in results],
    }
    with in_print():
        picture = picture_of(_picture(name, complete, results), "png")
    with told_when_full(out):
        write_whole(out / f"{name}.json", (json.dumps(content, indent=2) + "\n").encode())
        write_whole(out / f"{name}.md", markdown(plan, results, len(cells) - len(complete)).encode())
        write_whole(out / f"{name}.png", picture)
    return results


EXTRAS = {"top5": ("top-5 %", "{:.2f}"), "speedup": ("speed-up", "{:.2f}x")}
"""What the paper tells of some tables only: heading and form."""


def headings(results: Sequence[Result]) -> tuple[str, ...]:
    extra = [EXTRAS[key][0] for key in _told(results)]
    pairs = [title for name in extra for title in (name, "published")]
    return ("scheme", "D_S / D_G %", "published", "difference", *pairs, "extra %")


def rows_of(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """A row a scheme; the columns are those of `headings`."""
    rows = []
    for r in results:
        pairs = []
        for key in _told(results):
            ours = r.top5 if key == "top5" else r.speedup
            pairs += [_pair(ours, None, EXTRAS[key][1]), _pair(r.published.get(key), None, EXTRAS[key][1])]
        rows.append(
            (
                r.label,
                f"{r.standard:.2f} / {r.global_:.2f}" + (f" (±{r.standard_spread:.2f})" if r.seeds > 1 else ""),
                _pair(r.published.get("standard"), r.published.get("global"), "{:.2f}"),
                _pair(r.difference("standard"), r.difference("global"), "{:+.2f}"),
                *pairs,
                f"{r.extra_gradients:.0f}",
            )
        )
    return rows


def _told(results: Sequence[Result]) -> list[str]:
    return [key for key in EXTRAS if any(key in r.published for r in results)]


def by_group(results: Sequence[Result]) -> dict[str, list[Result]]:
    return {group: [r for r in results if r.group == group] for group in dict.fromkeys(r.group for r in results)}


def _pair(first: float | None, second: float | None, form: str) -> str:
    parts = [form.format(value) for value in (first, second) if value is not None]
    return " / ".join(parts) if parts else "-"


def markdown(plan: Mapping[str, Any], results: Sequence[Result], missing: int) -> str:
    """A table for every setting, and what its numbers are."""
    parts = [f"# {plan['title']}"]
    for group, rows in by_group(results).items():
        names = headings(rows)
        lines = [" | ".join(names), " | ".join("---" for _ in names), *(" | ".join(row) for row in rows_of(rows))]
        parts += [f"## {group}", "\n".join(f"| {line} |" for line in lines)]
    parts.append(
        f"Setting: {setting_of(plan)}. Last round; D_S: balanced test set, D_G: all clients' data; extra: gradients "
        "for sampling per gradient for training; speed-up: all rounds by those to FedAvg's last accuracy."
        + (f" {missing} runs of this experiment have not been made." if missing else "")
    )
    parts.append(f"Published numbers: {published()['source']}.")
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- pictures


def _picture(name: str, cells: Sequence[Cell], results: Sequence[Result]) -> Figure:
    """The experiment's figure; a table, or too few cells for the figure, as dots beside the published ones."""
    if name in PICTURES:
        with suppress(NotDrawnError):
            return PICTURES[name]([read_run(cell.out, label=f"{cell.group}{SEPARATOR}{cell.label}") for cell in cells])
    return _against_published(results)


def _against_published(results: Sequence[Result]) -> Figure:
    """Dots for ours, crosses for theirs, a panel for every setting."""
    groups = by_group(results)
    figure, axes = sheet(1, len(groups), max(COLUMN, 2.4 * len(groups)), 1.2 + 0.24 * max(map(len, groups.values())))
    for axis, (group, rows) in zip(axes[0], groups.items(), strict=True):
        places = np.arange(len(rows))[::-1]
        axis.scatter([r.standard for r in rows], places + 0.12, color=COLOURS[0], marker="o", label="D_S, ours")
        axis.scatter([r.global_ for r in rows], places - 0.12, color=COLOURS[1], marker="s", label="D_G, ours")
        for key, shift, colour in (("standard", 0.12, COLOURS[0]), ("global", -0.12, COLOURS[1])):
            marker = "x" if key == "standard" else "+"
            known = [(r.published[key], p) for r, p in zip(rows, places, strict=True) if key in r.published]
            if known:
                values, heights = zip(*known, strict=True)
                label = f"{'D_S' if key == 'standard' else 'D_G'}, published"
                axis.scatter(values, np.array(heights) + shift, color=colour, marker=marker, label=label)
        axis.set_yticks(places, [r.label for r in rows])
        tidy(axis, group, "accuracy in %", "")
    legend_below(figure)
    return figure


PICTURES: dict[str, Callable[[Sequence[FoundRun]], Figure]] = {
    "fig-convergence": convergence,
    "fig-rho": rho,
    "fig-q": probabilities,
    "fig-cost": sizes,
    "fig-sr": sampling_ratio,
}
