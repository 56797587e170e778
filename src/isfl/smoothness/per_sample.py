"""Gradients of single samples with respect to all trainable parameters (ours).

Two ways lead to the same numbers. `batched` (in `batched.py`) runs one forward and one backward pass for a whole batch
and splits the gradients layer by layer with the rules of `layers.py`. `one_by_one` runs one backward pass per sample
and works for every model. `believed` decides: even a model of known layers is checked on two samples, because its
forward method may mix the samples of a batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from isfl.smoothness.batched import UnseenUseError, batched, known
from isfl.smoothness.folded import folded
from isfl.smoothness.gradients import Gradient, dense, squared_norms
from isfl.smoothness.layers import rule_for
from isfl.smoothness.models import bytes_of_pass, check_data, evaluation_mode, owned, trainable
from isfl.smoothness.outer import PIECE
from isfl.smoothness.plan import MEMORY, fitting, slices
from isfl.smoothness.samples import Loss, Samples, cross_entropy

AGREEMENT = 1e-3
"""Relative difference of a spot-checked gradient above which the batched rules are not used."""


def one_by_one(model: nn.Module, samples: Samples) -> Iterator[tuple[str, Tensor]]:
    """Run one forward and backward pass per sample: slow, right for every model, the oracle of the tests.

    Yields (parameter name, gradients of shape (B, *parameter shape)), each trainable parameter once.
    """
    rows = []
    with torch.enable_grad():
        for i in range(len(samples)):
            rows.append(_gradients(model, samples.single(i).losses(model).sum()))
    for name in trainable(model):
        yield name, torch.stack([row[name] for row in rows])


def believed(model: nn.Module, samples: Samples) -> bool:
    """Return whether the batched rules know the model and agree with autograd on a few samples; warn if not."""
    if not known(model):
        kinds = sorted({type(m).__name__ for m in model.modules() if owned(m) and rule_for(m) is None})
        reason = f"no batched rule for {', '.join(kinds)}" if kinds else "layers share or reparametrise a parameter"
    else:
        reason = _disagreement(model, samples) or ""
    if reason:
        warnings.warn(f"per-sample gradients one at a time (exact, but slower): {reason}", stacklevel=4)
    return not reason


def _disagreement(model: nn.Module, samples: Samples) -> str | None:
    """Compare two samples of a small batch, parameter by parameter, and return what is wrong, if anything.

    Samples without a finite gradient do not count. Autograd goes through the same batch: in another one, rounding may
    move a value across a kink of the model, and gradients would rightly differ. The logits of each sample alone show
    that samples do not influence each other and that folded layers equal the original ones.
    """
    places = torch.linspace(0, len(samples) - 1, min(4, len(samples))).long()
    with torch.no_grad():
        alone = torch.cat([model(samples.inputs[i : i + 1].clone()) for i in places.tolist()])
    # Zero times a value that is not finite is not zero: such a sample would spoil every other sample's gradient.
    finite = alone.isfinite().all(1)
    alone, places = alone[finite], places[finite.cpu()]
    some = replace(samples, inputs=samples.inputs[places], labels=samples.labels[places])
    try:
        with torch.enable_grad(), folded(model):
            logits = model(some.inputs.clone())
            losses = some.losses_of(logits).unbind()
        found = _dense(model, some)
    except Exception as error:  # any error: the slow way decides whether the model itself is broken
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
    """Return the gradients of all trainable parameters; `again` keeps the graph for another call."""
    parameters = trainable(model)
    found = torch.autograd.grad(loss, list(parameters.values()), retain_graph=again, allow_unused=True)
    whole = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters.values(), found, strict=True)]
    return dict(zip(parameters, [g.to_dense() if g.is_sparse else g for g in whole], strict=True))


def _dense(model: nn.Module, samples: Samples) -> dict[str, Tensor]:
    """Return all gradients by parameter name, each of shape (B, *parameter shape)."""
    found = {}

    def note(name: str, gradient: Gradient) -> None:
        found[name] = dense(gradient)

    batched(model, samples, note)
    return found


def sample_gradient_norms(
    model: nn.Module, inputs: Tensor, labels: Tensor, *, loss: Loss = cross_entropy, memory: int = MEMORY
) -> Tensor:
    """Return the gradient norm of each sample, the importance of a sample in ISFedAvg.

    Parameters
    ----------
    model
        Any classifier that maps a batch to (B, C) logits. It is evaluated in eval mode and left unchanged.
    inputs
        (N, ...).
    labels
        (N,) integers in `0 .. C - 1`.
    loss
        Takes logits (B, C) and labels (B,), returns one loss per sample, (B,).
    memory
        Bytes to stay within; it limits the number of samples in one pass.

    Returns
    -------
    Tensor
        (N,) norms in double precision, on the CPU.

    Raises
    ------
    ValueError
        If model, data and loss do not fit together; the message names what is wrong.

    Examples
    --------
    >>> import torch
    >>> from isfl.smoothness import sample_gradient_norms
    >>> model = torch.nn.Linear(1, 2, bias=False)
    >>> _ = torch.nn.init.zeros_(model.weight)  # both classes are equally likely
    >>> sample_gradient_norms(model, torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1])) * 2**0.5
    tensor([1.0000, 2.0000], dtype=torch.float64)
    """
    samples = check_data(model, Samples(inputs, labels, loss), None)
    with evaluation_mode(model):
        fast = believed(model, samples)
        size = fitting(memory - 2 * PIECE, bytes_of_pass(model, inputs)) if fast else 1
        squares = [_squares(model, samples.part(part), fast) for part in slices(len(samples), size)]
    return torch.cat(squares).sqrt()


def _squares(model: nn.Module, samples: Samples, fast: bool) -> Tensor:
    """Return squared norms, (B,)."""
    square = torch.zeros(len(samples), dtype=torch.float64)

    def add(rows: slice, name: str, gradient: Gradient) -> None:
        square[rows] += squared_norms(gradient)

    visit(model, samples, fast, add)
    return square


def visit(model: nn.Module, samples: Samples, fast: bool, use: Callable[[slice, str, Gradient], None]) -> None:
    """Call `use` with rows of the samples, a parameter's name and its gradients for these rows.

    All rows at once with the batched rules; one sample at a time where they do not hold, or if not `fast`.
    """
    if fast:
        try:
            batched(model, samples, partial(use, slice(None)))
        except UnseenUseError:  # raised before anything is used
            fast = False
    if not fast:
        for i in range(len(samples)):
            for name, gradient in one_by_one(model, samples.single(i)):
                use(slice(i, i + 1), name, gradient)
