"""The theory in running federations: Lemma 1 and Theorem 1, measured against their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from isfl.engines import LocalEngine
from isfl.federation import distances
from isfl.federation.movement import squared_distances
from isfl.federation.training import steps_per_epoch
from isfl.federation.values import ClientUpdate
from isfl.smoothness import squared_gradient
from tests.worlds import CLASSES, Meddling, blobs, engine_of, federate, network, same_bits, settings_of

SGD = {"optimizer": {"kind": "sgd", "lr": 0.02}, "batch_size": 5, "local_epochs": 3, "rounds": 4}
"""Plain gradient steps, eight per epoch, small enough for the theorem's condition."""


@pytest.mark.parametrize("scheme", ["fedavg", "isfl", "uniform-is", "fedprox", "isfedavg"])
def test_with_plain_sgd_lemma_1_and_the_theorem_hold(scheme: str) -> None:
    _, reports = federate(settings_of(scheme, training=SGD, diagnostics={"bound": True}))
    for report in reports:
        assert report.drift is not None and report.bound is not None and report.gradient_square is not None
        assert report.bound.step_condition <= 1
        assert 0 < report.drift.measured <= report.drift.bound
        assert 0 < report.gradient_square <= report.bound.total


def test_lemma_1_does_not_hold_with_epochs_in_place_of_steps() -> None:
    """The bound would be smaller by the square of the steps in an epoch; clients with one class each drift further."""
    settings = settings_of("fedavg", training=SGD, diagnostics={"bound": True})
    _, reports = federate(settings, engine_of(settings, counts=((40, 0, 0, 0), (0, 40, 0, 0), (0, 0, 20, 20))))
    for report in reports:
        assert report.drift is not None
        assert report.drift.bound / 8**2 < report.drift.measured <= report.drift.bound


def test_the_bound_is_loose_by_at_least_twice_the_number_of_classes() -> None:
    """`psi >= 2 C G^2` alone: for any `q` the right side is larger than the left by that factor."""
    _, reports = federate(settings_of("isfl", training=SGD, diagnostics={"bound": True}))
    for report in reports:
        assert report.bound is not None and report.gradient_square is not None
        assert report.bound.psi >= 2 * CLASSES * report.gradient_square


