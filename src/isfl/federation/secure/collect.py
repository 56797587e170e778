"""The phases of secure aggregation in order: from training tasks to the mean of the updates.

A client that is lost in a phase, or whose answer cannot be used, is named, and the round goes on without it. If too few
clients are left to remove the masks, nothing is aggregated and all are named.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from isfl.federation.admission import Admission, Secured, unsent_clients
from isfl.federation.interface import Engine
from isfl.federation.normalization import without
from isfl.federation.secure.quantise import MASKED, restored
from isfl.federation.secure.server import (
    Group,
    UnmaskError,
    mask_table,
    needed_shares,
    neighbour_graph,
    obstacle,
    public_keys,
    revealed,
    sealed_rows,
    share_tasks,
    unmask_tasks,
    unmasked_sum,
    with_enough_neighbours,
)
from isfl.federation.secure.settings import FEWEST, SecureAggregation
from isfl.federation.secure.tables import Phase, TableError
from isfl.federation.settings import Settings
from isfl.federation.upload import collect_trained
from isfl.federation.values import (
    ClientUpdate,
    FederationState,
    LateAnswer,
    Masking,
    Refusal,
    SecureTask,
    TrainTask,
    Weights,
)

Read = TypeVar("Read")


@dataclass
class Exchanges:
    """What went to the clients and came back, and who was lost on the way."""

    engine: Engine
    sent: list[object] = field(default_factory=list)
    received: list[object] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    """Clients that could not be asked, because they are still at work for a closed round."""

    def ask(self, tasks: Sequence[SecureTask], read: Callable[[int, Weights], Read]) -> dict[int, Read]:
        """Carry tasks of one phase to the clients; return what could be read of their answers, by client."""
        found: dict[int, Read] = {}
        if not tasks:
            return found
        asked, reasons = {task.client: task.phase for task in tasks}, dict[int, str]()
        answers = self.engine.exchange(tasks)
        unsent = unsent_clients(answers)
        self.sent += [task for task in tasks if task.client not in unsent]
        for answer in answers:
            if answer.client not in asked:
                reasons[answer.client] = "was not asked"
            elif isinstance(answer, Refusal):
                reasons[answer.client] = answer.reason
            elif isinstance(answer, LateAnswer):
                self.late.add(answer.client)
            elif answer.client in found:
                reasons[answer.client] = "answered twice"
            else:
                self.received.append(answer)
                try:
                    found[answer.client] = read(answer.client, answer.table)
                except TableError as error:
                    reasons[answer.client] = str(error)
        reasons |= dict.fromkeys(asked.keys() - found.keys() - reasons.keys() - self.late, "did not answer")
        self.refused |= {client: f"{tasks[0].phase}: {reasons[client]}" for client in sorted(reasons)}
        return {client: found[client] for client in sorted(found) if client not in reasons}

    def added_to(self, admission: Admission) -> Admission:
        """Return what came of the answers to training tasks together with those that were lost before and after."""
        refused = {**admission.refused, **self.refused}
        return replace(admission, refused=refused, late=sorted({*admission.late, *self.late}))


def collect_masked(state: FederationState, tasks: Sequence[TrainTask], settings: Settings, engine: Engine) -> Admission:
    """Let clients train and upload masked updates; return their mean in place of the single updates."""
    if not tasks:
        return Admission([], {}, [])
    exchanges = Exchanges(engine)
    group = _agreed_group(tasks, settings, exchanges)
    if len(group.keys) < FEWEST:
        few = f"secure: {len(group.keys)} clients share masks; at least {FEWEST} are needed"
        return _nothing(Admission([], {}, []), exchanges, tasks, few)
    training = _masking_tasks(tasks, group, state, settings)
    admission = collect_trained(state, training, settings, engine)
    exchanges.sent += [task for task in training if task.client not in admission.unsent]
    uploads = {update.client: _upload(update) for update in admission.admitted}
    uploaded = frozenset(uploads)
    if reason := obstacle(group, uploaded):
        return _nothing(admission, exchanges, tasks, f"secure: {reason}")
    shares = exchanges.ask(unmask_tasks(group, uploaded), lambda k, answer: revealed(k, answer, group, uploaded))
    began = time.perf_counter()
    try:
        total = unmasked_sum(group, uploads, shares)
    except UnmaskError as error:
        if error.refusal is not None:
            exchanges.refused.setdefault(error.client, f"unmask: {error.refusal}")
        return _nothing(admission, exchanges, tasks, f"secure: {error}")
    mean, clipped = _mean(total, training, admission.admitted, state, settings, engine)
    secured = Secured(mean, clipped, exchanges.sent, exchanges.received, time.perf_counter() - began)
    return replace(exchanges.added_to(admission), secured=secured)


def _agreed_group(tasks: Sequence[TrainTask], settings: Settings, exchanges: Exchanges) -> Group:
    """Let clients exchange keys and shares of their secrets; return those that can take part."""
    secure, round = _secure(settings), tasks[0].round
    keys = exchanges.ask([SecureTask(round, task.client, Phase.KEYS, {}) for task in tasks], public_keys)
    graph = neighbour_graph(sorted(keys), secure.neighbours, settings.seed, round)
    group = Group(round, needed_shares(graph, secure), keys, graph, {})
    if len(keys) < FEWEST:
        return group
    sealed = exchanges.ask(share_tasks(group), lambda client, answer: sealed_rows(client, answer, group))
    whole, left_out = with_enough_neighbours(replace(group, sealed=sealed).with_only(sorted(sealed)))
    exchanges.refused |= dict.fromkeys(left_out, "shares: too few of its neighbours are left")
    return whole


def _masking_tasks(
    tasks: Sequence[TrainTask], group: Group, state: FederationState, settings: Settings
) -> list[TrainTask]:
    """Return the training tasks of the group, with keys for the masks and the client's weight in the sum, at most 1."""
    sizes = state.sizes[state.rows([task.client for task in tasks])].tolist()
    weights = settings.scheme.aggregation.client_weights(sizes)
    return [
        replace(task, masking=Masking(mask_table(task.client, group), float(weight / weights.max()), max(sizes)))
        for task, weight in zip(tasks, weights, strict=True)
        if task.client in group.keys
    ]


