"""Moments of class gradients against one backward pass per sample."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.models import ModelSettings, build_model
from isfl.smoothness import gradient_moments
from isfl.theory.bias_variance import Moments, estimate_moments
from tests.worlds import blobs, network


def oracle(model: nn.Module, inputs: Tensor, labels: Tensor, classes: int) -> Moments | None:
    """One backward pass per sample, everything kept, moments by their definition."""
    model.eval()
    rows = []
    for x, y in zip(inputs, labels, strict=True):
        found = torch.autograd.grad(F.cross_entropy(model(x[None]), y[None]), list(model.parameters()))
        rows.append(torch.cat([part.flatten() for part in found]).double().numpy())
    gradients, y = np.stack(rows), labels.numpy()
    counts = np.bincount(y, minlength=classes).astype(np.float64)
    means = np.stack([gradients[y == i].mean(axis=0) if counts[i] else 0 * gradients[0] for i in range(classes)])
    squares = np.array([(gradients[y == i] ** 2).sum(axis=1).mean() if counts[i] else 0.0 for i in range(classes)])
    return estimate_moments(means @ means.T, squares, counts)


def assert_close(found: Moments | None, truth: Moments | None) -> None:
    assert found is not None and truth is not None
    np.testing.assert_allclose(found.gram, truth.gram, rtol=1e-3, atol=1e-5 * np.abs(truth.gram).max())
    np.testing.assert_allclose(found.variance, truth.variance, rtol=1e-3, atol=1e-7)


def images(count: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 3, 32, 32, generator=generator)
    return inputs, torch.arange(count) % classes


@pytest.mark.parametrize(("memory", "passes"), [(1 << 28, 1), (1 << 11, 2)])
@pytest.mark.parametrize("batchnorm", [False, True])
def test_moments_are_those_of_one_backward_pass_per_sample(memory: int, passes: int, batchnorm: bool) -> None:
    model, (inputs, labels) = network(batchnorm, dropout=0.5), blobs((9, 5, 3, 2), seed=1).everything()
    model.train()
    estimate = gradient_moments(model, inputs, labels, 4, memory=memory)
    assert model.training and all(p.grad is None for p in model.parameters())
    assert_close(estimate.moments, oracle(model, inputs, labels, 4))
    assert (estimate.gradient_evaluations, estimate.dropped) == (passes * len(labels), 0)


def test_the_moments_of_a_resnet() -> None:
    model, (inputs, labels) = build_model(ModelSettings(name="resnet8", width=0.25), (3, 32, 32), 10, 0), images(30, 10)
    estimate = gradient_moments(model, inputs, labels, 10)
    assert estimate.gradient_evaluations == 30
    assert_close(estimate.moments, oracle(model, inputs, labels, 10))


class Scaled(nn.Module):
    """A layer without a batched rule."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.out = nn.Parameter(torch.full((6,), 1.5)), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(torch.tanh(x * self.scale))
        return logits


def test_a_model_without_batched_rules_takes_the_slow_way() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Scaled()
    inputs, labels = blobs((4, 4, 4, 4), seed=1).everything()
    with pytest.warns(UserWarning, match="one at a time"):
        estimate = gradient_moments(model, inputs, labels, 4)
    assert_close(estimate.moments, oracle(model, inputs, labels, 4))


def test_samples_without_a_finite_gradient_are_left_out_and_counted() -> None:
    model, (inputs, labels) = network(), blobs((5, 5, 5, 5), seed=1).everything()
    spoiled = inputs.clone()
    spoiled[[3, 12]] = torch.inf
    estimate = gradient_moments(model, spoiled, labels, 4)
    kept = torch.tensor([i for i in range(20) if i not in (3, 12)])
    assert_close(estimate.moments, gradient_moments(model, inputs[kept], labels[kept], 4).moments)
    assert (estimate.dropped, estimate.gradient_evaluations) == (2, 20 + 18)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nothing = gradient_moments(model, torch.full_like(inputs, torch.nan), labels, 4)
    assert (nothing.moments, nothing.dropped) == (None, 20)


def test_a_class_without_samples_counts_as_average() -> None:
    model, (inputs, labels) = network(), blobs((6, 6, 6, 0), seed=1).everything()
    found = gradient_moments(model, inputs, labels, 4).moments
    assert found is not None
    assert found.variance[3] == pytest.approx(found.variance[:3].mean())
    assert np.isfinite(found.gram).all()


def test_labels_out_of_range_are_named() -> None:
    inputs, labels = blobs((2, 2, 2, 2), seed=1).everything()
    with pytest.raises(ValueError, match="labels"):
        gradient_moments(network(), inputs, labels + 1, 4)
