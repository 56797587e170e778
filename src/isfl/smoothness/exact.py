"""Estimator `exact`: the paper's definition, from the gradient difference of every single sample.

`L_{k,i} = max over (x,y) in D_L with y=i of ||grad l(x,y; theta^k) - grad l(x,y; theta)|| / ||theta^k - theta||`

Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for Non-i.i.d. Data with Local Importance
Sampling", IEEE Internet of Things Journal, 2024: the empirical value of the gradient-Lipschitz assumption. The global
model's gradients of a part are computed once and serve all clients; the local models are compared one at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from isfl.smoothness.batched import UnseenUseError, batched, known
from isfl.smoothness.gradients import Gradient, Kept, kept, squared_differences, squared_norms
from isfl.smoothness.models import bytes_of_gradient, bytes_of_pass, evaluation_mode
from isfl.smoothness.outer import PIECE
from isfl.smoothness.per_sample import believed, one_by_one
from isfl.smoothness.plan import Division, Estimator, Measurements, fitting, slices
from isfl.smoothness.samples import Part, Samples

Reference = dict[str, Kept]
Single = Callable[[int], dict[str, Tensor]]
"""From the index of a sample to the global model's gradient there."""


def divide(model: nn.Module, samples: Samples, memory: int) -> Division:
    """Choose parts for which the global model's gradients and one local pass fit into memory."""
    trusted = believed(model, samples)
    if not trusted:
        # The global model's gradient for every sample, a local model's with its pass for one (reparametrised weights
        # take copies).
        each = bytes_of_gradient(model)
        size = fitting(memory - 8 * each - bytes_of_pass(model, samples.inputs), each)
        return Division(slices(len(samples), size), batched=False)
    reference = _reference(model, samples.single(0))
    # None if this sample takes another path through the model than the samples that were checked.
    waiting = bytes_of_gradient(model) if reference is None else sum(g.nbytes for g in reference.values())
    size = fitting(memory - 2 * PIECE, waiting + bytes_of_pass(model, samples.inputs))
    return Division(slices(len(samples), size))


def measure(
    division: Division, part: Part, local_models: Sequence[nn.Module], global_model: nn.Module, samples: Samples
) -> Measurements:
    """Return one squared difference per local model and sample."""
    samples = samples.part(part)
    reference: Reference | None = None
    singles: list[dict[str, Tensor]] = []
    if division.batched:
        reference = _reference(global_model, samples)
    else:
        singles = [_single(global_model, samples, i) for i in range(len(samples))]

    def theirs(i: int) -> dict[str, Tensor]:
        # Where the batched rules fail unexpectedly, the parts are too large to keep these gradients.
        return singles[i] if singles else _single(global_model, samples, i)

    squares = np.zeros((len(local_models), len(samples)))
    for k in range(len(local_models)):
        model = local_models[k]
        with evaluation_mode(model):
            square = None
            if reference is not None and _alike(model, global_model):
                square = _fast(model, reference, samples)
            squares[k] = (_slow(model, theirs, samples) if square is None else square).numpy()
    return Measurements(squares, samples.labels.cpu().numpy())


def evaluations(models: int, samples: int) -> int:
    """Count one gradient per model and sample: the global model's gradients serve all clients."""
    return models * samples


def _reference(model: nn.Module, samples: Samples) -> Reference | None:
    """Return the global model's gradients in the form they are compared in; None if the rules miss a use."""
    reference: Reference = {}

    def keep(name: str, gradient: Gradient) -> None:
        reference[name] = kept(gradient)

    try:
        batched(model, samples, keep)
    except UnseenUseError:
        return None
    return reference


def _fast(model: nn.Module, reference: Reference, samples: Samples) -> Tensor | None:
    """Return the squares, (B,), one layer at a time; None if the rules miss a use."""
    square = torch.zeros(len(samples), dtype=torch.float64)
    seen = set()

    def compare(name: str, gradient: Gradient) -> None:
        other = reference.get(name)
        square.add_(squared_norms(gradient) if other is None else squared_differences(gradient, other))
        seen.add(name)

    try:
        batched(model, samples, compare)
    except UnseenUseError:
        return None
    for name in sorted(reference.keys() - seen):  # a layer that only the global model used
        square += squared_norms(reference[name])
    return square


def _slow(model: nn.Module, theirs: Single, samples: Samples) -> Tensor:
    """Return the squares, (B,), one sample at a time."""
    squares = []
    for i in range(len(samples)):
        other = theirs(i)
        ours = _single(model, samples, i)
        squares.append(sum(float(squared_norms(ours[name] - other[name])) for name in ours))
    return torch.tensor(squares, dtype=torch.float64)


def _single(model: nn.Module, samples: Samples, i: int) -> dict[str, Tensor]:
    return dict(one_by_one(model, samples.single(i)))


def _alike(model: nn.Module, global_model: nn.Module) -> bool:
    """Return whether the spot check of the global model holds for the local one: the same modules, all with rules."""
    same = [type(module) for module in model.modules()] == [type(module) for module in global_model.modules()]
    if same and known(model):
        return True
    warnings.warn("per-sample gradients one at a time: a local model is made of other layers", stacklevel=4)
    return False


ESTIMATOR = Estimator("exact", "by the definition, from the gradient of every sample", divide, measure, evaluations)
