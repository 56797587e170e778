"""Gradients of single samples with respect to all trainable parameters.

Two ways to the same numbers. `batched` (in `batched.py`) runs one forward and one backward pass for a whole chunk and
splits the gradients layer by layer with the rules of `layers.py`. `one_by_one` runs one backward pass a sample and
works for everything. `believed` decides: a known model is still compared on two samples, because a forward method may
mix the samples of a batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.smoothness.batched import UnseenUseError, batched, known
from isfl.smoothness.folded import folded
from isfl.smoothness.gradients import Gradient, dense, squared_norms
from isfl.smoothness.layers import rule_for
from isfl.smoothness.models import bytes_of_pass, check_data, evaluation_mode, hold_on_to_memory, owned, trainable
from isfl.smoothness.outer import PIECE
from isfl.smoothness.plan import MEMORY, chosen, fitting, slices

AGREEMENT = 1e-3
"""Relative difference of a spot-checked gradient above which the batched way is not believed."""


def one_by_one(model: nn.Module, inputs: Tensor, labels: Tensor) -> Iterator[tuple[str, Tensor]]:
    """One forward and backward pass a sample: slow, right for every model, the oracle of the tests.

    Yields (parameter name, gradients of shape (B, *parameter shape)), each trainable parameter once.
    """
    rows = []
    with torch.enable_grad():
        for i in range(len(inputs)):
            loss = F.cross_entropy(model(inputs[i : i + 1].clone()), labels[i : i + 1])
            rows.append(_gradients(model, loss))
    for name in trainable(model):
        yield name, torch.stack([row[name] for row in rows])


def believed(model: nn.Module, inputs: Tensor, labels: Tensor) -> bool:
    """Whether the model is known and samples spread over the data agree with the slow way; a warning if not."""
    if not known(model):
        kinds = sorted({type(m).__name__ for m in model.modules() if owned(m) and rule_for(m) is None})
        reason = f"no batched rule for {', '.join(kinds)}" if kinds else "layers share or reparametrise a parameter"
    else:
        reason = _disagreement(model, inputs, labels) or ""
    if reason:
        warnings.warn(f"per-sample gradients one at a time (exact, but slower): {reason}", stacklevel=4)
    return not reason


def _disagreement(model: nn.Module, inputs: Tensor, labels: Tensor) -> str | None:
    """Compare two samples of a small batch, parameter by parameter; those without a finite gradient do not count.

    Autograd goes through the very same batch: in another one, rounding may lift a value over a kink of the model, and
    gradients differ for good reason. That a sample has no influence on the others, and that folded layers do what the
    layers did, is seen from the logits of each sample alone.
    """
    places = torch.linspace(0, len(inputs) - 1, min(4, len(inputs))).long()
    with torch.no_grad():
        alone = torch.cat([model(inputs[i : i + 1].clone()) for i in places.tolist()])
    # Times zero, what is not finite is not zero: it would be in every sample's gradient.
    finite = alone.isfinite().all(1)
    alone, places = alone[finite], places[finite.cpu()]
    inputs, labels = inputs[places], labels[places]
    try:
        with torch.enable_grad(), folded(model):
            logits = model(inputs.clone())
            losses = F.cross_entropy(logits, labels, reduction="none").unbind()
        found = _dense(model, inputs, labels)
    except Exception as error:  # whatever it is: the slow way decides whether the model itself is broken
        return f"the batched pass failed ({type(error).__name__}: {error})".splitlines()[0]
    compared = 0
    for i in range(len(places)):
        if compared == 2:
            break
        truth = _gradients(model, losses[i], again=True)
        if not all(bool(torch.isfinite(gradient).all()) for gradient in truth.values()):
            continue
        compared += 1
        apart = [(logits[i].detach(), alone[i], 0.0)]
        largest = max(float(gradient.abs().max()) for gradient in truth.values())
        for name, gradient in truth.items():
            apart.append((found[name][i] if name in found else torch.zeros_like(gradient), gradient, 1e-5 * largest))
        if not all(float((a - b).norm()) <= AGREEMENT * float(b.norm()) + slack for a, b, slack in apart):
            return "the model uses its layers or its batch in a way the batched rules do not see"
    return None if compared else "no sample of the spot check had a finite gradient"


def _gradients(model: nn.Module, loss: Tensor, *, again: bool = False) -> dict[str, Tensor]:
    """Of all trainable parameters; `again` says that the graph is still needed."""
    parameters = trainable(model)
    found = torch.autograd.grad(loss, list(parameters.values()), retain_graph=again, allow_unused=True)
    whole = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters.values(), found, strict=True)]
    return dict(zip(parameters, [g.to_dense() if g.is_sparse else g for g in whole], strict=True))


def _dense(model: nn.Module, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """All gradients, (B, *parameter shape) each."""
    found = {}

    def note(name: str, gradient: Gradient) -> None:
        found[name] = dense(gradient)

    batched(model, inputs, labels, note)
    return found


def sample_gradient_norms(model: nn.Module, inputs: Tensor, labels: Tensor, *, memory: int = MEMORY) -> Tensor:
    """(N,) norm of each sample's gradient, the importance of a sample in ISFedAvg. Memory is bounded by `memory`."""
    labels = check_data(model, inputs, labels, None)
    hold_on_to_memory()
    with evaluation_mode(model):
        fast = believed(model, inputs, labels)
        size = fitting(memory - 2 * PIECE, bytes_of_pass(model, inputs)) if fast else 1
        squares = []
        for part in slices(len(labels), size):
            squares.append(_squares(model, chosen(inputs, part), chosen(labels, part), fast))
    return torch.cat(squares).sqrt()


def _squares(model: nn.Module, inputs: Tensor, labels: Tensor, fast: bool) -> Tensor:
    """(B,) squared norms; one sample at a time where the batched rules do not hold."""
    square = torch.zeros(len(labels), dtype=torch.float64)

    def add(name: str, gradient: Gradient) -> None:
        square.add_(squared_norms(gradient))

    if fast:
        try:
            batched(model, inputs, labels, add)
        except UnseenUseError:
            fast = False
    if not fast:
        for i in range(len(labels)):
            for _, gradient in one_by_one(model, inputs[i : i + 1], labels[i : i + 1]):
                square[i] += squared_norms(gradient)[0]
    return square
