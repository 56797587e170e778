"""Gradients of single samples with respect to all trainable parameters.

Two ways to the same numbers. `batched` runs one forward and one backward pass for a whole chunk and splits
the gradients layer by layer with the rules of `layers.py`. `one_by_one` runs one backward pass a sample and
works for everything. `gradients_of` picks: a known model is still compared on two samples before it is
believed, because a forward method may use a layer's parameters behind its back or mix the samples of a batch.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.smoothness.layers import rule_for

AGREEMENT = 1e-3
"""Relative difference of a spot-checked gradient above which the batched way is not believed."""

INCOMPARABLE = "no sample of the spot check had a finite gradient"


class PerSampleGradients(Protocol):
    """Yields (parameter name, gradients of shape (B, *parameter shape)), each trainable parameter once."""

    def __call__(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> Iterator[tuple[str, Tensor]]: ...


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters gradients are taken of, by name; a parameter used in two places counts once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


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


class UnseenUseError(RuntimeError):
    """A model uses its layers in a way that the batched rules do not see."""


@dataclass
class _Call:
    """One use of a layer: what went in, what came out and, after the backward pass, the gradient of that."""

    layer: nn.Module
    input: Tensor
    output: Tensor
    gradient: Tensor | None = None


def batched(model: nn.Module, inputs: Tensor, labels: Tensor) -> Iterator[tuple[str, Tensor]]:
    """One forward and backward pass a chunk; gradients are split by sample one layer at a time.

    Raises `UnseenUseError` where a parameter takes part other than through calls of its layer with the whole batch.
    """
    parameters = trainable(model)
    names = {id(parameter): name for name, parameter in parameters.items()}
    layers = [module for module in model.modules() if owned(module)]
    calls = _record(model, layers, inputs, labels)
    with torch.no_grad():
        for layer in layers:
            rule = rule_for(layer)
            assert rule is not None
            totals: dict[str, Tensor] = {}
            for call in calls.pop(layer, []):
                if call.gradient is not None:
                    for key, value in rule(layer, call.input, call.gradient).items():
                        totals[key] = totals[key] + value if key in totals else value
            for key, parameter in owned(layer).items():
                unused = parameter.new_zeros(()).expand(len(inputs), *parameter.shape)
                yield names[id(parameter)], totals.get(key, unused)


def _record(model: nn.Module, layers: list[nn.Module], inputs: Tensor, labels: Tensor) -> dict[nn.Module, list[_Call]]:
    """Run the model forward and backward and note every use of the layers.

    Gradients are asked for at the layers' outputs only, so autograd never computes the summed weight gradients, a
    third of the work. What follows a layer gets a copy of its output: it may overwrite its input in place.
    """
    calls: dict[nn.Module, list[_Call]] = {}

    def note(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if len(args[0]) != len(inputs):
            raise UnseenUseError("a layer sees only a part of the batch")
        calls.setdefault(layer, []).append(_Call(layer, args[0].detach(), output))
        return output.clone()

    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        with torch.enable_grad():
            loss = F.cross_entropy(model(inputs.clone()), labels, reduction="sum")
    finally:
        for handle in handles:
            handle.remove()
    uses = _uses(loss)
    for layer in layers:
        if any(uses[id(p)] != len(calls.get(layer, [])) for p in owned(layer).values()):
            raise UnseenUseError(f"a {type(layer).__name__}'s parameter is used without calling the layer")
    every = [call for of_layer in calls.values() for call in of_layer]
    gradients = torch.autograd.grad(loss, [call.output for call in every], allow_unused=True)
    for call, gradient in zip(every, gradients, strict=True):
        call.gradient = gradient
    return calls


def _uses(loss: Tensor) -> Counter[int]:
    """How often each parameter enters the computation of the loss, read off autograd's graph."""
    counts: Counter[int] = Counter()
    seen, queue = set(), [loss.grad_fn]
    while queue:
        node = queue.pop()
        for child, _ in node.next_functions if node is not None else ():
            if child is None:
                continue
            if hasattr(child, "variable"):  # the node that would accumulate a parameter's gradient
                counts[id(child.variable)] += 1
            elif child not in seen:
                seen.add(child)
                queue.append(child)
    return counts


