"""The page's first lines: what the runs show, in sentences computed from their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.filesize import decimal

from isfl.experiment import columns
from isfl.experiment.paired import Paired, paired
from isfl.report.clients import by_client
from isfl.report.differences import Members, finals
from isfl.report.reading import FoundRun, by_group

MOST = 0.95
"""A run has reached most of its accuracy with this share of it."""
MOST_ROWS = 5
"""Schemes that a summary compares with the best one."""
MOST_ROWS_EACH = 2
"""The same for each of several settings."""
NOTICEABLE = 0.05
"""Percentage points: less is written as 0.0."""

# ---------------------------------------------------------------- several runs


def about_schemes(runs: Sequence[FoundRun]) -> list[str]:
    """Return which scheme is best, and how far the others are behind it, for every setting."""
    known = [run for run in runs if math.isfinite(columns.last(run.lines, "accuracy_standard"))]
    groups = by_group(known)
    lines = [
        f"{group}: {line}" if group else line
        for group, members in groups.items()
        for line in _about_group(members, brief=len(groups) > 1)
    ]
    unfinished = sum(not run.finished for run in runs)
    if unfinished:
        lines.append(f"{unfinished} of {len(runs)} runs are unfinished: their last round so far is compared.")
    return lines


def _about_group(members: Members, brief: bool) -> list[str]:
    means = {label: _mean(runs, "accuracy_standard") for label, runs in members.items()}
    ranked = sorted(means, key=lambda label: -means[label])
    best, *others = ranked
    has = "has the highest accuracy" if others else "is the only scheme; its accuracy"
    where = f"on the balanced test set (D_S){':' if others else ' is'} {means[best]:.1f} %"
    lines = [f"{best} {has} {where} ({_seeds(len(members[best]))})."]
    shown = others[: MOST_ROWS_EACH if brief else MOST_ROWS]
    lines += [_behind(members, label, best, means) for label in shown]
    if len(others) > len(shown):
        lines.append(f"{len(others) - len(shown)} more are further behind; the table has them.")
    return lines if brief else [*lines, *_elsewhere(members), *_extra(members)]


def _behind(members: Members, label: str, best: str, means: dict[str, float]) -> str:
    """Return the distance of a scheme from the best one, on common seeds where there are any."""
    ours, theirs = (finals(members[name], "accuracy_standard") for name in (label, best))
    pair = paired(ours, theirs)
    if pair is None:
        gap = means[best] - means[label]
        return f"{label} is {gap:.1f} points behind {best} on D_S on average; they share no seed."
    return f"{label} is {_distance(pair, best)} on D_S, {_certainty(pair)}."


def _distance(pair: Paired, best: str) -> str:
    if abs(pair.mean) < NOTICEABLE:
        return f"level with {best}"
    return f"{abs(pair.mean):.1f} points {'ahead of' if pair.mean > 0 else 'behind'} {best}"


def _certainty(pair: Paired) -> str:
    """Return on how many seeds, the interval, and whether that tells the two apart."""
    if pair.half_width is None:
        return "with one seed, which cannot tell a difference from chance"
    sign = 1 if pair.mean >= 0 else -1
    low, high = (sign * pair.mean + side * pair.half_width for side in (-1, 1))
    noise = "" if pair.clear else "; it includes 0, so this may be chance"
    interval = f"{low:.1f} to {high:.1f}".replace("-", "\N{MINUS SIGN}")
    seeds = f"on {pair.ahead} of {pair.seeds} seeds" if abs(pair.mean) >= NOTICEABLE else f"over {pair.seeds} seeds"
    return f"{seeds} (95 % interval {interval}{noise})"


def _elsewhere(members: Members) -> list[str]:
    """Return who is best on the clients' data, overall and for the worst client."""
    parts = []
    for metric, where in (
        ("accuracy_global", "all clients' data (D_G)"),
        ("worst_client_accuracy", "each run's worst client"),
    ):
        known = {label: mean for label, runs in members.items() if math.isfinite(mean := _mean(runs, metric))}
        if len(known) > 1:
            top = max(known.values())
            best = [label for label, mean in known.items() if mean > top - NOTICEABLE]
            parts.append(
                f"for {where}, {' and '.join(best)} {'is' if len(best) == 1 else 'are'} highest with {top:.1f} %"
            )
    return [f"{_capital('; '.join(parts))}."] if parts else []


