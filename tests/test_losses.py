"""`isfl.lipschitz` measures any loss that gives one value per sample, and reads its data from a DataLoader."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from isfl import lipschitz
from isfl.smoothness import ESTIMATORS, Loss, plan_estimate, sample_gradient_norms
from isfl.theory.arrays import Array
from tests.zoo import MixesBatch, OwnParameter, Text, mlp, problem, resnet_like


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, label_smoothing=0.2, reduction="none")


def squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits - F.one_hot(labels, logits.shape[1])).square().sum(1)


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    loss = F.cross_entropy(logits, labels, reduction="none")
    return (1 - (-loss).exp()) ** 2 * loss


every_loss = pytest.mark.parametrize("loss", [smoothed, squared_error, focal])


def gradients(model: nn.Module, inputs: Tensor, labels: Tensor, loss: Loss) -> list[dict[str, Tensor]]:
    """Return the gradient of each sample by parameter name, from one backward pass per sample in double precision."""
    model = copy.deepcopy(model).double().eval()
    data = inputs.double() if inputs.is_floating_point() else inputs
    parameters = dict(model.named_parameters())
    rows = []
    for i in range(len(labels)):
        value = loss(model(data[i : i + 1]), labels[i : i + 1]).sum()
        found = torch.autograd.grad(value, list(parameters.values()), materialize_grads=True)
        rows.append(dict(zip(parameters, found, strict=True)))
    return rows


def oracle(method: str, local: list[nn.Module], center: nn.Module, inputs: Tensor, labels: Tensor, loss: Loss) -> Array:
    """Return the values that a method promises, from the gradients of single samples."""
    theirs = gradients(center, inputs, labels, loss)
    names = list(theirs[0])
    if method == "last-layer":
        names = [n for n in names if n.rpartition(".")[0] == names[-1].rpartition(".")[0]]
    values = np.full((len(local), 4), np.nan)
    for k, model in enumerate(local):
        parameters = zip(model.parameters(), center.parameters(), strict=True)
        gap = sum(float((a - b).double().square().sum().detach()) for a, b in parameters) ** 0.5
        ours = gradients(model, inputs, labels, loss)
        rows = torch.stack(
            [torch.cat([(a[n] - b[n]).flatten() for n in names]) for a, b in zip(ours, theirs, strict=True)]
        )
        for c in range(4):
            of_class = rows[labels == c]
            size = of_class.mean(0).norm() if method == "class-mean" else of_class.norm(dim=1).max()
            values[k, c] = float(size) / gap
    return values


@every_loss
@pytest.mark.parametrize("method", list(ESTIMATORS))
@pytest.mark.parametrize("make", [resnet_like, mlp, Text])
def test_every_estimator_is_right_for_any_loss(make: Callable[[], nn.Module], method: str, loss: Loss) -> None:
    local, center, inputs, labels = problem(make)
    assert plan_estimate(center, inputs, labels, 4, method=method, loss=loss).division.batched
    values = lipschitz(local, center, inputs, labels, 4, method=method, loss=loss)
    np.testing.assert_allclose(values, oracle(method, local, center, inputs, labels, loss), rtol=2e-4)
    assert not np.allclose(values, lipschitz(local, center, inputs, labels, 4, method=method), rtol=1e-2)


@every_loss
@pytest.mark.parametrize("make", [OwnParameter, MixesBatch])
def test_models_without_rules_are_measured_right_for_any_loss(make: Callable[[], nn.Module], loss: Loss) -> None:
    local, center, inputs, labels = problem(make)
    with pytest.warns(UserWarning, match="one at a time"):
        values = lipschitz(local, center, inputs, labels, 4, loss=loss)
    np.testing.assert_allclose(values, oracle("exact", local, center, inputs, labels, loss), rtol=2e-4)


@every_loss
def test_gradient_norms_of_any_loss(loss: Loss) -> None:
    _, center, inputs, labels = problem(resnet_like)
    expected = [
        sum(float(g.square().sum()) for g in row.values()) ** 0.5 for row in gradients(center, inputs, labels, loss)
    ]
    np.testing.assert_allclose(sample_gradient_norms(center, inputs, labels, loss=loss), expected, rtol=2e-4)


@pytest.mark.parametrize("method", list(ESTIMATORS))
def test_cross_entropy_under_another_name_gives_the_same_values(method: str) -> None:
    local, center, inputs, labels = problem(resnet_like)
    plain = nn.CrossEntropyLoss(reduction="none")
    values = lipschitz(local, center, inputs, labels, 4, method=method, loss=plain)
    np.testing.assert_allclose(values, lipschitz(local, center, inputs, labels, 4, method=method), rtol=1e-5)


@pytest.mark.parametrize("method", list(ESTIMATORS))
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (F.cross_entropy, r"one value per sample, of shape \(B,\) = \(2,\), found shape \(\): do not average"),
        (lambda z, y: squared_error(z, y).mean(0, keepdim=True), r"found shape \(1,\)"),
        (lambda z, y: F.one_hot(y, 4) * z, r"found shape \(2, 4\)"),
        (lambda z, y: float(F.cross_entropy(z.detach(), y)), "found float"),
        (lambda z, y: smoothed(z.detach(), y), "differentiable"),
        (lambda z, y: smoothed(z - z.mean(0), y), "mixes the samples"),
    ],
    ids=["mean", "kept mean", "matrix", "number", "detached", "mixing"],
)
def test_a_loss_that_is_not_per_sample_is_refused(method: str, loss: Loss, message: str) -> None:
    local, center, inputs, labels = problem(mlp)
    with pytest.raises(ValueError, match=message):
        lipschitz(local, center, inputs, labels, 4, method=method, loss=loss)


@pytest.mark.parametrize("method", list(ESTIMATORS))
def test_a_loader_gives_the_bits_of_its_tensors(method: str) -> None:
    local, center, inputs, labels = problem(resnet_like)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=7)
    expected = lipschitz(local, center, inputs, labels, num_classes=4, method=method)
    np.testing.assert_array_equal(lipschitz(local, center, loader, num_classes=4, method=method), expected)


def test_a_wrong_loader_is_named() -> None:
    local, center, inputs, labels = problem(mlp)
    with pytest.raises(ValueError, match=r"batch 0 of the DataLoader must be a pair of tensors"):
        lipschitz(local, center, DataLoader(TensorDataset(inputs)), num_classes=4)
    with pytest.raises(ValueError, match="gives no batch"):
        lipschitz(local, center, DataLoader(TensorDataset(inputs[:0], labels[:0])), num_classes=4)
    loader = DataLoader(TensorDataset(inputs, labels))
    with pytest.raises(ValueError, match="leave out the argument labels"):
        lipschitz(local, center, loader, labels, num_classes=4)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="num_classes"):
        lipschitz(local, center, loader)  # type: ignore[call-overload]