def owned(module: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters that belong to this very module, not to its children."""
    return {name: p for name, p in module.named_parameters(recurse=False) if p.requires_grad}


def known(model: nn.Module) -> bool:
    """Whether every layer that owns trainable parameters has a rule for them, and no parameter is shared."""
    owners = [module for module in model.modules() if owned(module)]
    owned_ids = [id(p) for module in owners for p in owned(module).values()]
    plain = all(rule_for(module) is not None and owned(module).keys() <= {"weight", "bias"} for module in owners)
    return plain and len(owned_ids) == len(set(owned_ids))


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


def chunk_size(model: nn.Module, inputs: Tensor, memory: int, copies: int) -> int:
    """How many samples fit into `memory` bytes: `copies` of their gradients, and what a pass over them keeps.

    The latter is measured on one sample: everything autograd saves, every layer's output twice more for us, and
    the largest unfolded input of a convolution.
    """
    own = {parameter.data_ptr() for parameter in model.parameters()}
    kept = unfolded = 0

    def save(tensor: Tensor) -> Tensor:
        nonlocal kept
        if tensor.data_ptr() not in own:
            kept += tensor.numel() * tensor.element_size()
        return tensor

    def count(module: nn.Module, args: tuple[Tensor, ...], output: object) -> None:
        nonlocal kept, unfolded
        if isinstance(output, Tensor):
            kept += 2 * output.numel() * output.element_size()
            if isinstance(module, nn.Conv1d | nn.Conv2d):
                area = module.weight[0].numel() * module.groups * output.numel() // module.out_channels
                unfolded = max(unfolded, area * output.element_size())

    handles = [m.register_forward_hook(count) for m in model.modules() if not list(m.children())]
    try:
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            model(inputs[:1].clone())
    finally:
        for handle in handles:
            handle.remove()
    gradients = sum(p.numel() * p.element_size() for p in trainable(model).values())
    return max(1, min(len(inputs), memory // (copies * gradients + kept + unfolded)))


def squared_norms(gradients: Tensor) -> Tensor:
    """(B,) in double precision on the CPU; no temporary of the gradients' size."""
    return torch.linalg.vector_norm(gradients.flatten(1), dim=1).double().cpu() ** 2


@contextmanager
def evaluation_mode(*models: nn.Module) -> Iterator[None]:
    """Running statistics, no dropout: otherwise the gradient of a single sample is not defined."""
    were = [{module: module.training for module in model.modules()} for model in models]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for modes in were:
            for module, training in modes.items():
                module.training = training


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


def check_data(model: nn.Module, inputs: Tensor, labels: Tensor, num_classes: int | None) -> Tensor:
    """The labels as torch wants them, or a ValueError that names what is wrong with model, inputs or labels."""
    if len(inputs) == 0 or len(inputs) != len(labels):
        raise ValueError(
            f"inputs and labels need the same number of samples, at least one: {len(inputs)}, {len(labels)}"
        )
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"labels must be a vector of whole numbers, found {labels.dtype} {tuple(labels.shape)}")
    if not trainable(model):
        raise ValueError("the model has no trainable parameter: gradients need at least one")
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"{type(module).__name__} without running statistics mixes the samples of a batch: gradients of single "
                "samples are undefined; use track_running_stats=True or GroupNorm"
            )
    with evaluation_mode(model), torch.no_grad():
        logits = model(inputs[:1].clone())
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the model must give logits of shape (B, C), found {found} for one sample")
    classes = logits.shape[1] if num_classes is None else num_classes
    if logits.shape[1] < classes:
        raise ValueError(f"num_classes is {classes}, but the model gives only {logits.shape[1]} logits")
    bad = (labels < 0) | (labels >= classes)
    if bad.any():
        index = int(bad.nonzero()[0, 0])
        raise ValueError(f"labels[{index}] is {int(labels[index])}: it must lie in 0 .. {classes - 1}")
    return labels.long()