def _mean(
    total: np.ndarray,
    training: Sequence[TrainTask],
    admitted: Sequence[ClientUpdate],
    state: FederationState,
    settings: Settings,
    engine: Engine,
) -> tuple[ClientUpdate, int]:
    """Return one update in the place of all, and how many values were clipped."""
    clients = {update.client for update in admitted}
    weight = sum(task.masking.weight or 0.0 for task in training if task.client in clients)
    loss_weight = sum(update.num_samples for update in admitted) / (training[0].masking.largest or 1)
    current, secure = without(state.model, engine.server.facts.statistics), _secure(settings)
    summed = restored(total, current, weight, loss_weight, secure)
    if summed.clipped:
        warnings.warn(
            f"secure.range = {secure.range:g} clips updates (clipped_values in the metrics); use a larger range",
            stacklevel=2,
        )
    loss = None if settings.protects_at_client else summed.train_loss
    return replace(admitted[0], model=summed.model, train_loss=loss), summed.clipped


def _nothing(admission: Admission, exchanges: Exchanges, tasks: Sequence[TrainTask], reason: str) -> Admission:
    """Return an admission of no update, in which every client is named."""
    admission = exchanges.added_to(admission)
    named = {task.client: reason for task in tasks if task.client not in admission.late}
    secured = Secured(None, 0, exchanges.sent, exchanges.received)
    return replace(admission, admitted=[], refused={**named, **admission.refused}, secured=secured)


def _upload(update: ClientUpdate) -> np.ndarray:
    return update.model[MASKED].numpy().view(np.uint32)


def _secure(settings: Settings) -> SecureAggregation:
    assert settings.secure is not None
    return settings.secure
