"""Rules that the paper leaves open, in each of their interpretations."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.federation.client import train_client
from isfl.federation.objectives.moon import Moon, contrastive
from isfl.federation.sampling_rules import Draws, LocalData
from isfl.federation.sampling_rules.gradient_norm import GradientNorm
from isfl.federation.sampling_rules.target import TargetShares
from isfl.federation.values import ClientMemory, TrainTask, Weights
from isfl.randomness import Purpose, generator
from isfl.smoothness import sample_gradient_norms
from isfl.theory.arrays import Array
from tests.worlds import COUNTS, blobs, federate, network, same_bits, settings_of

# ---------------------------------------------------------------- p_j-IS with and without division by the own share

COUNTED, TARGET = np.array([30.0, 6.0, 4.0, 0.0]), np.array([0.1, 0.2, 0.3, 0.4])


def test_unnormalised_shares_are_the_local_mix_times_the_target() -> None:
    found = TargetShares(normalised=False).class_probabilities(COUNTED, TARGET)
    np.testing.assert_allclose(found, np.array([3.0, 1.2, 1.2, 0.0]) / 5.4)
    np.testing.assert_allclose(TargetShares().class_probabilities(COUNTED, TARGET), np.array([1, 2, 3, 0]) / 6)


def test_unnormalised_shares_of_a_uniform_target_are_the_local_mix() -> None:
    found = TargetShares(normalised=False).class_probabilities(COUNTED, np.full(4, 0.25))
    np.testing.assert_allclose(found, COUNTED / 40)


def test_a_client_without_any_class_of_the_target_draws_its_local_mix() -> None:
    only_the_last = np.array([0.0, 0.0, 0.0, 1.0])
    found = TargetShares(normalised=False).class_probabilities(COUNTED, only_the_last)
    np.testing.assert_allclose(found, COUNTED / 40)


def test_a_federation_draws_by_unnormalised_shares() -> None:
    given = {"kind": "given", "shares": [0.1, 0.2, 0.3, 0.4]}
    _, reports = federate(settings_of("pj-unnormalised", target=given, training={"rounds": 2}))
    for report in reports:
        for k, counts in enumerate(COUNTS):
            expected = np.array(counts) * TARGET
            np.testing.assert_allclose(report.probabilities[k], expected / expected.sum())


# ---------------------------------------------------------------- ISFedAvg, biased and unbiased

TASK_TARGET = np.full(4, 0.25)
STEP = 0.5


def trained(unbiased: bool | None, batch_size: int = 16, round: int = 2, seed: int = 0) -> Weights:
    """One client's model after one epoch of SGD with ISFedAvg's sampling."""
    sampling = {} if unbiased is None else {"sampling": {"unbiased": unbiased}}
    training = {"local_epochs": 1, "batch_size": batch_size, "optimizer": {"kind": "sgd", "lr": STEP}}
    settings = settings_of({"name": "isfedavg", **sampling}, seed, training=training)
    model = network()
    task = TrainTask(round, 0, {n: v.clone() for n, v in model.state_dict().items()}, TASK_TARGET, None)
    update, _ = train_client(model, task, blobs(COUNTS[0], seed=100), settings, ClientMemory())
    return update.model


def flat(weights: Weights) -> Tensor:
    return torch.cat([weights[name].flatten() for name, _ in network().named_parameters()]).double()


def sample_gradients() -> Tensor:
    """(N, P): the gradient of every sample, one backward pass each."""
    model, (inputs, labels) = network(), blobs(COUNTS[0], seed=100).everything()
    rows = []
    for x, y in zip(inputs, labels, strict=True):
        gradient = torch.autograd.grad(F.cross_entropy(model(x[None]), y[None]), list(model.parameters()))
        rows.append(torch.cat([part.flatten() for part in gradient]))
    return torch.stack(rows).double()


def updates_by_sample(unbiased: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Array, Tensor]:
    """The probability of every sample, and (N, P) what a step with that sample alone does to the model."""
    chosen, real = 0, GradientNorm.draws
    norms = sample_gradient_norms(network(), *blobs(COUNTS[0], seed=100).everything()).numpy()

    def this_one(rule: GradientNorm, local: LocalData) -> Draws:
        return dataclasses.replace(real(rule, local), indices=lambda epoch: np.array([chosen]))

    monkeypatch.setattr(GradientNorm, "draws", this_one)
    start, moved = flat(network().state_dict()), []
    for chosen in range(sum(COUNTS[0])):  # noqa: B007 (read by `this_one`)
        moved.append(flat(trained(unbiased)) - start)
    return norms / norms.sum(), torch.stack(moved)


def test_the_expected_step_of_unbiased_isfedavg_is_that_of_the_full_local_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In closed form: sum_i s_i w_i g_i = (1/N) sum_i g_i, with what training really did for each sample."""
    gradients = sample_gradients()
    shares, moved = updates_by_sample(True, monkeypatch)
    norms = gradients.norm(dim=1).numpy()
    np.testing.assert_allclose(shares, norms / norms.sum(), rtol=1e-4)
    expected = torch.from_numpy(shares) @ moved
    torch.testing.assert_close(expected, -STEP * gradients.mean(dim=0), rtol=1e-4, atol=1e-6)
    weights = 1.0 / (len(shares) * shares)
    torch.testing.assert_close(moved, -STEP * torch.from_numpy(weights)[:, None] * gradients, rtol=1e-3, atol=1e-6)