def test_the_drift_is_that_of_the_models() -> None:
    """Clients of unequal size, so that steps and weights differ: measured by hand from the models that came back."""
    seen: list[ClientUpdate] = []

    class Watched(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            seen.extend(sorted(updates, key=lambda u: u.client))
            return updates

    settings = settings_of("fedavg", training={**SGD, "rounds": 1}, diagnostics={"bound": True})
    counts = ((30, 6, 2, 2), (2, 2, 3, 6), (10, 10, 10, 50))
    _, (report,) = federate(settings, engine_of(settings, counts=counts, kind=Watched))
    sizes = np.array([40.0, 13.0, 80.0])
    pi = sizes / sizes.sum()
    flat = [torch.cat([value.double().flatten() for value in update.model.values()]).numpy() for update in seen]
    mean = sum(w * f for w, f in zip(pi, flat, strict=True))
    drifts = np.array([((f - mean) ** 2).sum() for f in flat])
    found = squared_distances(seen, network().state_dict(), pi, frozenset(seen[0].model))
    np.testing.assert_allclose(found.drift, drifts, rtol=1e-6)
    assert report.drift is not None and min(abs(report.drift.measured - drifts)) < 1e-6
    assert [steps_per_epoch(int(size), settings.training) for size in sizes] == [8, 3, 16]


@pytest.mark.parametrize("block", [3, distances.BLOCK])
def test_every_client_reports_how_far_it_moved_and_drifted(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured by hand from the models that came back; no diagnostics have to be asked for."""
    monkeypatch.setattr(distances, "BLOCK", block)
    seen: list[ClientUpdate] = []

    class Watched(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            seen[:] = sorted(updates, key=lambda u: u.client)
            return updates

    settings = settings_of("fedavg", training={**SGD, "rounds": 1, "participation": 0.5})
    counts = ((30, 6, 2, 2), (2, 2, 3, 6), (10, 10, 10, 50))
    _, (report,) = federate(settings, engine_of(settings, counts=counts, kind=Watched))
    assert len(seen) == 2
    vector = torch.nn.utils.parameters_to_vector
    start = vector(network().parameters()).detach().double()
    ends = [torch.cat([value.double().flatten() for value in update.model.values()]) for update in seen]
    total = sum(update.num_samples for update in seen)
    mean = sum((update.num_samples / total) * end for update, end in zip(seen, ends, strict=True))
    for update, end in zip(seen, ends, strict=True):
        assert report.update_norm[update.client] == pytest.approx(float((end - start).norm()), rel=1e-9)
        assert report.client_drift[update.client] == pytest.approx(float((end - mean).norm()), rel=1e-9)
    assert report.update_norm.keys() == report.client_drift.keys() == set(report.participants)


def test_clients_with_initial_models_of_their_own_have_not_moved_from_a_common_one() -> None:
    settings = settings_of("fedavg", training={"rounds": 2, "initial_models": "independent"})
    _, (first, second) = federate(settings)
    assert first.update_norm == first.client_drift == {}
    assert len(second.update_norm) == len(second.client_drift) == 3


def test_the_gradient_square_is_that_of_the_expected_loss() -> None:
    model, data, target = network(), blobs((8, 3, 0, 5), seed=1), np.array([0.4, 0.3, 0.2, 0.1])
    inputs, labels = data.everything()
    losses = [F.cross_entropy(model(inputs[labels == i]), labels[labels == i]) for i in (0, 1, 3)]
    shares = target[[0, 1, 3]] / target[[0, 1, 3]].sum()  # a class without samples is left out
    grads = torch.autograd.grad(sum(p * loss for p, loss in zip(shares, losses, strict=True)), list(model.parameters()))
    expected = sum(float((g.double() ** 2).sum()) for g in grads)
    assert squared_gradient(model, inputs, labels, target) == pytest.approx(expected, rel=1e-5)


def test_rho_of_the_rounds_is_ordered_and_the_bound_has_all_its_terms() -> None:
    _, reports = federate(settings_of("isfl", diagnostics={"bound": True}))
    for report in reports:
        assert report.rho.minimum is not None and report.rho.paper is not None
        assert report.rho.minimum <= report.rho.paper * (1 + 1e-9)
        bound = report.bound
        assert bound is not None and bound.phi.shape == (3,)
        assert min(bound.initial, bound.psi, bound.sampling) > 0
        assert bound.total == pytest.approx(bound.initial + bound.psi + bound.sampling)


def test_only_requested_diagnostics_are_measured_and_sent() -> None:
    seen: list[ClientUpdate] = []

    class Watched(Meddling):
        def meddle(self, updates: list[ClientUpdate]) -> list[ClientUpdate]:
            seen.extend(updates)
            return updates

    settings = settings_of("isfl", training={"rounds": 1})
    _, (report,) = federate(settings, engine_of(settings, kind=Watched))
    assert all(u.gradient_norm is None and u.gradient_variance is None and u.diagnostic_seconds == 0 for u in seen)
    assert (report.drift, report.gradient_square, report.bound) == (None, None, None)
    assert report.gradient_evaluations.diagnostics == 0 and report.seconds.diagnostics == 0


def test_the_cost_of_diagnostics_is_counted_separately_and_changes_no_bit() -> None:
    plain = federate(settings_of("isfl"))
    watched = federate(settings_of("isfl", diagnostics={"bound": True}))
    assert same_bits(plain[0], watched[0])
    for without, with_bound in zip(plain[1], watched[1], strict=True):
        assert with_bound.gradient_evaluations.sampling == without.gradient_evaluations.sampling
        assert with_bound.gradient_evaluations.training == without.gradient_evaluations.training
        assert with_bound.gradient_evaluations.diagnostics == 32  # one pass over the public set
        assert with_bound.seconds.diagnostics > 0
    _, fedavg = federate(settings_of("fedavg", diagnostics={"bound": True}))
    assert fedavg[-1].gradient_evaluations.diagnostics == 4 * 32 + 32  # and its Lipschitz values


def test_independent_initial_models_have_no_drift_in_the_first_round() -> None:
    training: dict[str, Any] = {**SGD, "initial_models": "independent"}
    _, reports = federate(settings_of("isfl", training=training, diagnostics={"bound": True}))
    assert reports[0].drift is None and reports[0].bound is None and reports[0].gradient_square is not None
    assert all(report.drift is not None and report.bound is not None for report in reports[1:])


def test_the_learning_rate_of_the_bound_is_that_of_the_round() -> None:
    training: dict[str, Any] = {**SGD, "schedule": {"kind": "step", "every": 2, "factor": 0.1}}
    settings = settings_of("isfl", training=training, diagnostics={"bound": True})
    _, reports = federate(settings)
    for report, eta in zip(reports, (0.02, 0.02, 0.002, 0.002), strict=True):
        assert report.bound is not None and report.drift is not None
        assert report.drift.measured <= report.drift.bound
        largest = max(float(np.nanmax(row)) for row in report.lipschitz.values())
        assert report.bound.step_condition <= eta * largest * 1.0001


def test_a_report_of_a_private_deployment_has_no_bound_because_rho_is_unknown() -> None:
    """As on a server that cannot observe any client."""

    class Blind(LocalEngine):
        def observe(self, tasks: Any) -> dict[int, Any]:
            return {}

    scheme = {"name": "isfl", "sampling": {"where": "client"}}
    settings = settings_of(scheme, target={"kind": "uniform"}, training=SGD, diagnostics={"bound": True})
    _, reports = federate(settings, engine_of(settings, kind=Blind))
    for report in reports:
        assert report.bound is None and report.rho.used is None
        assert report.drift is not None and report.gradient_square is not None


def test_a_single_client_has_no_drift() -> None:
    training: dict[str, Any] = {**SGD, "participation": 0.34, "rounds": 1}
    _, (report,) = federate(settings_of("fedavg", training=training, diagnostics={"bound": True}))
    assert report.drift is not None and report.drift.measured == 0.0
