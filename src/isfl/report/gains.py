"""What policies gain over FedAvg, setting by setting: a table, and a picture of gain against skew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from isfl.experiment.cells import Cell
from isfl.experiment.paired import Paired, paired
from isfl.experiment.policy import PARTS, ROWS
from isfl.experiment.standings import REFERENCE, gains, over_settings, score
from isfl.plotting import PAGE, legend_below, sheet, styles_of, tidy
from isfl.report.pictures import NotDrawnError
from isfl.report.reading import FoundRun, by_group, part_of
from isfl.report.table import Table, difference
from isfl.theory.drivers import skew_drivers


def gains_table(cells: Sequence[Cell], measured: Mapping[str, Mapping[str, Paired]]) -> Table:
    """Return one row per setting with the gain of every policy over FedAvg, and a row for all of them together."""
    labels = [label for label in ROWS | PARTS if measured.get(label)]
    settings = [
        at for at in dict.fromkeys(cell.group for cell in cells) if any(at in measured[each] for each in labels)
    ]
    rows = [(at, *(difference(measured[label].get(at)) for label in labels)) for at in settings]
    every = ("all settings", *(difference(over_settings(measured[label])) for label in labels))
    return ("setting", *labels), [*rows, every]


GAINS = (
    "Mean of D_S and D_G over the last five rounds, minus FedAvg's with the same seeds, in points; where there are "
    "several seeds, with a 95 % interval over them and the seeds that agree in sign. All settings: mean over the "
    "settings of the column, with an interval over settings."
)


def behind_table(cells: Sequence[Cell], winner: str) -> Table:
    """Return one row per other policy: its score minus the winner's over all settings, and the two extremes."""
    rows = []
    for label, pairs in gains(cells, winner).items():
        if every := over_settings(pairs):
            means = {setting: pair.mean for setting, pair in pairs.items()}
            extremes = (pick(means, key=means.__getitem__) for pick in (max, min))
            rows.append((label, difference(every), *(f"{means[at]:+.1f} ({at})" for at in extremes)))
    return ("policy", "mean over settings", "best setting", "worst setting"), rows


BEHIND = (
    "Score of the policy minus that of `{winner}` with the same seeds, in points: mean over the settings that both "
    "have, with a 95 % interval over settings and the settings that agree in sign; the settings where it does best and "
    "worst against `{winner}`."
)


def gains_picture(runs: Sequence[FoundRun]) -> Figure:
    """Draw the gain of every policy against the skew of its setting, one panel per data set.

    A line joins the means over seeds; a dot is one seed.
    """
    panels: dict[str, dict[str, list[tuple[float, Paired]]]] = {}
    for labelled in by_group(runs).values():
        own = {label: {run.seed or 0: run for run in found} for label, found in labelled.items()}
        fedavg = own.pop(REFERENCE, {})
        counted = [run.counts for run in fedavg.values() if run.counts is not None]
        if not counted:
            continue
        panel = panels.setdefault(str(part_of(next(iter(fedavg.values())).config, "data").get("name")), {})
        skew = float(np.mean([skew_drivers(counts).total for counts in counted]))
        for label, found in own.items():
            pair = paired(_scores(found), _scores(fedavg))
            if pair is not None:
                panel.setdefault(label, []).append((skew, pair))
    panels = {name: panel for name, panel in panels.items() if panel}
    if not panels:
        raise NotDrawnError("no setting has FedAvg and another policy with the same seed")
    styles = styles_of(label for label in ROWS | PARTS if any(label in panel for panel in panels.values()))
    figure, axes = sheet(1, len(panels), PAGE, 2.8, sharey=True)
    for axis, (name, panel) in zip(axes.flat, panels.items(), strict=True):
        axis.axhline(0.0, color="black", linewidth=0.6)
        for label, style in styles.items():
            points = sorted(panel.get(label, []), key=lambda point: point[0])
            axis.plot([skew for skew, _ in points], [pair.mean for _, pair in points], label=label, **style)
            seeds = [(skew, value) for skew, pair in points for value in pair.by_seed.values()]
            if seeds:
                axis.scatter(*zip(*seeds, strict=True), s=5, color=style["color"], alpha=0.5, linewidths=0)
        tidy(axis, name, SKEW, f"points ahead of {REFERENCE}" if axis is axes.flat[0] else "")
    legend_below(figure)
    return figure


SKEW = r"skew: mean of $\Vert p - p^k \Vert^2$ over clients"


def _scores(runs: Mapping[int, FoundRun]) -> dict[int, float]:
    return {seed: score(run.lines) for seed, run in runs.items()}
