"""Per-sample gradients of a whole chunk from one forward and one backward pass, for models made of known layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.smoothness.layers import rule_for
from isfl.smoothness.models import owned, trainable


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


def known(model: nn.Module) -> bool:
    """Whether every layer that owns trainable parameters has a rule for them, and no parameter is shared."""
    owners = [module for module in model.modules() if owned(module)]
    owned_ids = [id(p) for module in owners for p in owned(module).values()]
    plain = all(rule_for(module) is not None and owned(module).keys() <= {"weight", "bias"} for module in owners)
    return plain and len(owned_ids) == len(set(owned_ids))
