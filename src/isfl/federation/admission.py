"""Clients are never trusted: an update that cannot be right is refused, named and counted, and the round goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from isfl.federation.interface import ModelFacts
from isfl.federation.normalization import without
from isfl.federation.secure.quantise import expected_upload
from isfl.federation.settings import Settings
from isfl.federation.stragglers import Arrival, closing
from isfl.federation.values import (
    ClientProfile,
    ClientUpdate,
    FederationState,
    LateAnswer,
    Refusal,
    RenewalReport,
    TrainAnswer,
    TrainTask,
    Weights,
)
from isfl.theory.arrays import Array

MOST_COST = 1e30
"""Larger than any number of seconds or gradients, and small enough to be added up."""


@dataclass(frozen=True)
class Secured:
    """What the server learns of masked updates, and the messages that it took."""

    mean: ClientUpdate | None
    """One update in the place of all; None if the masks could not be removed."""
    clipped: int
    """Values of all updates beyond `secure.range`."""
    sent: Sequence[object]
    """All tasks of the round, those of training included."""
    received: Sequence[object]
    """The answers, without those to training tasks."""
    seconds: float = 0.0
    """That the server took to remove the masks."""


@dataclass(frozen=True)
class Admission:
    """What came of the answers of a round."""

    admitted: Sequence[ClientUpdate]
    """The updates to aggregate, ordered by client."""
    refused: Mapping[int, str]
    """Why other clients' answers are not used."""
    counted: Sequence[ClientUpdate]
    """All updates whose costs can be added up, admitted or not: they were paid for."""
    late: Sequence[int] = ()
    """The clients whose answers were not there when the round closed, ordered."""
    simulated_seconds: float | None = None
    """From the tasks to that moment, by the simulated latencies; None without them."""
    unsent: frozenset[int] = frozenset()
    """The clients whose training tasks were not sent."""
    secured: Secured | None = None
    """With `secure`: what can be seen of the admitted updates, whose models are masked."""

    @property
    def visible(self) -> Sequence[ClientUpdate]:
        """The updates that can be combined: the admitted ones, or the mean of masked ones in their place."""
        if self.secured is None:
            return self.admitted
        return [self.secured.mean] if self.admitted and self.secured.mean is not None else []

    def refusing(self, reasons: Mapping[int, str]) -> Admission:
        """Return the same answers without these clients' updates among the admitted ones."""
        admitted = [update for update in self.admitted if update.client not in reasons]
        return replace(self, admitted=admitted, refused={**self.refused, **reasons}) if reasons else self


def admit(
    tasks: Sequence[TrainTask],
    answers: Sequence[TrainAnswer],
    state: FederationState,
    settings: Settings,
    facts: ModelFacts,
) -> Admission:
    """Decide which answers can be aggregated; each client is heard once."""
    rows = state.rows([task.client for task in tasks])
    sizes = {task.client: int(size) for task, size in zip(tasks, state.sizes[rows], strict=True)}
    refusal = update_check(state.model, sizes, settings, facts)
    asked = {task.client for task in tasks}
    ordered = sorted(answers, key=lambda answer: answer.client)
    late = {answer.client for answer in ordered if isinstance(answer, LateAnswer) and answer.round == state.round + 1}
    came = [answer.update if isinstance(answer, LateAnswer) else answer for answer in ordered]
    admitted: dict[int, ClientUpdate] = {}
    refused: dict[int, str] = {}
    for answer in ordered:
        if isinstance(answer, LateAnswer):
            continue
        if answer.client not in asked:
            refused[answer.client] = "was not asked"
        elif isinstance(answer, Refusal):
            refused[answer.client] = answer.reason
        elif answer.client in admitted:
            refused[answer.client] = "answered twice"
        elif settings.secure is not None and not answer.model:
            refused[answer.client] = "withdrew its update, which is not finite"
        elif reason := refusal(answer):
            refused[answer.client] = reason
        else:
            admitted[answer.client] = answer
    for client in sorted(asked - admitted.keys() - refused.keys() - late):
        refused[client] = "did not answer"
    return Admission(
        admitted=[update for client, update in admitted.items() if client not in refused],
        refused=refused,
        counted=[answer for answer in came if isinstance(answer, ClientUpdate) and cost_refusal(answer) is None],
        late=sorted(late),
        unsent=unsent_clients(answers),
    )


def unsent_clients(answers: Iterable[object]) -> frozenset[int]:
    """Return the clients whose tasks the engine did not send."""
    return frozenset(
        answer.client for answer in answers if isinstance(answer, Refusal | LateAnswer) and not answer.sent
    )


