"""A reproduced table or figure: Markdown and JSON with the published numbers beside ours, and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from isfl import layout
from isfl.experiment.cells import Cell
from isfl.experiment.directory import told_when_full
from isfl.experiment.paper_setting import INTERPRETATIONS, SCALES
from isfl.experiment.published import published
from isfl.experiment.reproduce import Best, Result, results_of
from isfl.experiment.screen import stopped_at
from isfl.files import read_object, write_whole
from isfl.plotting import COLOURS, COLUMN, PAGE, in_print, picture_of, sheet, tidy
from isfl.report import attacks, gains, policy
from isfl.report.pictures import NotDrawnError, convergence, cross, probabilities, rho
from isfl.report.reading import SEPARATOR, FoundRun, read_run
from isfl.report.remarks import remarks
from isfl.report.split import convergence_and_split
from isfl.report.sweeps import personalisation, sampling_ratio, sizes
from isfl.report.table import Table, markdown_table, not_made


def setting_of(plan: Mapping[str, Any]) -> list[str]:
    """Return the settings of a plan, one phrase per option of the command."""
    scale, interpretation = plan["scale"], plan["as"]
    parts = [f"scale {scale}: {SCALES[scale]}", f"as {interpretation}: {INTERPRETATIONS[interpretation]}"]
    if plan["clients"] is not None:
        parts.append(f"{plan['clients']} clients")
    if plan["set"]:
        parts.append(f"with {', '.join(plan['set'])}")
    return parts


def write_reproduction(plan: Mapping[str, Any], cells: Sequence[Cell], out: Path) -> list[Result]:
    """Write `NAME.md`, `NAME.json` and `NAME.png` to `out`, from the cells that are complete.

    A table also gets `NAME-curves.png`: accuracy and training loss of its cells over rounds.
    """
    name: str = plan["title"]
    results = results_of(name, cells)
    shown = [cell for cell in cells if is_shown(name, cell)]
    runs = [read_run(cell.out, label=f"{cell.group}{SEPARATOR}{cell.label}") for cell in shown]
    notes = remarks(name, runs)
    content = {
        "experiment": name,
        "setting": {key: plan[key] for key in ("scale", "as", "clients", "set")},
        "source of the published numbers": published().source,
        "runs": [read_object(cell.out / layout.ENVIRONMENT) for cell in shown[:1]],
        "results": [
            {
                **asdict(r),
                "difference": {key: r.difference(key) for key in r.published},
                "difference_best": {key: r.difference(key, best=True) for key in r.published},
            }
            for r in results
        ],
        "remarks": notes,
    }
    with in_print():
        picture = picture_of(_picture(name, runs, results), "png")
        curves = picture_of(convergence(runs), "png") if name.startswith("table") and runs else None
    text = TEXTS.get(name, markdown)(plan, cells, results, notes)
    with told_when_full(out):
        write_whole(out / f"{name}.json", (json.dumps(content, indent=2) + "\n").encode())
        write_whole(out / f"{name}.md", text.encode())
        write_whole(out / f"{name}.png", picture)
        if curves is not None:
            write_whole(out / f"{name}-curves.png", curves)
    return results


def is_shown(name: str, cell: Cell) -> bool:
    """Return whether tables and figures have this cell: a complete run, or one that a screen has stopped."""
    return cell.complete or (name == "policy-screen" and stopped_at(cell) is not None)


def by_group(results: Sequence[Result]) -> dict[str, list[Result]]:
    return {group: [r for r in results if r.group == group] for group in dict.fromkeys(r.group for r in results)}


# ---------------------------------------------------------------- tables


def full_table(results: Sequence[Result]) -> Table:
    """Return all columns, for Markdown: one row per scheme."""
    columns = {
        "scheme": [r.label for r in results],
        "last round: D_S / D_G %": [_accuracies(r, r.seeds, "{:.2f}") for r in results],
        "last five rounds: D_S / D_G %": [_pair("{:.2f}", *r.last_five) for r in results],
        **_leads(results),
        "worst client %": [f"{r.worst_client:.2f}" for r in results],
        "best round: D_S / D_G %": [_accuracies(r.best, r.seeds, "{:.2f}") for r in results],
        "best round": [_rounds(r.best.round) for r in results],
    }
    if _has(results, "standard"):
        columns["published"] = [_published(r, "{:.2f}") for r in results]
        columns["last - published"] = [_differences(r, best=False) for r in results]
        columns["best - published"] = [_differences(r, best=True) for r in results]
    if _has_fedavg(results):
        columns["rounds to FedAvg"] = [_rounds(r.rounds_to_fedavg) for r in results]
    if _has(results, "speedup"):
        columns["speed-up"] = [_pair("{:.2f}x", r.speedup) for r in results]
        columns["published speed-up"] = [_pair("{:.2f}x", r.published.get("speedup")) for r in results]
    if _has(results, "top5"):
        columns["top-5 %: last / best"] = [_pair("{:.2f}", r.top5, r.best.top5) for r in results]
        columns["published top-5"] = [_pair("{:.2f}", r.published.get("top5")) for r in results]
    columns["extra %"] = [f"{r.extra_gradients:.0f}" for r in results]
    return _table(columns)


def _leads(results: Sequence[Result]) -> dict[str, list[str]]:
    """Return the columns that make rows with different seeds comparable, if there is FedAvg to compare with."""
    if not _has_fedavg(results):
        return {}
    leads = ["-" if r.lead is None or r.label == "fedavg" else _pair("{:+.2f}", *r.lead) for r in results]
    seeds = {"seeds": [str(r.seeds) for r in results]} if max(r.seeds for r in results) > 1 else {}
    return {**seeds, "last five - FedAvg": leads}


def terminal_tables(results: Sequence[Result]) -> Iterator[Table]:
    """Yield what fits into 80 columns: accuracies and rounds, then speed-up and top-5 where the paper has them."""
    schemes = [r.label for r in results]
    columns = {
        "scheme": schemes,
        "last round\nD_S / D_G %": [_accuracies(r, r.seeds, "{:.1f}") for r in results],
        "best @ round\nD_S / D_G %": [f"{_accuracies(r.best, 1, '{:.1f}')} @ {r.best.round:.0f}" for r in results],
    }
    if _has(results, "standard"):
        columns["published"] = [_published(r, "{:.1f}") for r in results]
    else:
        columns["extra %"] = [f"{r.extra_gradients:.0f}" for r in results]
    if _has_fedavg(results):
        columns["to\nFedAvg"] = [_rounds(r.rounds_to_fedavg) for r in results]
    yield _table(columns)
    more = {"scheme": schemes}
    if _has(results, "speedup"):
        more["speed-up"] = [_pair("{:.2f}x", r.speedup) for r in results]
        more["published"] = [_pair("{:.2f}x", r.published.get("speedup")) for r in results]
    if _has(results, "top5"):
        more["top-5 %\nlast round"] = [_pair("{:.1f}", r.top5) for r in results]
        more["top-5 %\nbest round"] = [_pair("{:.1f}", r.best.top5) for r in results]
        more["top-5 %\npublished"] = [_pair("{:.1f}", r.published.get("top5")) for r in results]
    if len(more) > 1:
        yield _table(more)


CAPTION = (
    "D_S: balanced test set; D_G: all clients' data; best round: the one with the highest D_S, chosen on the test set "
    "(the authors' result files are named by that maximum)"
)
FIVE = "last five rounds: their mean, because single rounds swing; worst client: on its own data, last round"
TO_FEDAVG = "rounds to FedAvg: to the last accuracy of FedAvg with the same seed, - if never"
LEAD = "last five - FedAvg: D_S / D_G in points, against FedAvg with the same seeds, which decide the split"


def caption(results: Sequence[Result]) -> str:
    """Return what the columns of both tables are."""
    return "; ".join([CAPTION, *([TO_FEDAVG] if _has_fedavg(results) else [])])


def _table(columns: Mapping[str, Sequence[str]]) -> Table:
    return tuple(columns), list(zip(*columns.values(), strict=True))


def _has(results: Sequence[Result], key: str) -> bool:
    return any(key in r.published for r in results)


def _has_fedavg(results: Sequence[Result]) -> bool:
    return any(r.label == "fedavg" for r in results)


def _published(result: Result, form: str) -> str:
    return _pair(form, result.published.get("standard"), result.published.get("global"))


def _differences(result: Result, *, best: bool) -> str:
    return _pair("{:+.2f}", *(result.difference(key, best=best) for key in ("standard", "global")))


def _accuracies(numbers: Result | Best, seeds: int, form: str) -> str:
    spread = f"±{form.format(numbers.standard_spread)}" if seeds > 1 else ""
    return f"{form.format(numbers.standard)}{spread} / {form.format(numbers.global_)}"


def _rounds(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.1f}".removesuffix(".0")


def _pair(form: str, *values: float | None) -> str:
    return " / ".join(form.format(value) for value in values if value is not None) or "-"


def markdown(plan: Mapping[str, Any], cells: Sequence[Cell], results: Sequence[Result], notes: Sequence[str]) -> str:
    """Return one table per setting, the meaning of its numbers, and remarks on them."""
    parts = [f"# {plan['title']}"]
    for group, members in by_group(results).items():
        parts += [f"## {group}", markdown_table(*full_table(members))]
    seeds = max((r.seeds for r in results), default=1)
    parts.append(
        f"Setting: {'; '.join(setting_of(plan))}. {caption(results)}; {FIVE}; "
        + (f"{LEAD}; " if _has_fedavg(results) else "")
        + "extra: gradients for sampling per gradient for training"
        + ("; speed-up: all of FedAvg's rounds divided by the rounds to FedAvg" if _has(results, "speedup") else "")
        + (f"; mean ± standard deviation of up to {seeds} seeds." if seeds > 1 else "; one seed.")
        + not_made(cells)
    )
    parts += notes
    if any(r.published for r in results):
        parts.append(f"Published numbers: {published().source}.")
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- pictures


def _picture(name: str, runs: Sequence[FoundRun], results: Sequence[Result]) -> Figure:
    """Draw the experiment's figure; for a table, or with too few cells, dots beside the published numbers."""
    if name in PICTURES:
        with suppress(NotDrawnError):
            return PICTURES[name](runs)
    return _against_published(results)


