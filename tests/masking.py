"""Federations with secure aggregation for tests: five clients of different sizes, of which a test can lose some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from isfl.engines import LocalEngine
from isfl.federation import FederationState, RoundReport, Settings, run_round, start
from isfl.federation.introduction import introduce
from isfl.federation.round import training_task
from isfl.federation.secure.quantise import quantised
from isfl.federation.values import ClientUpdate, Refusal, SecureAnswer, SecureTask, TrainTask
from tests.worlds import engine_of, settings_of

COUNTS = ((30, 6, 2, 2), (2, 2, 20, 6), (10, 10, 10, 10), (1, 15, 1, 1), (5, 5, 25, 5))
SIZES = [sum(row) for row in COUNTS]
PRIVATE_ISFL = {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}

Answers = list[SecureAnswer | Refusal]
Change = Callable[[str, Answers], Answers]
"""(phase, answers) -> the answers that arrive."""


def secured(scheme: Any = "fedavg", secure: dict[str, Any] | None = None, **parts: Any) -> Settings:
    return settings_of(scheme, **{"target": {"kind": "uniform"}, "secure": secure or {}, **parts})


class Changing(LocalEngine):
    """An engine whose answers a test can change or lose, in every phase."""

    change: Change = staticmethod(lambda phase, answers: answers)
    lost: tuple[str, set[int]] = ("", set())
    """A phase, and the clients whose answers do not arrive in it."""
    tasks: list[SecureTask | TrainTask]
    answers: list[tuple[str, Any]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tasks, self.answers = [], []

    def exchange(self, tasks: Sequence[SecureTask]) -> Answers:
        self.tasks += tasks
        answers = self.change(tasks[0].phase, list(super().exchange(tasks)))
        self.answers += [(tasks[0].phase, answer) for answer in answers]
        return [answer for answer in answers if self.arrives(tasks[0].phase, answer.client)]

    def train(self, tasks: Sequence[TrainTask]) -> Sequence[ClientUpdate]:
        self.tasks += tasks
        answers = super().train(tasks)
        self.answers += [("train", answer) for answer in answers]
        return [answer for answer in answers if self.arrives("train", answer.client)]

    def arrives(self, phase: str, client: int) -> bool:
        return phase != self.lost[0] or client not in self.lost[1]


def changing(settings: Settings, **options: Any) -> Changing:
    engine = engine_of(settings, **{"counts": COUNTS, "kind": Changing, **options})
    assert isinstance(engine, Changing)
    return engine


def one_round(settings: Settings, engine: LocalEngine) -> tuple[FederationState, FederationState, RoundReport]:
    """Return the state before the first round, the state after it, and its report."""
    state = start(settings, engine)
    new, report = run_round(state, settings, engine)
    return state, new, report


def plain_updates(settings: Settings, **options: Any) -> list[ClientUpdate]:
    """Return what the clients would upload in the first round without masks."""
    plain = settings.model_copy(update={"secure": None})
    engine = engine_of(plain, **{"counts": COUNTS, **options})
    state, _ = introduce(start(plain, engine), range(len(COUNTS)), plain, engine)
    tasks = [training_task(state, k, None) for k in range(len(COUNTS))]
    return sorted(engine.train(tasks), key=lambda update: update.client)


def quantised_sum(
    settings: Settings, updates: Sequence[ClientUpdate], current: Any, weights: Sequence[float], largest: int
) -> np.ndarray:
    """Return the sum of the integers of these updates, without any mask."""
    secure = settings.secure
    assert secure is not None
    rows = [
        quantised(u.model, current, weight, u.train_loss or 0.0, u.num_samples / largest, secure)
        for u, weight in zip(updates, weights, strict=True)
    ]
    return np.stack(rows).sum(axis=0, dtype=np.uint32)