def close_round(admission: Admission, arrived: Mapping[int, Arrival], needed: int, settings: Settings) -> Admission:
    """Leave out what came after the round closed, by the simulated arrivals of all clients that were asked."""
    stragglers = settings.stragglers
    if stragglers is None or not arrived:
        return admission
    found = closing(arrived, {update.client for update in admission.admitted}, needed, stragglers.deadline)
    return replace(
        admission,
        admitted=[update for update in admission.admitted if update.client not in found.late],
        refused={client: reason for client, reason in admission.refused.items() if client not in found.late},
        late=sorted(found.late),
        simulated_seconds=None if stragglers.simulated is None else found.seconds,
    )


def update_check(
    current: Weights, sizes: Mapping[int, int], settings: Settings, facts: ModelFacts
) -> Callable[[ClientUpdate], str | None]:
    """Return the function that says why an update of this round must not be aggregated; `sizes`: as announced."""
    epochs = settings.training.local_epochs if settings.diagnostics.bound else None
    expected = without(current, facts.statistics)
    expected = expected if settings.secure is None else expected_upload(expected)
    sends_loss = not settings.protects_at_client and settings.secure is None
    return lambda update: update_refusal(update, expected, sizes[update.client], epochs, sends_loss)


def update_refusal(
    update: ClientUpdate, expected: Weights, num_samples: int, epochs: int | None, sends_loss: bool
) -> str | None:
    """Why this update must not be aggregated, or None. `expected` has the names, shapes and types of a good model.

    `epochs` is how many gradient norms and variances were asked for, None if none were.
    """
    if missing := sorted(expected.keys() - update.model.keys()):
        return f"lacks {missing[0]!r}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
    if extra := sorted(update.model.keys() - expected.keys()):
        return f"brings the unknown {extra[0]!r}"
    for name, value in update.model.items():
        if value.shape != expected[name].shape:
            return f"{name!r} has shape {tuple(value.shape)} instead of {tuple(expected[name].shape)}"
        if value.dtype != expected[name].dtype:
            return f"{name!r} has type {value.dtype} instead of {expected[name].dtype}"
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            return f"{name!r} is not finite"
    if update.num_samples != num_samples:
        return f"claims {update.num_samples} samples where it announced {num_samples}"
    loss = update.train_loss
    if (loss is None) is sends_loss or (loss is not None and not abs(loss) < MOST_COST):
        return f"reports a training loss of {update.train_loss}"
    for name, values in (("norms", update.gradient_norm), ("variances", update.gradient_variance)):
        if epochs is None and values is not None:
            return f"reports gradient {name} that it was not asked for"
        if epochs is not None and (values is None or not _measurements(values, epochs)):
            return f"reports gradient {name} that are not {epochs} finite numbers of at least 0"
    return cost_refusal(update)


def cost_refusal(answer: ClientUpdate | RenewalReport) -> str | None:
    """Why what it says of its own cost cannot be added up, or None."""
    costs: tuple[float, ...]
    if isinstance(answer, ClientUpdate):
        costs = (
            answer.training_evaluations,
            answer.sampling_evaluations,
            answer.training_seconds,
            answer.sampling_seconds,
            answer.diagnostic_seconds,
        )
    else:
        costs = (answer.dropped, answer.evaluations, answer.seconds)
    fine = all(0 <= cost < MOST_COST for cost in costs)
    return None if fine else f"reports costs that cannot be ({', '.join(f'{cost:g}' for cost in costs)})"


def renewal_refusal(report: RenewalReport, num_classes: int, secure: bool) -> str | None:
    """Why this report of private ISFL is not counted, or None. Unknown values (NaN) are fine.

    `secure`: Lipschitz values stay at the client.
    """
    if (report.lipschitz is None) is not secure:
        return "reports Lipschitz values that it was not asked for" if secure else "reports no Lipschitz values"
    if report.lipschitz is None:
        return cost_refusal(report)
    known = np.where(np.isnan(report.lipschitz), 0.0, report.lipschitz)
    if not _measurements(known, num_classes):
        return f"reports Lipschitz values that are not {num_classes} finite numbers of at least 0"
    return cost_refusal(report)


def _measurements(values: Array, count: int) -> bool:
    return np.shape(values) == (count,) and bool((np.isfinite(values) & (values >= 0)).all())


def profile_refusal(profile: ClientProfile, num_classes: int, exact: bool, hidden: bool) -> str | None:
    """Why this client cannot take part at all, or None. `hidden`: class counts stay at the clients."""
    if profile.num_samples < 1:
        return f"has {profile.num_samples} samples"
    counts = profile.class_counts
    if counts is None:
        return None if hidden else "does not tell its class counts"
    if counts.shape != (num_classes,) or not np.isfinite(counts).all():
        return f"has class counts of shape {counts.shape} with {int((~np.isfinite(counts)).sum())} not finite"
    if exact and ((counts < 0).any() or (counts != np.floor(counts)).any() or counts.sum() != profile.num_samples):
        return f"has class counts that do not add up to its {profile.num_samples} samples"
    return None