def test_the_expected_step_of_biased_isfedavg_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = sample_gradients()
    shares, moved = updates_by_sample(False, monkeypatch)
    torch.testing.assert_close(moved, -STEP * gradients, rtol=1e-3, atol=1e-6)
    expected = torch.from_numpy(shares) @ moved
    assert (expected + STEP * gradients.mean(dim=0)).norm() > 0.1 * STEP * gradients.mean(dim=0).norm()


def test_a_batch_is_the_mean_of_its_weighted_losses() -> None:
    """Forty samples in one step, against the gradients of each."""
    gradients = sample_gradients()
    norms = sample_gradient_norms(network(), *blobs(COUNTS[0], seed=100).everything()).numpy()
    shares = norms / norms.sum()
    drawn = generator(0, Purpose.DRAWING, round=2, client=0, epoch=0).choice(40, size=40, p=shares)
    weights = torch.from_numpy(1.0 / (40 * shares)).double()
    expected = -STEP * (weights[drawn, None] * gradients[drawn]).mean(dim=0)
    step = flat(trained(True, batch_size=40)) - flat(network().state_dict())
    torch.testing.assert_close(step, expected, rtol=1e-3, atol=1e-6)


def test_biased_isfedavg_is_the_default_and_a_plain_loop_to_the_last_bit() -> None:
    """Samples by gradient norm at the global model, then mean cross-entropy and SGD as torch does them."""
    model, data = network(), blobs(COUNTS[0], seed=100)
    norms = sample_gradient_norms(model, *data.everything()).numpy()
    drawn = generator(0, Purpose.DRAWING, round=2, client=0, epoch=0).choice(40, size=40, p=norms / norms.sum())
    optimizer = torch.optim.SGD(model.parameters(), lr=STEP)
    for at in range(0, 40, 16):
        inputs, labels = data.batch(drawn[at : at + 16])
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    for found in (trained(None), trained(False)):
        assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())
    assert not any(torch.equal(trained(True)[name], value) for name, value in model.state_dict().items())
    assert not GradientNorm().unbiased


def test_the_first_round_of_unbiased_isfedavg_is_that_of_the_biased_one() -> None:
    settings = [
        settings_of({"name": "isfedavg", "sampling": {"unbiased": unbiased}}, training={"rounds": rounds})
        for rounds in (1, 2)
        for unbiased in (False, True)
    ]
    first, same, second, other = (federate(each)[0] for each in settings)
    assert same_bits(first, same) and not same_bits(second, other)


# ---------------------------------------------------------------- MOON on logits


class Rotated(nn.Module):
    """Logits whose direction is a parameter, after a layer whose input is not."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.direction = nn.Linear(2, 2), nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.hidden(x)).sum(dim=1, keepdim=True) * self.direction


def term_of(moon: Moon, global_direction: list[float], previous_direction: list[float]) -> float:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, inputs = Rotated(), torch.rand(3, 2) + 1
    with torch.no_grad():
        model.hidden.weight.abs_()  # the sum above is positive
    weights = dict(model.state_dict())
    anchors = [{**weights, "direction": torch.tensor(d)} for d in (global_direction, previous_direction)]
    with contrastive(model, anchors[0], anchors[1], moon) as term:
        model(inputs)
        found = float(torch.as_tensor(term(inputs, inputs, inputs)).detach())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return found


def test_moon_on_logits_by_hand() -> None:
    """Cosines with (1, 1): 1 with itself, -1 with its opposite, 0 with (1, -1); tau = 0.5."""
    moon = Moon(mu=2.0, tau=0.5, representation="logits")
    assert term_of(moon, [1.0, 1.0], [-1.0, -1.0]) == pytest.approx(2.0 * np.log1p(np.exp(-4.0)), rel=1e-5)
    assert term_of(moon, [-3.0, -3.0], [5.0, 5.0]) == pytest.approx(2.0 * np.log1p(np.exp(4.0)), rel=1e-5)
    assert term_of(moon, [1.0, -1.0], [1.0, 1.0]) == pytest.approx(2.0 * np.log1p(np.exp(2.0)), rel=1e-5)


def test_moon_on_features_does_not_see_the_direction_of_logits() -> None:
    features = Moon(mu=2.0, tau=0.5)
    assert features.representation == "features"
    assert term_of(features, [1.0, 1.0], [-1.0, -1.0]) == pytest.approx(2.0 * np.log(2.0), rel=1e-5)


def test_moon_on_logits_trains_a_model_without_a_linear_layer() -> None:
    convolutional = nn.Sequential(nn.Unflatten(1, (6, 1)), nn.Conv1d(6, 4, 1), nn.Flatten())
    scheme = {"name": "moon", "objective": {"representation": "logits"}}
    state, reports = federate(settings_of(scheme, training={"rounds": 2}), model=convolutional)
    assert not any(report.refused for report in reports)
    assert all(torch.isfinite(value).all() for value in state.model.values())


def test_logits_and_features_train_different_models() -> None:
    states = [
        federate(settings_of({"name": "moon", "objective": {"representation": seen}}))[0]
        for seen in ("features", "logits")
    ]
    assert not same_bits(*states)
