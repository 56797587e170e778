"""A client that lies about itself: what it gains is bounded, and the bounds are nearly reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from isfl.engines import LocalEngine
from isfl.federation.targets import GlobalTarget, NoisedTarget
from isfl.federation.values import ClientProfile, RenewalReport, RenewTask
from isfl.theory.arrays import Array
from isfl.theory.lies import (
    capped,
    capped_weight_bound,
    largest_target_shift,
    liar_weight,
    probability_shift_bound,
    target_shift_bound,
)
from isfl.theory.probabilities import sampling_probabilities
from tests.test_aggregation import rule_of
from tests.worlds import engine_of, federate, same_bits, settings_of


def random_counts(rng: np.random.Generator) -> Array:
    """Class counts of up to twenty clients, more or less skewed, of very different sizes."""
    clients, classes = rng.integers(2, 20), rng.integers(2, 12)
    mixes = rng.dirichlet(np.full(classes, rng.choice([0.2, 1.0, 5.0, 50.0])), size=clients)
    counts = np.floor(mixes * rng.integers(20, 2000, size=(clients, 1)))
    counts[:, 0] += 1
    return counts


def random_lie(rng: np.random.Generator, classes: int, total: float) -> Array:
    return total * rng.dirichlet(np.full(classes, rng.choice([0.05, 0.3, 1.0])))


def test_no_lie_about_counts_moves_the_target_further_than_the_bound() -> None:
    """Random lies stay below the best one, a single class, which comes close to the bound."""
    rng, tightness = np.random.default_rng(0), []
    for _ in range(400):
        counts = random_counts(rng)
        honest, others = counts[0], counts[1:].sum(axis=0)
        claimed = float(honest.sum() * rng.choice([0.01, 1.0, 10.0, 1000.0]))
        truth = (honest + others) / counts.sum()
        lie, most = largest_target_shift(others, honest, claimed)
        bound = target_shift_bound(others.sum(), honest.sum(), claimed)
        for _ in range(5):
            told = others + random_lie(rng, len(honest), claimed)
            assert np.abs(told / told.sum() - truth).sum() <= most + 1e-12
        reached = others + lie
        assert np.abs(reached / reached.sum() - truth).sum() == pytest.approx(most) and lie.sum() == claimed
        assert most <= bound + 1e-12
        tightness += [most / bound] if claimed >= honest.sum() else []
    assert min(tightness) > 0.5 and np.median(tightness) > 0.9


def test_no_lie_moves_an_honest_clients_probabilities_further_than_the_bound() -> None:
    rng, tightness = np.random.default_rng(1), []
    for _ in range(400):
        counts = random_counts(rng)
        honest, others = counts[0], counts[1:].sum(axis=0)
        target = (honest + others) / counts.sum()
        told = others + random_lie(rng, len(honest), honest.sum() * rng.choice([0.1, 1.0, 10.0]))
        lied = target + rng.choice([0.001, 0.1, 1.0]) * (told / told.sum() - target)
        shift, local = float(np.abs(lied - target).sum()), counts[1:] / counts[1:].sum(axis=1, keepdims=True)
        lipschitz = rng.lognormal(0.0, rng.choice([0.1, 0.7, 2.0]), size=local.shape)
        floor, target_floor = rng.choice([0.0, 0.05, 0.3]), rng.choice([0.0, 0.3])
        before, after = (
            sampling_probabilities(p, local, lipschitz, floor=floor, target_floor=target_floor) for p in (target, lied)
        )
        moved = np.abs(after - before).sum(axis=1)
        bound = probability_shift_bound(target, local, lipschitz, shift, floor=floor, target_floor=target_floor)
        assert (moved <= bound + 1e-9).all()
        assert (bound <= 2.0 * (1.0 - floor) + 1e-9).all()
        tightness += list((moved / bound)[(bound < 1.0) & (shift > 1e-9)])
    assert len(tightness) > 500 and np.median(tightness) > 0.2 and max(tightness) > 0.45


def test_a_share_that_falls_below_its_floor_makes_the_rule_jump() -> None:
    """Why no multiple of the shift bounds it: here the probabilities move hundreds of times as far as the target."""
    local, lipschitz = [0.5, 0.4, 0.1], [1.0, 2.0, 2.0]
    above, below = np.array([0.6499, 0.3, 0.0501]), np.array([0.6501, 0.3, 0.0499])
    q, other = (sampling_probabilities(p, local, lipschitz, floor=0.5) for p in (above, below))
    shift = float(np.abs(above - below).sum())
    assert shift == pytest.approx(0.0004) and np.abs(q - other).sum() > 400 * shift
    assert probability_shift_bound(above, [local], lipschitz, shift, floor=0.5) == pytest.approx(1.0)


@pytest.mark.parametrize("cap", [1.0, 3.0])
def test_capped_sizes_bound_the_weight_of_a_liar_whatever_it_claims(cap: float) -> None:
    rng, rule = np.random.default_rng(2), rule_of(rule="mean", cap=cap)
    for _ in range(200):
        sizes = rng.integers(1, 1000, size=rng.integers(3, 30)).astype(float)
        sizes[0] = sizes[0] * 10.0 ** rng.integers(0, 9)
        assert rule.client_weights([int(size) for size in sizes])[0] <= capped_weight_bound(len(sizes), cap) + 1e-12
    # Reached up to a factor of two: half of the clients at the median, the others empty.
    worst = capped(np.array([1e9, *[1.0] * 5, *[0.0] * 4]), cap)
    assert worst[0] / worst.sum() == pytest.approx(cap / (cap + 5)) and capped_weight_bound(10, cap) == cap / (cap + 4)
    equal = rule.client_weights([10**9, *[50] * 9])
    assert equal[0] == pytest.approx(liar_weight(9 * 50, cap * 50))


def profiles(counts: Array) -> list[ClientProfile]:
    return [ClientProfile(k, int(row.sum()), row) for k, row in enumerate(counts)]


def test_a_cap_keeps_one_client_from_deciding_the_target_and_changes_nothing_for_equals() -> None:
    honest = np.array([[50.0, 50.0, 0.0], [0.0, 80.0, 20.0], [30.0, 30.0, 40.0], [100.0, 0.0, 0.0]])
    lied = honest.copy()
    lied[0] = [0.0, 0.0, 1e9]
    free, limited = GlobalTarget(), GlobalTarget(cap=1.0)
    np.testing.assert_array_equal(limited.client_shares(profiles(honest), 3), free.client_shares(profiles(honest), 3))
    assert free.client_shares(profiles(lied), 3)[0, 2] > 0.999
    np.testing.assert_allclose(limited.client_shares(profiles(lied), 3)[0], [130 / 400, 110 / 400, 160 / 400])
    noised = NoisedTarget(epsilon=1.0, cap=1.0)
    lied[0] = [-1e9, 0.0, 0.0]  # noised counts may be negative: a lie can also erase a class
    np.testing.assert_allclose(noised.client_shares(profiles(lied), 3)[0], [30 / 200, 110 / 200, 60 / 200])
    assert NoisedTarget(epsilon=1.0).client_shares(profiles(lied), 3)[0, 0] == 0.0


class Liar(LocalEngine):
    """Client 0 lies about the Lipschitz values it has measured."""

    def renew(self, tasks: Sequence[RenewTask]) -> Sequence[RenewalReport]:
        reports = super().renew(tasks)
        return [replace(r, lipschitz=np.array([1e9, 0.0, 0.0, 0.0])) if r.client == 0 else r for r in reports]


def test_a_lie_about_lipschitz_values_changes_nobodys_probabilities_or_model() -> None:
    """Each client solves with its own values: a false report reaches the diagnostics alone."""
    scheme = {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}}
    settings = settings_of(scheme, target={"kind": "uniform"})
    (honest, before), (lied, after) = (
        federate(settings, engine_of(settings, kind=kind)) for kind in (LocalEngine, Liar)
    )
    assert same_bits(honest, lied)
    for one, other in zip(before, after, strict=True):
        assert all(np.array_equal(one.probabilities[k], other.probabilities[k]) for k in range(3))
        assert one.rho != other.rho
