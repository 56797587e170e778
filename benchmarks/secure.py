"""What secure aggregation costs one client and the server in a round: CPU seconds and bytes of each phase.

Bytes are those that Flower sends, as in the part `wire`. Clients, and the server's part for each of them, run in this
process, one after the other; nothing is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from benchmarks.wire import sent
from isfl.engines.flower.wire import encode
from isfl.federation.secure.client import answer_phase, masked_update
from isfl.federation.secure.server import (
    Group,
    mask_table,
    needed_shares,
    neighbour_graph,
    public_keys,
    sealed_rows,
    share_tasks,
    unmask_tasks,
    unmasked_sum,
)
from isfl.federation.secure.server import revealed as revealed_by
from isfl.federation.secure.tables import Phase
from isfl.federation.settings import Settings
from isfl.federation.values import ClientMemory, ClientUpdate, Masking, SecureAnswer, SecureTask, TrainTask

NEIGHBOURS, PARAMETERS, ROUND, SIZE = (10, 100), (100_000, 500_000), 1, 100
LOST = 0.1
"""Share of the clients that are lost after the exchange of shares, in the second measurement of the server."""

Value = TypeVar("Value")


def measure(quick: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    rows, notes = [], []
    for neighbours in NEIGHBOURS:
        for parameters in PARAMETERS:
            found, seconds = _one(neighbours, parameters, clients=3 if quick else 20)
            rows += [{"neighbours": neighbours, "parameters": f"{parameters:,}", **row} for row in found]
            notes.append(
                f"The server's CPU seconds per client, {neighbours} neighbours and {parameters:,} parameters: "
                f"{seconds[0]:.4f} to remove the masks if all stay, {seconds[1]:.4f} if {LOST:.0%} are lost after the "
                "exchange of shares."
            )
    return {
        "title": "Secure aggregation, one client and one round, all other clients as neighbours",
        "rows": rows,
        "notes": [
            "Without masks a client uploads its model: 4 bytes per parameter, as many as its masked integers have. "
            "CPU time of the row `training` is for quantising and masking alone; its bytes down are the keys that the "
            "task has beside the model.",
            *notes,
        ],
        "missed": [],
    }


def _one(neighbours: int, parameters: int, clients: int) -> tuple[list[dict[str, Any]], tuple[float, float]]:
    """Return the rows of one size, and the server's seconds per client without and with lost clients."""
    settings = Settings.model_validate({"scheme": "fedavg", "target": {"kind": "uniform"}, "secure": {}})
    assert settings.secure is not None
    everyone = range(neighbours + 1)
    memories = [ClientMemory() for _ in everyone]

    def asked(task: SecureTask) -> SecureAnswer:
        answer, memories[task.client] = answer_phase(task, settings, memories[task.client])
        return answer

    asked(SecureTask(ROUND, 0, Phase.KEYS, {}))  # imports the library
    tasks = [SecureTask(ROUND, k, Phase.KEYS, {}) for k in everyone]
    answers, seconds = _timed(tasks, asked)
    keys = {answer.client: public_keys(answer.client, answer.table) for answer in answers}
    rows = [_row("keys", seconds, tasks[0], answers[0])]

    graph = neighbour_graph(list(everyone), None, 0, ROUND)
    group = Group(ROUND, needed_shares(graph, settings.secure), keys, graph, {})
    tasks = share_tasks(group)
    answers, seconds = _timed(tasks, asked)
    rows.append(_row("shares", seconds, tasks[0], answers[0]))
    group = replace(group, sealed={a.client: sealed_rows(a.client, a.table, group) for a in answers})

    model = {"w": torch.zeros(parameters)}
    trained = {"w": torch.from_numpy(np.random.default_rng(0).normal(0, 0.01, parameters)).float()}

    def uploaded(client: int) -> ClientUpdate:
        task = TrainTask(ROUND, client, model, np.ones(1), masking=Masking(mask_table(client, group), 1.0, SIZE))
        update = ClientUpdate(client, SIZE, trained, 1.0, 0, 0, 0.0, 0.0)
        update, secret = masked_update(update, task, settings, memories[client].secret)
        memories[client] = replace(memories[client], secret=secret)
        return update

    chosen = list(everyone)[:clients]
    updates, seconds = _timed(chosen, uploaded)
    rows.append(_row("training", seconds, SecureTask(ROUND, 0, "training", mask_table(0, group)), updates[0]))
    for client in everyone:  # the others' masks are theirs to compute
        memories[client] = replace(memories[client], secret=replace(memories[client].secret, phase=Phase.UPLOAD))

    before = list(memories)
    tasks = unmask_tasks(group, frozenset(everyone))
    answers, seconds = _timed(tasks, asked)
    rows.append(_row("unmask", seconds, tasks[0], answers[0]))

    spent = [_server_seconds(group, frozenset(everyone), answers, parameters)]
    stayed = frozenset(list(everyone)[round(LOST * len(everyone)) :])
    memories[:] = before
    spent.append(_server_seconds(group, stayed, [asked(t) for t in unmask_tasks(group, stayed)], parameters))
    return rows, (spent[0], spent[1])


def _server_seconds(group: Group, stayed: frozenset[int], answers: list[SecureAnswer], parameters: int) -> float:
    uploads = {client: np.zeros(parameters + 2, dtype=np.uint32) for client in stayed}
    began = time.process_time()
    shares = {a.client: revealed_by(a.client, a.table, group, stayed) for a in answers}
    unmasked_sum(group, uploads, shares)
    return (time.process_time() - began) / len(group.keys)


def _timed(tasks: list[Any], work: Callable[[Any], Value]) -> tuple[list[Value], float]:
    """Return the results, and the CPU seconds of one of them."""
    began = time.process_time()
    results = [work(task) for task in tasks]
    return results, (time.process_time() - began) / len(tasks)


def _row(phase: str, seconds: float, task: object, answer: object) -> dict[str, Any]:
    return {
        "phase": phase,
        "CPU seconds of a client": f"{seconds:.4f}",
        "bytes down": f"{sent(encode(task)):,}",
        "bytes up": f"{sent(encode(answer)):,}",
    }
