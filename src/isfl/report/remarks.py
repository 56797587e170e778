"""Remarks on an experiment: what the paper reports, and what our runs show, computed from the runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isfl.experiment.columns import band_of
from isfl.report.attacks import about_left_out
from isfl.report.clients import last_own_accuracy
from isfl.report.curves import series
from isfl.report.pictures import drawn_by
from isfl.report.reading import FoundRun, by_group
from isfl.theory.arrays import Array

UNNORMALISED = (
    "`pj-unnormalised`: the published p_j-IS row stays close to FedAvg in all four columns, which drawing by the "
    "target (q = p, the row `pj-is`) cannot explain; q proportional to p^k p, the weight p used without dividing by "
    "p^k, would."
)
ISFEDAVG = (
    "`isfedavg` is the biased estimator, as the ISFL paper words it; `scheme.sampling.unbiased = true` is the option "
    "that Rizk et al. assume: each loss is weighted by one over N times its probability."
)
RARE = 0.01
"""A class with a smaller probability is hardly drawn: less than one sample in a hundred."""


def remarks(name: str, runs: Sequence[FoundRun]) -> list[str]:
    """Return paragraphs of Markdown about the experiment `name`; none if its runs lack what they describe."""
    match name:
        case "table2":
            labels = {run.short_label for run in runs}
            return [text for label, text in _TABLE2.items() if label in labels]
        case "fig-rho":
            return _about_rho(runs)
        case "fig-q":
            return _about_probabilities(runs)
        case "fig-personal":
            return _about_clients(runs)
        case "attacks":
            return about_left_out(runs)
    return []


_TABLE2 = {"pj-unnormalised": UNNORMALISED, "isfedavg": ISFEDAVG}


def _about_rho(runs: Sequence[FoundRun]) -> list[str]:
    """Say whether `rho` rose or fell, and how near its minimum it was in the first and the last measured round."""
    found = []
    for group, labelled in by_group(runs).items():
        for label, own in labelled.items():
            used, minimum = (band_of([series(run, key) for run in own]) for key in ("rho_used", "rho_minimum"))
            rounds = np.intersect1d(used.rounds, minimum.rounds)
            if len(rounds) < 2:
                continue
            ends = [int(rounds[0]), int(rounds[-1])]
            first, last = (float(used.mean[used.rounds == end][0]) for end in ends)
            lowest = [float(minimum.mean[minimum.rounds == end][0]) for end in ends]
            before, after = lowest[0] / first, lowest[1] / last
            found.append(
                f"In our runs of {group}/{label} the rho in use {_course(first, last)} from {first:.4g} in round "
                f"{ends[0]} to {last:.4g} in round {ends[1]}, its minimum {_course(*lowest)} from {lowest[0]:.4g} to "
                f"{lowest[1]:.4g}; minimum by used is {before:.2f} in the first and {after:.2f} in the last of these "
                f"rounds, so the two curves {_approach(before, after)}."
            )
    reported = (
        "The paper reports that rho and its theoretical minimum fall over rounds and that the two curves approach."
    )
    return [" ".join([reported, *found])] if found else []


def _course(first: float, last: float) -> str:
    return "rose" if last > first else "fell" if last < first else "stayed the same,"


def _approach(before: float, after: float) -> str:
    """Put the ratios of minimum to used into words; a ratio is at most 1, where the curves meet."""
    if abs(after - before) < 0.005:
        return "kept their ratio"
    return "approached each other" if after > before else "moved apart"


def _about_probabilities(runs: Sequence[FoundRun]) -> list[str]:
    """Say how far `q` moves, and how common the paper's observations on single classes are."""
    found = []
    for group, labelled in by_group(runs).items():
        for label, own in labelled.items():
            numbers = [_movement(run) for run in own]
            known = np.array([row for row in numbers if row is not None])
            if len(known):
                step, near, local, always, sometimes = known.mean(axis=0)
                found.append(
                    f"{group}/{label}: q moves by {step:.3f} from one round to the next (total variation, mean over "
                    f"clients); in the last round it is {near:.3f} from the target, the clients' own mixes are "
                    f"{local:.3f} from it; {always:.0f} % of the client-class pairs are always drawn more often than "
                    f"uniformly, {sometimes:.0f} % fall below {RARE:g} in some rounds and not in others."
                )
    reported = (
        "The paper reports that under ISFedAvg the classes with large gradient norms keep them although they are drawn "
        "more often, and that under ISFL q changes over rounds and looks more i.i.d., with some classes always drawn "
        "often and some occasionally close to 0. In our runs:"
    )
    return ["\n".join([reported, "", *(f"- {line}" for line in found)])] if found else []


def _movement(run: FoundRun) -> tuple[float, ...] | None:
    """Return the step between rounds, the distances of `q` and the local mix to the target, two shares in percent."""
    drawn = drawn_by(run)
    if not drawn or run.shares is None or run.target is None or len(next(iter(drawn.values()))) < 2:
        return None
    order = [int(client) for client in drawn]
    q = np.array(list(drawn.values()))  # (K, T, C)
    mixes = run.shares[order]
    target = run.target[order]
    always = (q > 1 / q.shape[2]).all(axis=1)
    rare = q < RARE
    sometimes = rare.any(axis=1) & ~rare.all(axis=1)
    return (
        float(_variation(q[:, 1:], q[:, :-1]).mean()),
        float(_variation(q[:, -1], target).mean()),
        float(_variation(mixes, target).mean()),
        100 * float(always.mean()),
        100 * float(sometimes.mean()),
    )


def _about_clients(runs: Sequence[FoundRun]) -> list[str]:
    """Show how the last model serves the clients: the lowest, the quartiles."""
    found = []
    for group, labelled in by_group(runs).items():
        for label, own in labelled.items():
            values = np.concatenate([last_own_accuracy(run) for run in own])
            if len(values):
                quantiles = " / ".join(f"{100 * q:.0f}" for q in np.quantile(values, (0, 0.25, 0.5, 0.75)))
                found.append(f"- {group}/{label}: {quantiles} %")
    heading = "Accuracy of the last model on clients' own data (lowest, lower quartile, median, upper quartile):"
    return ["\n".join([heading, "", *found])] if found else []


def _variation(a: Array, b: Array) -> Array:
    """Return the total variation distance over the last axis."""
    distance: Array = 0.5 * np.abs(a - b).sum(axis=-1)
    return distance
