"""Gradients of single samples with respect to all trainable parameters.

Two ways to the same numbers. `batched` (in `batched.py`) runs one forward and one backward pass for a whole chunk and
splits the gradients layer by layer with the rules of `layers.py`. `one_by_one` runs one backward pass a sample and
works for everything. `gradients_of` picks: a known model is still compared on two samples before it is believed,
because a forward method may mix the samples of a batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.smoothness.batched import UnseenUseError, batched, known
from isfl.smoothness.layers import rule_for
from isfl.smoothness.models import check_data, chunk_size, evaluation_mode, owned, trainable

AGREEMENT = 1e-3
"""Relative difference of a spot-checked gradient above which the batched way is not believed."""

INCOMPARABLE = "no sample of the spot check had a finite gradient"


class PerSampleGradients(Protocol):
    """Yields (parameter name, gradients of shape (B, *parameter shape)), each trainable parameter once."""

    def __call__(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> Iterator[tuple[str, Tensor]]: ...


def one_by_one(model: nn.Module, inputs: Tensor, labels: Tensor) -> Iterator[tuple[str, Tensor]]:
    """One forward and backward pass a sample: slow, right for every model, the oracle of the tests."""
    parameters = trainable(model)
    rows = []
    with torch.enable_grad():
        for i in range(len(inputs)):
            loss = F.cross_entropy(model(inputs[i : i + 1].clone()), labels[i : i + 1])
            rows.append(torch.autograd.grad(loss, list(parameters.values()), allow_unused=True))
    for column, (name, parameter) in enumerate(parameters.items()):
        grads = [torch.zeros_like(parameter) if row[column] is None else row[column] for row in rows]
        yield name, torch.stack([g.to_dense() if g.is_sparse else g for g in grads])


def gradients_of(models: Sequence[nn.Module], inputs: Tensor, labels: Tensor) -> PerSampleGradients:
    """The fast way if the models are known and samples spread over the data agree with the slow way, else the slow."""
    reason: str | None
    if not known(models[0]):
        kinds = sorted({type(m).__name__ for m in models[0].modules() if owned(m) and rule_for(m) is None})
        reason = f"no batched rule for {', '.join(kinds)}" if kinds else "layers share or reparametrise a parameter"
    else:
        reasons = [_disagreement(model, inputs, labels) for model in models]
        # A local model that diverged has nothing to compare; it must not slow the others down.
        reason = reasons[0] or next((r for r in reasons[1:] if r not in (None, INCOMPARABLE)), None)
    if reason is None:
        return batched_or_not
    warnings.warn(f"per-sample gradients one at a time (exact, but slower): {reason}", stacklevel=3)
    return one_by_one


def batched_or_not(model: nn.Module, inputs: Tensor, labels: Tensor) -> Iterator[tuple[str, Tensor]]:
    """`batched`, and one at a time for a chunk in which the model does something else than in the spot check."""
    gradients = batched(model, inputs, labels)
    try:
        first = next(gradients)  # everything that can be seen to be wrong is seen before the first answer
    except UnseenUseError:
        yield from one_by_one(model, inputs, labels)
        return
    yield first
    yield from gradients


def _disagreement(model: nn.Module, inputs: Tensor, labels: Tensor) -> str | None:
    """Compare two samples of a small batch, parameter by parameter; those without a finite gradient do not count."""
    chosen = torch.linspace(0, len(inputs) - 1, min(4, len(inputs))).long()
    compared = 0
    for i in range(len(chosen)):
        if compared == 2:
            break
        truth = dict(one_by_one(model, inputs[chosen[i : i + 1]], labels[chosen[i : i + 1]]))
        if not all(bool(torch.isfinite(gradient).all()) for gradient in truth.values()):
            continue
        compared += 1
        largest = max(float(gradient.abs().max()) for gradient in truth.values())
        try:
            for name, gradients in batched(model, inputs[chosen], labels[chosen]):
                wrong = float((gradients[i] - truth[name][0]).norm())
                if not wrong <= AGREEMENT * float(truth[name].norm()) + 1e-5 * largest:
                    return "the model uses its layers or its batch in a way the batched rules do not see"
        except Exception as error:  # whatever it is: the slow way decides whether the model itself is broken
            return f"the batched pass failed ({type(error).__name__}: {error})".splitlines()[0]
    return None if compared else INCOMPARABLE


def squared_norms(gradients: Tensor) -> Tensor:
    """(B,) in double precision on the CPU; no temporary of the gradients' size."""
    return torch.linalg.vector_norm(gradients.flatten(1), dim=1).double().cpu() ** 2


def sample_gradient_norms(model: nn.Module, inputs: Tensor, labels: Tensor, *, memory: int = 256 << 20) -> Tensor:
    """(N,) norm of each sample's gradient, the importance of a sample in ISFedAvg. Memory is bounded by `memory`."""
    labels = check_data(model, inputs, labels, None)
    with evaluation_mode(model):
        gradients = gradients_of([model], inputs, labels)
        chunk = chunk_size(model, inputs, memory, copies=2)  # one layer's at a time, or, slowly, all of them
        squares = []
        for start in range(0, len(inputs), chunk):
            part = slice(start, start + chunk)
            squares.append(torch.zeros(len(inputs[part]), dtype=torch.float64))
            for _, grads in gradients(model, inputs[part], labels[part]):
                squares[-1] += squared_norms(grads)
    return torch.cat(squares).sqrt()