def _extra(members: Members) -> list[str]:
    """Return who spends gradients on sampling."""
    spent = {label: columns.extra_gradients([run.lines for run in runs]) for label, runs in members.items()}
    some = [f"{label} {extra:.1f} %" for label, extra in spent.items() if extra >= NOTICEABLE]
    return [f"Gradients for sampling, in percent of those for training: {', '.join(some)}."] if some else []


def _mean(runs: Sequence[FoundRun], metric: str) -> float:
    return columns.final_spread([run.lines for run in runs], metric)[0]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"mean of {count} seeds"


# ---------------------------------------------------------------- one run


def about_run(run: FoundRun, alone: bool) -> list[str]:
    """Return where a run ended, when it reached most of it, its worst client and class, and what it cost."""
    if not run.evaluated:
        return ["No round has been evaluated yet."] if run.lines else ["No round is done yet."]
    lines = [_ended(run), _course(run), _worst(run), _cost(run), _late(run), _refused(run)]
    if alone:
        lines.append("This is one seed: another would give other numbers, and nothing here says how different.")
    return [line for line in lines if line]


def _ended(run: FoundRun) -> str:
    final = run.evaluated[-1]
    shared = columns.number(final, "accuracy_global")
    clients = f" and {100 * shared:.1f} % of all clients' data (D_G)" if math.isfinite(shared) else ""
    done = f"After {final['round']} of {run.rounds or '?'} rounds"
    return f"{done}, the model classifies {_percent(final)} of the balanced test set (D_S){clients} correctly."


def _course(run: FoundRun) -> str:
    """Return when most of the accuracy was reached, and the best round if it was clearly better."""
    final, best = run.evaluated[-1], columns.best_line(run.lines)
    goal = MOST * final["accuracy_standard"]
    first = columns.first_round_with(run.lines, goal)
    text = f"It first reached {100 * MOST:.0f} % of that accuracy on D_S, {100 * goal:.1f} %, in round {first}."
    if 100 * (best["accuracy_standard"] - final["accuracy_standard"]) >= NOTICEABLE:
        text += f" Its best round was {best['round']}, with {_percent(best)}."
    return text


def _worst(run: FoundRun) -> str:
    parts = []
    accuracies = by_client(run.evaluated[-1], "client_accuracy")
    if len(accuracies) > 1:
        worst = min(accuracies, key=accuracies.__getitem__)
        middle = float(np.median(list(accuracies.values())))
        parts.append(
            f"The worst client is client {worst} with {100 * accuracies[worst]:.1f} % on its own data; the median "
            f"client has {100 * middle:.1f} %."
        )
    recalls = by_client(run.evaluated[-1], "recall")
    if len(recalls) == len(run.class_names) > 1:
        lowest = min(recalls, key=recalls.__getitem__)
        parts.append(f"The class with the lowest recall is {run.class_names[lowest]}: {100 * recalls[lowest]:.1f} %.")
    return " ".join(parts)


def _cost(run: FoundRun) -> str:
    training = columns.trained(run.lines)
    if not training:
        return ""
    extra = columns.extra_gradients([run.lines])
    seconds = columns.total(run.lines, "seconds.wall")
    down, up = (decimal(int(columns.total(run.lines, key))) for key in ("bytes_down", "bytes_up"))
    sampling = f"{extra:.1f} % more for sampling" if extra >= NOTICEABLE else "none for sampling"
    return (
        f"It cost {training:,.0f} gradients for training and {sampling}, {seconds:,.0f} s of wall time, {down} sent to "
        f"the clients and {up} received from them."
    )


def _late(run: FoundRun) -> str:
    asked, late = (sum(len(line.get(key) or []) for line in run.lines) for key in ("participants", "late"))
    if not late:
        return ""
    seconds = columns.simulated_seconds(run.lines)
    clock = "" if seconds is None else f" By the simulated latencies, its rounds took {seconds:,.0f} s."
    return f"{late} of {asked} answers came after their round had closed.{clock}"


def _refused(run: FoundRun) -> str:
    refused = sum(len(line["refused"]) for line in run.lines if isinstance(line.get("refused"), dict))
    if not refused:
        return ""
    return f"{refused} {'answer was' if refused == 1 else 'answers were'} refused."


def _percent(line: Mapping[str, Any]) -> str:
    return f"{100 * line['accuracy_standard']:.1f} %"