def _against_published(results: Sequence[Result]) -> Figure:
    """Draw a dot for our last round, a ring for the best, a cross for the published; one panel per setting."""
    groups = by_group(results)
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    tallest = max(map(len, groups.values()))
    figure, axes = sheet(lines, columns, COLUMN if columns == 1 else PAGE, 0.5 + lines * (0.7 + 0.24 * tallest))
    entries: dict[str, Artist] = {}
    for axis, (group, rows) in zip(axes.flat, groups.items(), strict=False):
        places = np.arange(len(rows))[::-1]
        last = {"standard": [r.standard for r in rows], "global": [r.global_ for r in rows]}
        best = {"standard": [r.best.standard for r in rows], "global": [r.best.global_ for r in rows]}
        known = {key: [r.published.get(key, np.nan) for r in rows] for key in DOTS}
        for what, values in (("last round", last), ("best round", best), ("published", known)):
            for key, (name, shift, colour, marker, cross_marker) in DOTS.items():
                if np.isnan(values[key]).all():
                    continue
                style: dict[str, Any] = {
                    "last round": {"marker": marker, "color": colour, "s": 12, "linewidths": 0},
                    "best round": {"marker": marker, "edgecolors": colour, "facecolors": "none", "s": 26},
                    "published": {"marker": cross_marker, "color": "black", "s": 22},
                }[what]
                dots = axis.scatter(values[key], places + shift, **{"linewidths": 0.8, **style})
                entries.setdefault(f"{name}, {what}", dots)
        axis.set_yticks(places, [r.label for r in rows])
        axis.set_ylim(-0.6, len(rows) - 0.4)
        tidy(axis, group, "accuracy in %", "")
    for axis in axes.flat[len(groups) :]:
        axis.remove()
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=3 if columns > 1 else 2, frameon=False
    )
    return figure


DOTS = {"standard": ("$D_S$", 0.14, COLOURS[0], "o", "x"), "global": ("$D_G$", -0.14, COLOURS[1], "s", "+")}
"""Key -> name, distance from the line of the scheme, colour, marker of ours and of the published number."""
PICTURES: dict[str, Callable[[Sequence[FoundRun]], Figure]] = {
    "fig-convergence": convergence_and_split,
    "fig-cross": cross,
    "fig-rho": rho,
    "fig-q": probabilities,
    "fig-cost": sizes,
    "fig-sr": sampling_ratio,
    "fig-personal": personalisation,
    "attacks": attacks.under_attack,
    "policy-screen": policy.screen_picture,
    "policy-confirm": gains.gains_picture,
    "policy-skew": gains.gains_picture,
}
TEXTS: dict[str, Callable[[Mapping[str, Any], Sequence[Cell], Sequence[Result], Sequence[str]], str]] = {
    "attacks": attacks.markdown,
    "policy-screen": policy.screen_markdown,
    "policy-choose": policy.markdown,
    "policy-confirm": policy.markdown,
    "policy-explain": policy.markdown,
    "policy-skew": policy.markdown,
}
"""Experiments that have tables of their own."""
