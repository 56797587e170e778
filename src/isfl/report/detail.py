"""Client by class, round by round: shares, targets, probabilities, and how the last follow from Lipschitz values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isfl.report.numbers import thinned
from isfl.report.reading import FoundRun
from isfl.theory import sampling_probabilities
from isfl.theory.arrays import Array, squared
from isfl.theory.probabilities import lowest_probabilities
from isfl.theory.water_filling import move

LAYERS = 3
"""Numbers per cell and round: probability, Lipschitz value, level."""
FEWEST_ROUNDS = 5
MATCH = 1e-6
"""Recorded probabilities that are further than this from what their Lipschitz values give do not belong to them."""


def detail_of(run: FoundRun, room: int) -> tuple[dict[str, Any] | None, int]:
    """Return the heat maps of a run in at most `room` numbers, and how many it took.

    If not all fit, rounds are left out evenly, then clients from the end. None if there is no data or no room.
    """
    local = run.shares
    drawn = [line for line in run.probabilities if line.get("probabilities")]
    width = len(run.class_names)
    known = local if local is not None else run.target
    clients = len(known) if known is not None else max((len(line["probabilities"]) for line in drawn), default=0)
    others = known is None and any(int(k) >= clients for line in drawn for k in line["probabilities"])
    if clients == 0 or width == 0 or others:  # others: each round has other clients, too many for a picture
        return None, 0
    shown = min(clients, room // (LAYERS * width * min(FEWEST_ROUNDS, max(len(drawn), 1))))
    if shown < 1:
        return None, 0
    lines = thinned(drawn, max(1, room // (LAYERS * width * shown)))
    rounds = [_round(run, line, local, shown) for line in lines]
    detail = {
        "clients": shown,
        "left_out": {"clients": clients - shown, "rounds": len(drawn) - len(lines)},
        "local": None if local is None else _table(local[:shown]),
        "target": None if run.target is None else _table(run.target[:shown]),
        "floor": _floors(run, local, shown),
        "rounds": rounds,
    }
    return detail, LAYERS * width * shown * max(len(rounds), 1)


def _round(run: FoundRun, line: Mapping[str, Any], local: Array | None, shown: int) -> dict[str, Any]:
    """Return what every client drew with in a round, and what that followed from."""
    number, width = line["round"], len(run.class_names)
    probabilities = _rows(line["probabilities"], shown, width)
    took_part = next((m.get("participants") for m in run.lines if m["round"] == number), None)
    content = {"round": number, "probabilities": _table(probabilities), "participants": took_part}
    rule = _rule(run)
    if rule is None or local is None or run.target is None:
        return content
    lipschitz, measured = _latest(run, number, shown, width)
    picture = _explained(rule, run.target[:shown], local[:shown], lipschitz, probabilities)
    return {**content, **picture, "measured": measured}


def _explained(rule: dict[str, Any], p: Array, p_k: Array, lipschitz: Array, q: Array) -> dict[str, Any]:
    """Return the water-filling picture of every client that has Lipschitz values.

    `doubt` marks clients whose recorded probabilities are not what their Lipschitz values give.
    """
    some = np.asarray(np.isfinite(lipschitz).any(axis=1))
    content: dict[str, Any] = {"lipschitz": _table(lipschitz)}
    expected = sampling_probabilities(p, p_k, lipschitz, solver=rule["solver"], **rule["floors"])
    content["doubt"] = (some & (np.nan_to_num(np.abs(expected - q)).max(axis=1) > MATCH)).tolist()
    if rule["solver"] == "paper":
        way = move(p, squared("lipschitz", lipschitz, relative=True), lowest_probabilities(p, p_k, **rule["floors"]))
        content["level"] = _table(np.where(some[:, None], way.level, np.nan))
        content["gamma"] = [_short(gamma) for gamma in np.where(some, way.length, np.nan)]
        content["stops"] = [int(i) if i >= 0 else None for i in np.where(some, way.stops, -1)]
    return content


def _rule(run: FoundRun) -> dict[str, Any] | None:
    """Return ISFL's solver and floors; None for schemes that draw otherwise."""
    sampling = run.config.get("scheme", {}).get("sampling", {})
    if not isinstance(sampling, Mapping) or "solver" not in sampling or "floor" not in sampling:
        return None
    floors = {"floor": float(sampling["floor"]), "target_floor": float(sampling.get("target_floor", 0.0))}
    return {"solver": sampling["solver"], "floors": floors}


def _floors(run: FoundRun, local: Array | None, shown: int) -> list[list[float | None]] | None:
    rule = _rule(run)
    if rule is None or local is None or run.target is None:
        return None
    return _table(lowest_probabilities(run.target, local, **rule["floors"])[:shown])


def _latest(run: FoundRun, number: int, shown: int, width: int) -> tuple[Array, list[int]]:
    """Return each client's last Lipschitz values before a round, and the round that measured them (0: none yet)."""
    values, measured = np.full((shown, width), np.nan), [0] * shown
    for line in run.probabilities:
        if line["round"] >= number:
            break
        for client, row in (line.get("lipschitz") or {}).items():
            k = int(client)
            if k < shown and len(row) == width:
                values[k], measured[k] = np.array(row, dtype=np.float64), line["round"]
    return values, measured


def _rows(by_client: Mapping[str, Any], shown: int, width: int) -> Array:
    values = np.full((shown, width), np.nan)
    for client, row in by_client.items():
        if int(client) < shown and len(row) == width:
            values[int(client)] = np.array(row, dtype=np.float64)
    return values


def _table(values: Array) -> list[list[float | None]]:
    return [[_short(value) for value in row] for row in values]


def _short(value: float) -> float | None:
    """Round to four digits: more than a picture can show."""
    return float(f"{value:.4g}") if np.isfinite(value) else None
