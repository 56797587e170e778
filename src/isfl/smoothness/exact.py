"""The paper's definition: the gradient difference of every single sample.

`||grad l(x,y; theta^k) - grad l(x,y; theta)||^2` for all samples of a part and all clients. What the global model gives
is kept for the part and serves all clients; the local models come by one at a time.
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
from isfl.smoothness.plan import Division, Measurements, Part, chosen, fitting, slices

Reference = dict[str, Kept]
Single = Callable[[int], dict[str, Tensor]]
"""From the place of a sample to the gradient of the global model there."""


def divide(model: nn.Module, inputs: Tensor, labels: Tensor, memory: int) -> Division:
    """Few enough samples a part that the global model's gradients and one local pass fit into memory."""
    trusted = believed(model, inputs, labels)
    if not trusted:  # theirs for every sample; ours and its passage for one (reparametrised weights take copies)
        each = bytes_of_gradient(model)
        size = fitting(memory - 8 * each - bytes_of_pass(model, inputs), each)
        return Division(slices(len(labels), size), batched=False)
    reference = _reference(model, inputs[:1], labels[:1])
    # None if this very sample takes another way through the model than the ones that were checked.
    waiting = bytes_of_gradient(model) if reference is None else sum(g.nbytes for g in reference.values())
    size = fitting(memory - 2 * PIECE, waiting + bytes_of_pass(model, inputs))
    return Division(slices(len(labels), size))


def measure(
    division: Division,
    part: Part,
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
) -> Measurements:
    inputs, labels = chosen(inputs, part), chosen(labels, part)
    reference: Reference | None = None
    singles: list[dict[str, Tensor]] = []
    if division.batched:
        reference = _reference(global_model, inputs, labels)
    else:
        singles = [_single(global_model, inputs, labels, i) for i in range(len(labels))]

    def theirs(i: int) -> dict[str, Tensor]:
        # Where the fast way fails by surprise, memory was not divided for the slow one: nothing is kept.
        return singles[i] if singles else _single(global_model, inputs, labels, i)

    squares = np.zeros((len(local_models), len(labels)))
    for k in range(len(local_models)):
        model = local_models[k]
        with evaluation_mode(model):
            square = None
            if reference is not None and _alike(model, global_model):
                square = _fast(model, reference, inputs, labels)
            squares[k] = (_slow(model, theirs, inputs, labels) if square is None else square).numpy()
    return Measurements(squares, labels.cpu().numpy())


def evaluations(models: int, samples: int) -> int:
    """One for every model and sample: the global model's gradients serve all clients."""
    return models * samples


def _reference(model: nn.Module, inputs: Tensor, labels: Tensor) -> Reference | None:
    """The global model's gradients in the form they are compared in; None where the rules do not see everything."""
    reference: Reference = {}

    def keep(name: str, gradient: Gradient) -> None:
        reference[name] = kept(gradient)

    try:
        batched(model, inputs, labels, keep)
    except UnseenUseError:
        return None
    return reference


def _fast(model: nn.Module, reference: Reference, inputs: Tensor, labels: Tensor) -> Tensor | None:
    """(B,) squares, one layer at a time; None where the rules do not see everything."""
    square = torch.zeros(len(labels), dtype=torch.float64)
    seen = set()

    def compare(name: str, gradient: Gradient) -> None:
        other = reference.get(name)
        square.add_(squared_norms(gradient) if other is None else squared_differences(gradient, other))
        seen.add(name)

    try:
        batched(model, inputs, labels, compare)
    except UnseenUseError:
        return None
    for name in sorted(reference.keys() - seen):  # a layer that only the global model used
        square += squared_norms(reference[name])
    return square


def _slow(model: nn.Module, theirs: Single, inputs: Tensor, labels: Tensor) -> Tensor:
    """(B,) squares, one sample at a time."""
    squares = []
    for i in range(len(labels)):
        other = theirs(i)
        ours = _single(model, inputs, labels, i)
        squares.append(sum(float(squared_norms(ours[name] - other[name])) for name in ours))
    return torch.tensor(squares, dtype=torch.float64)


def _single(model: nn.Module, inputs: Tensor, labels: Tensor, i: int) -> dict[str, Tensor]:
    return dict(one_by_one(model, inputs[i : i + 1], labels[i : i + 1]))


def _alike(model: nn.Module, global_model: nn.Module) -> bool:
    """Whether what was found of the global model holds for the local one: the same modules, all with rules."""
    same = [type(module) for module in model.modules()] == [type(module) for module in global_model.modules()]
    if same and known(model):
        return True
    warnings.warn("per-sample gradients one at a time: a local model is made of other layers", stacklevel=4)
    return False
