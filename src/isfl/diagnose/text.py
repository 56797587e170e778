"""A diagnosis in words: five lines, and the command that tests the advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np

from isfl.diagnose.advice import FLOOR, TARGET_FLOOR
from isfl.diagnose.diagnosis import ISFL, MINIMUM, Diagnosis
from isfl.diagnose.evidence import RECOMMENDED, Expected
from isfl.diagnose.tables import shortened
from isfl.theory.arrays import Array
from isfl.theory.drivers import leading

NAMED = 3
"""Most clients or classes that a line names."""


def five_lines(diagnosis: Diagnosis) -> list[str]:
    """Return one line each for skew, drivers, theory, limits and advice."""
    told = {
        "Skew": _skew(diagnosis),
        "Drivers": _drivers(diagnosis),
        "Theory": _theory(diagnosis),
        "Limits": _limits(diagnosis),
        "Advice": _advice(diagnosis),
    }
    return [f"{f'{name}:':<9}{text}" for name, text in told.items()]


def next_step(diagnosis: Diagnosis, path: str) -> str | None:
    """Return the command that tests the advice; None if the advice is not to bother."""
    if diagnosis.advice.verdict == "no":
        return None
    config = path if path.endswith(".toml") else "experiment.toml"
    variant = f"isfl-floor: scheme=isfl; scheme.sampling.floor={FLOOR}; scheme.sampling.target_floor={TARGET_FLOOR}"
    return f"isfl compare {config} --schemes fedavg,uniform-is,{RECOMMENDED} --variant '{variant}'"


def _skew(diagnosis: Diagnosis) -> str:
    card, drivers = diagnosis.card, diagnosis.drivers
    if drivers.total == 0:
        return "none: there is one client." if len(card.samples) == 1 else "none: every client has the same label mix."
    moved = float(card.samples @ card.total_variation / card.samples.sum())
    return (
        f"{_percent(moved)} of the samples would have to change class for all clients to have the same label mix; "
        f"squared distance {drivers.total:.3f}, {_times(drivers.total / drivers.chance)} that of a random split."
    )


def _drivers(diagnosis: Diagnosis) -> str:
    drivers, federation = diagnosis.drivers, diagnosis.federation
    if drivers.total == 0:
        return "none."
    clients, classes = leading(drivers.clients), leading(drivers.classes)
    return (
        f"half of it comes from {len(clients)} of {len(federation.clients)} clients "
        f"({_leaders(federation.clients, drivers.clients, clients)}), or from {len(classes)} of "
        f"{len(federation.classes)} classes ({_leaders(federation.classes, drivers.classes, classes)})."
    )


def _theory(diagnosis: Diagnosis) -> str:
    draws = diagnosis.draws
    against = " and ".join(f"{draws[ISFL].rho / draws[name].rho:.2f} of {told}" for name, told in _RIVALS.items())
    given = (
        "L flat: ISFL then draws by the target"
        if diagnosis.question.lipschitz is None
        else f"L as given; the least possible is {draws[MINIMUM].rho / draws['fedavg'].rho:.2f} of FedAvg's"
    )
    return f"the factor rho of the convergence bound is {against} with ISFL ({given})."


def _limits(diagnosis: Diagnosis) -> str:
    effective, samples = diagnosis.draws["pj-is"].effective, diagnosis.card.samples.sum()
    lacking = (
        f"{_percent(diagnosis.out_of_reach)} of the target is in classes a client lacks"
        if diagnosis.out_of_reach > 0
        else "no client lacks a class of the target"
    )
    size = "stays the same" if effective > 0.995 else f"falls to {effective * samples:.0f}, because rare classes repeat"
    return (
        f"drawn by the target, the effective size of {samples:.0f} samples {size}; {lacking}; measuring L on "
        f"{diagnosis.question.public} public samples costs {_percent(diagnosis.extra_gradients)} more gradients."
    )


def _advice(diagnosis: Diagnosis) -> str:
    advice, target = diagnosis.advice, diagnosis.question.target.kind
    match advice.reason:
        case "even":
            return (
                f"do not bother: the clients' label mixes are near the {target} target. {advice.first_line} is enough."
            )
        case "out of reach":
            return (
                "do not bother with sampling: clients lack the classes it would draw. Calibration, FedProx or MOON may "
                "help, or clients with more classes."
            )
        case "some":
            word = "a trial is free, but expect little"
        case "much":
            word = "bother"
        case _:
            assert_never(advice.reason)
    return (
        f"{word}. First {advice.first_line} (no extra gradients): {_expected(advice.expected)}. Then "
        f"{advice.isfl_line}, {target} target; in our runs ISFL did not lead (docs/results.md)."
    )


def _expected(expected: Expected) -> str:
    low, high = expected.range
    return (
        f"{low:+.1f} to {high:+.1f} points against FedAvg in the {len(expected.settings)} measured settings of most "
        f"similar skew; predicted like this, a setting is missed by {expected.miss:.1f} points on average"
    )


_RIVALS = {"fedavg": "FedAvg's", "uniform-is": "Uniform-IS's"}


def _leaders(names: Sequence[str], shares: Array, order: np.ndarray) -> str:
    told = [f"{shortened(names[i])}: {_percent(float(shares[i]))}" for i in order[:NAMED]]
    return ", ".join(told) + (", ..." if len(order) > NAMED else "")


def _percent(share: float) -> str:
    """Format whole percents, with one decimal for shares below 1 %."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.0095 or share == 0 else f"{100 * share:.1f} %"


def _times(factor: float) -> str:
    if factor > 1000:
        return "over 1000 times"
    return f"{factor:.0f} times" if factor >= 10 else f"{factor:.1f} times"
