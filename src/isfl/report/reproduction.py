"""A reproduced table or figure: Markdown and JSON with the published numbers beside ours, and a picture."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from isfl.experiment.cells import Cell
from isfl.experiment.directory import read_lines, told_when_full
from isfl.experiment.reproduce import Result, published, results_of
from isfl.files import write_whole
from isfl.report.curves import COLOURS, MARKERS, draw_curves, tidy

SCALES = {
    "smoke": "smoke: tiny runs on the embedded data, not comparable with anything",
    "quick": "quick: the same experiment at half the width and ten rounds, not the published setting",
    "paper": "paper: the published setting",
}


def write_reproduction(name: str, scale: str, cells: Sequence[Cell], out: Path) -> list[Result]:
    """`NAME.md`, `NAME.json` and `NAME.png` in `out`, from the cells that are complete."""
    results = results_of(name, cells)
    complete = [cell for cell in cells if cell.complete]
    content = {
        "experiment": name,
        "scale": scale,
        "source of the published numbers": published()["source"],
        "runs": [json.loads((cell.out / "run.json").read_text(encoding="utf-8")) for cell in complete[:1]],
        "results": [{**asdict(r), "difference": {key: r.difference(key) for key in r.published}} for r in results],
    }
    picture = io.BytesIO()
    figure = PICTURES.get(name, _against_published)(complete, results)
    figure.savefig(picture, format="png", dpi=150)
    plt.close(figure)
    with told_when_full(out):
        write_whole(out / f"{name}.json", (json.dumps(content, indent=2) + "\n").encode())
        write_whole(out / f"{name}.md", markdown(name, scale, results, len(cells) - len(complete)).encode())
        write_whole(out / f"{name}.png", picture.getvalue())
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


def markdown(name: str, scale: str, results: Sequence[Result], missing: int) -> str:
    """A table for every setting, and what its numbers are."""
    parts = [f"# {name}"]
    for group, rows in by_group(results).items():
        names = headings(rows)
        lines = [" | ".join(names), " | ".join("---" for _ in names), *(" | ".join(row) for row in rows_of(rows))]
        parts += [f"## {group}", "\n".join(f"| {line} |" for line in lines)]
    parts.append(
        f"{SCALES[scale]}. Last round; D_S: balanced test set, D_G: all clients' data; extra: gradients for sampling "
        "per gradient for training; speed-up: all rounds by those to FedAvg's last accuracy."
        + (f" {missing} runs of this experiment have not been made." if missing else "")
    )
    parts.append(f"Published numbers: {published()['source']}.")
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- pictures


def _against_published(cells: Sequence[Cell], results: Sequence[Result]) -> Figure:
    """Dots for ours, crosses for theirs, a panel for every setting."""
    groups = list(dict.fromkeys(r.group for r in results))
    figure, axes = plt.subplots(1, len(groups), figsize=(4.2 * len(groups), 4.6), layout="constrained", squeeze=False)
    for axis, group in zip(axes[0], groups, strict=True):
        rows = [r for r in results if r.group == group]
        places = np.arange(len(rows))[::-1]
        axis.scatter([r.standard for r in rows], places + 0.12, color=COLOURS[0], marker="o", label="D_S, ours")
        axis.scatter([r.global_ for r in rows], places - 0.12, color=COLOURS[1], marker="s", label="D_G, ours")
        for key, shift, colour in (("standard", 0.12, COLOURS[0]), ("global", -0.12, COLOURS[1])):
            known = [(r.published[key], p) for r, p in zip(rows, places, strict=True) if key in r.published]
            if known:
                values, heights = zip(*known, strict=True)
                label = f"{'D_S' if key == 'standard' else 'D_G'}, published"
                axis.scatter(values, np.array(heights) + shift, color=colour, marker="x", label=label)
        axis.set_yticks(places, [r.label for r in rows])
        tidy(axis, group, "accuracy in %", "")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2 if len(groups) == 1 else 4, frameon=False)
    return figure


def _runs(cells: Sequence[Cell], group: str) -> dict[str, list[Path]]:
    labels = dict.fromkeys(cell.label for cell in cells if cell.group == group)
    return {label: [c.out for c in cells if (c.group, c.label) == (group, label)] for label in labels}


def _convergence(cells: Sequence[Cell], results: Sequence[Result]) -> Figure:
    groups = list(dict.fromkeys(cell.group for cell in cells))
    figure, axes = plt.subplots(len(groups), 3, figsize=(13, 4 * len(groups)), layout="constrained", squeeze=False)
    for row, group in zip(axes, groups, strict=True):
        runs = _runs(cells, group)
        draw_curves(row[0], runs, "accuracy_standard", f"{group}: D_S")
        draw_curves(row[1], runs, "accuracy_global", f"{group}: D_G")
        draw_curves(row[2], runs, "train_loss", f"{group}: training loss", "cross-entropy")
        row[0].legend(frameon=False)
    return figure


def _rho(cells: Sequence[Cell], results: Sequence[Result]) -> Figure:
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    lines = [cell.lines for cell in cells]
    for i, (key, label) in enumerate(
        (("rho_used", "in use"), ("rho_paper", "the paper's rule"), ("rho_minimum", "theoretical minimum"))
    ):
        values = np.array([[line[key] for line in run] for run in lines], dtype=float)
        rounds = [line["round"] for line in lines[0]]
        axis.plot(rounds, values.mean(axis=0), color=COLOURS[i], marker=MARKERS[i], label=label)
    axis.set_yscale("log")
    axis.legend(frameon=False)
    tidy(axis, "rho, mean over clients", "round", "rho")
    return figure


def _probabilities(cells: Sequence[Cell], results: Sequence[Result]) -> Figure:
    """Every class's probability over rounds, for two clients and both schemes."""
    figure, axes = plt.subplots(len(cells), 2, figsize=(11, 3.6 * len(cells)), layout="constrained", squeeze=False)
    for row, cell in zip(axes, cells, strict=True):
        lines = read_lines(cell.out / "probabilities.jsonl")
        clients = sorted(lines[0]["probabilities"], key=int)
        for axis, client in zip(row, (clients[0], clients[-1]), strict=True):
            values = np.array([line["probabilities"][client] for line in lines])
            for i in range(values.shape[1]):
                style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
                axis.plot([line["round"] for line in lines], values[:, i], ms=4, label=str(i), **style)
            tidy(axis, f"{cell.label}, client {client}", "round", "probability")
    axes[0][1].legend(title="class", fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def _cost(cells: Sequence[Cell], results: Sequence[Result]) -> Figure:
    families = list(dict.fromkeys(r.group.split("=")[0] for r in results))
    figure, axes = plt.subplots(
        2, len(families), figsize=(4.2 * len(families), 6.4), layout="constrained", squeeze=False
    )
    for column, family in enumerate(families):
        for i, label in enumerate(dict.fromkeys(r.label for r in results)):
            rows = [r for r in results if r.group.startswith(f"{family}=") and r.label == label]
            rows.sort(key=lambda r: int(r.group.split("=")[1]))
            sizes = [int(r.group.split("=")[1]) for r in rows]
            style = {"color": COLOURS[i], "marker": MARKERS[i], "label": label}
            axes[0][column].plot(sizes, [r.standard for r in rows], **style)
            axes[1][column].plot(sizes, [r.extra_gradients for r in rows], **style)
        tidy(axes[0][column], "", family, "D_S accuracy in %")
        tidy(axes[1][column], "", family, "extra gradients in %")
    axes[0][0].legend(frameon=False)
    return figure


def _sampling_ratio(cells: Sequence[Cell], results: Sequence[Result]) -> Figure:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for i, label in enumerate(dict.fromkeys(r.label for r in results)):
        rows = [r for r in results if r.label == label]
        ratios = [float(r.group.removeprefix("SR=")) for r in rows]
        style = {"color": COLOURS[i], "marker": MARKERS[i], "label": label}
        axes[0].plot(ratios, [r.standard for r in rows], **style)
        axes[1].plot(ratios, [r.global_ for r in rows], **style)
    for axis, title in zip(axes, ("D_S", "D_G"), strict=True):
        tidy(axis, title, "sampling ratio", "accuracy in %")
    axes[0].legend(frameon=False)
    return figure


PICTURES: dict[str, Callable[[Sequence[Cell], Sequence[Result]], Figure]] = {
    "fig-convergence": _convergence,
    "fig-rho": _rho,
    "fig-q": _probabilities,
    "fig-cost": _cost,
    "fig-sr": _sampling_ratio,
}
