"""Figures of finished runs that differ in one setting: sizes of the federation, the sampling ratio, the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isfl.experiment import columns
from isfl.plotting import PAGE, legend_below, sheet, styles_of, tidy
from isfl.report.clients import last_own_accuracy
from isfl.report.curves import seeds_of
from isfl.report.pictures import NotDrawnError
from isfl.report.reading import FoundRun, flat, told_apart

Settings = dict[str, Any]
Sweep = dict[float, list[FoundRun]]
"""Value of the setting -> its runs, one per seed."""


@dataclass(frozen=True)
class Setting:
    """A setting that runs may differ in: its title, its configuration keys, and its value in a run."""

    title: str
    keys: tuple[str, ...]
    value: Callable[[FoundRun, Settings], Any]


CLIENTS = Setting("clients $K$", ("split.clients",), lambda run, settings: settings.get("split.clients"))
SAMPLES = Setting(
    "samples per client $|D_k|$",
    ("split.shard_size", "split.shards_per_client", "split.samples_per_client"),
    lambda run, settings: None if run.counts is None else float(run.counts.sum(axis=1).mean()),
)
PUBLIC = Setting("public samples $|D_L|$", ("data.public",), lambda run, settings: settings.get("data.public"))
RATIO = Setting(
    "sampling ratio", ("training.sampling_ratio",), lambda run, settings: settings.get("training.sampling_ratio")
)


LOCAL = Setting("weight of the local mix", ("target.weight",), lambda run, settings: settings.get("target.weight"))


def sizes(runs: Sequence[FoundRun]) -> Figure:
    """Draw accuracy on `D_S` and extra gradients against `K`, `|D_k|` and `|D_L|`, where the runs differ in them."""
    found = {setting: sweeps_of(runs, setting) for setting in (CLIENTS, SAMPLES, PUBLIC)}
    found = {setting: sweeps for setting, sweeps in found.items() if sweeps}
    if not found:
        raise NotDrawnError("no finished runs differ in clients, samples per client or public samples alone")
    styles = styles_of(label for sweeps in found.values() for label in sweeps)
    figure, axes = sheet(2, len(found), PAGE, 4.0, sharex="col")
    for column, (setting, sweeps) in zip(axes.T, found.items(), strict=True):
        for label, sweep in sweeps.items():
            _draw_accuracy(column[0], sweep, "accuracy_standard", label, styles[label])
            values = sorted(sweep)
            column[1].plot(values, [_extra(sweep[v]) for v in values], label=label, **styles[label])
        tidy(column[0], "", "", "accuracy on $D_S$ in %")
        tidy(column[1], "", setting.title, "extra gradients in %")
        _tick_values(column[1], sweeps)
    legend_below(figure, _seeds(list(found.values())))
    return figure


def sampling_ratio(runs: Sequence[FoundRun]) -> Figure:
    """Draw accuracy on `D_S` and `D_G` against the share of its data that a client draws in an epoch."""
    sweeps = sweeps_of(runs, RATIO)
    if not sweeps:
        raise NotDrawnError("no finished runs differ in training.sampling_ratio alone")
    styles = styles_of(sweeps)
    figure, axes = sheet(1, 2, PAGE, 2.6)
    for axis, metric, name in zip(axes[0], ("accuracy_standard", "accuracy_global"), ("D_S", "D_G"), strict=True):
        for label, sweep in sweeps.items():
            _draw_accuracy(axis, sweep, metric, label, styles[label])
        tidy(axis, "", RATIO.title, f"accuracy on ${name}$ in %")
        _tick_values(axis, sweeps)
    legend_below(figure, _seeds([sweeps]))
    return figure


def personalisation(runs: Sequence[FoundRun]) -> Figure:
    """Draw accuracy on `D_S` and on clients' own data (mean, lower quartile, lowest) as the target becomes local."""
    sweeps = sweeps_of(runs, LOCAL)
    if not sweeps:
        raise NotDrawnError("no finished runs differ in target.weight alone")
    styles = styles_of(sweeps)
    figure, axes = sheet(1, 2, PAGE, 2.8)
    for label, sweep in sweeps.items():
        _draw_accuracy(axes[0, 0], sweep, "accuracy_standard", label, styles[label])
        values = sorted(sweep)
        own = [np.concatenate([last_own_accuracy(run) for run in sweep[value]]) for value in values]
        for name, statistic, dashes in OWN:
            line = [100 * statistic(found) if len(found) else np.nan for found in own]
            style = {**styles[label], "linestyle": dashes}
            axes[0, 1].plot(values, line, label=f"{label}, {name}", **style)
    for axis, what in zip(axes[0], ("accuracy on $D_S$ in %", "clients' own accuracy in %"), strict=True):
        tidy(axis, "", LOCAL.title, what)
        _tick_values(axis, sweeps)
    legend_below(figure, _seeds([sweeps]))
    return figure


OWN: tuple[tuple[str, Callable[[np.ndarray], float], str], ...] = (
    ("mean of clients", lambda found: float(found.mean()), "-"),
    ("lower quartile", lambda found: float(np.quantile(found, 0.25)), "--"),
    ("lowest", lambda found: float(found.min()), ":"),
)


def sweeps_of(runs: Sequence[FoundRun], setting: Setting) -> dict[str, Sweep]:
    """Return label -> sweep, of the finished runs that differ in nothing but this setting and the seed.

    An unfinished run has no final accuracy to compare with others.
    """
    found: list[tuple[str, Settings, Sweep]] = []
    for run in runs:
        settings = flat(run.config)
        value = setting.value(run, settings)
        if not run.finished or not run.evaluated or not isinstance(value, int | float):
            continue
        name = run.short_label.partition(" (")[0]  # the axis, or `told_apart`, shows the rest
        others = {key: item for key, item in settings.items() if key not in (*setting.keys, "seed")}
        for label, rest, sweep in found:
            if (label, rest) == (name, others):
                sweep.setdefault(float(value), []).append(run)
                break
        else:
            found.append((name, others, {float(value): [run]}))
    found = [entry for entry in found if len(entry[2]) > 1]
    labels = told_apart([name for name, _, _ in found], [rest for _, rest, _ in found])
    return {label: sweep for label, (_, _, sweep) in zip(labels, found, strict=True)}


def _draw_accuracy(axis: Axes, sweep: Sweep, metric: str, label: str, style: dict[str, Any]) -> None:
    """Draw the last evaluated round: mean over seeds, with their range as a bar."""
    values = sorted(sweep)
    last = [[columns.last(run.lines, metric) for run in sweep[value]] for value in values]
    means = np.array([np.mean(own) for own in last])
    below = means - [min(own) for own in last]
    above = [max(own) for own in last] - means
    axis.errorbar(values, 100 * means, 100 * np.array([below, above]), label=label, capsize=2, **style)


def _tick_values(axis: Axes, sweeps: dict[str, Sweep]) -> None:
    """Set ticks where there are runs, if they are few."""
    values = sorted({value for sweep in sweeps.values() for value in sweep})
    if len(values) <= 6:
        axis.set_xticks(values, [f"{value:g}" for value in values])


def _seeds(panels: Sequence[dict[str, Sweep]]) -> str:
    return f"last round, {seeds_of([{str(v): sweep[v] for v in sweep} for p in panels for sweep in p.values()])}"


def _extra(runs: Sequence[FoundRun]) -> float:
    return columns.extra_gradients([run.lines for run in runs])
