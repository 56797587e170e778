"""Gradients of single samples with respect to all trainable parameters.

Two ways to the same numbers. `batched` runs one forward and one backward pass for a whole chunk and splits
the gradients layer by layer with the rules of `layers.py`. `one_by_one` runs one backward pass a sample and
works for everything. `gradients_of` picks: a known model is still compared on two samples before it is
believed, because a forward method may use a layer's parameters behind its back or mix the samples of a batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.smoothness.layers import rule_for

AGREEMENT = 1e-3
"""Relative difference of a spot-checked gradient above which the batched way is not believed."""


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
            loss = F.cross_entropy(model(inputs[i : i + 1]), labels[i : i + 1])
            rows.append(torch.autograd.grad(loss, list(parameters.values()), allow_unused=True))
    for column, (name, parameter) in enumerate(parameters.items()):
        grads = [row[column] for row in rows]
        yield name, torch.stack([torch.zeros_like(parameter) if g is None else g for g in grads])


@dataclass
class _Call:
    """One use of a layer: what went in and, after the backward pass, the gradient of what came out."""

    layer: nn.Module
    input: Tensor
    gradient: Tensor | None = None

    def receive(self, gradient: Tensor) -> None:
        self.gradient = gradient.detach()


def batched(model: nn.Module, inputs: Tensor, labels: Tensor) -> Iterator[tuple[str, Tensor]]:
    """One forward and backward pass a chunk; gradients are split by sample one layer at a time."""
    parameters = trainable(model)
    layers = [module for module in model.modules() if owned(module)]
    calls = _record(model, layers, inputs, labels)
    names = {id(parameter): name for name, parameter in parameters.items()}
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
    """Run the model forward and backward and note every use of the layers."""
    calls: dict[nn.Module, list[_Call]] = {}

    def note(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        call = _Call(layer, args[0].detach())
        calls.setdefault(layer, []).append(call)
        if not output.requires_grad:  # the graph starts here, at an embedding
            output.requires_grad_()
        output.register_hook(call.receive)  # type: ignore[no-untyped-call]
        return output.clone()  # what follows may overwrite its input in place, and would overwrite the gradient's

    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        with _no_weight_gradients(trainable(model)), torch.enable_grad():
            source = inputs.detach().requires_grad_() if inputs.is_floating_point() else inputs
            F.cross_entropy(model(source), labels, reduction="sum").backward()  # type: ignore[no-untyped-call]
    finally:
        for handle in handles:
            handle.remove()
    return calls


def owned(module: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters that belong to this very module, not to its children."""
    return {name: p for name, p in module.named_parameters(recurse=False) if p.requires_grad}


@contextmanager
def _no_weight_gradients(parameters: dict[str, nn.Parameter]) -> Iterator[None]:
    """Autograd shall not also compute the summed weight gradients: a third of the work, and not wanted."""
    for parameter in parameters.values():
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters.values():
            parameter.requires_grad_(True)


def known(model: nn.Module) -> bool:
    """Whether every layer that owns trainable parameters has a rule, and no parameter is shared."""
    owners = [module for module in model.modules() if owned(module)]
    owned_ids = [id(p) for module in owners for p in owned(module).values()]
    return all(rule_for(module) is not None for module in owners) and len(owned_ids) == len(set(owned_ids))


def gradients_of(model: nn.Module, inputs: Tensor, labels: Tensor) -> PerSampleGradients:
    """The fast way if this model is known and two samples of a small batch agree with the slow way, else the slow."""
    reason: str | None
    if not known(model):
        kinds = sorted({type(m).__name__ for m in model.modules() if owned(m) and rule_for(m) is None})
        reason = f"no batched rule for {', '.join(kinds)}" if kinds else "layers share a parameter"
    elif (reason := _disagreement(model, inputs[:4], labels[:4])) is None:
        return batched
    warnings.warn(f"per-sample gradients one at a time (exact, but slower): {reason}", stacklevel=3)
    return one_by_one


def _disagreement(model: nn.Module, inputs: Tensor, labels: Tensor) -> str | None:
    checked = [0, len(inputs) - 1]
    truth = dict(one_by_one(model, inputs[checked], labels[checked]))
    try:
        fast = {name: grads[checked] for name, grads in batched(model, inputs, labels)}
    except Exception as error:  # whatever it is: the slow way decides whether the model itself is broken
        return f"the batched pass failed ({type(error).__name__}: {error})".splitlines()[0]
    wrong = sum(float(((fast[n] - truth[n]) ** 2).sum()) for n in truth) ** 0.5
    size = sum(float((truth[n] ** 2).sum()) for n in truth) ** 0.5
    # A model that gives NaN gives it on both ways; the estimator drops such samples itself.
    if wrong > AGREEMENT * size:
        return "the model uses its layers or its batch in a way the batched rules do not see"
    return None


def chunk_size(model: nn.Module, inputs: Tensor, memory: int, copies: int) -> int:
    """How many samples fit into `memory` bytes: `copies` of their gradients, activations and unfolded inputs."""
    activations = [0, 0]  # all outputs, the largest unfolded input

    def count(module: nn.Module, args: tuple[Tensor, ...], output: object) -> None:
        if isinstance(output, Tensor):
            activations[0] += output.numel()
        if isinstance(module, nn.Conv1d | nn.Conv2d) and isinstance(output, Tensor):
            area = module.weight.numel() // module.out_channels * module.groups
            activations[1] = max(activations[1], area * output.numel() // module.out_channels)

    handles = [m.register_forward_hook(count) for m in model.modules() if not list(m.children())]
    try:
        with torch.no_grad():
            model(inputs[:1])
    finally:
        for handle in handles:
            handle.remove()
    parameters = sum(p.numel() for p in trainable(model).values())
    per_sample = 4 * (copies * parameters + 3 * activations[0] + 2 * activations[1])
    return max(1, min(len(inputs), memory // per_sample))


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
    with evaluation_mode(model):
        gradients, chunk = gradients_of(model, inputs, labels), chunk_size(model, inputs, memory, copies=1)
        squares = []
        for start in range(0, len(inputs), chunk):
            part = slice(start, start + chunk)
            squares.append(torch.zeros(len(inputs[part]), dtype=torch.float64))
            for _, grads in gradients(model, inputs[part], labels[part]):
                squares[-1] += squared_norms(grads)
    return torch.cat(squares).sqrt()
