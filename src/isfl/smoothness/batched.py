"""Per-sample gradients of a whole chunk from one forward and one backward pass, for models made of known layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from isfl.smoothness.folded import Folded, folded
from isfl.smoothness.gradients import Gradient, total
from isfl.smoothness.layers import Gradients, rule_for
from isfl.smoothness.models import owned, trainable

Use = Callable[[str, Gradient], None]
"""Is given a parameter's name and its gradients for all samples."""


class UnseenUseError(RuntimeError):
    """A model uses its layers in a way that the batched rules do not see."""


class _Layer:
    """The uses of one layer in a pass, and the gradients of its parameters as they come."""

    def __init__(self) -> None:
        self.calls = self.missing = 0
        self.totals: dict[str, Gradient] = {}

    def call(self) -> None:
        self.calls += 1
        self.missing += 1

    def add(self, found: Gradients) -> None:
        self.missing -= 1
        for key, gradient in found.items():
            self.totals[key] = total(self.totals[key], gradient) if key in self.totals else gradient


def _waiting(layer: nn.Module, value: Tensor, output: Tensor) -> Callable[[Tensor], Gradients]:
    """From the gradient of what came out in this call to those of the layer's parameters."""
    if isinstance(layer, Folded):
        return partial(layer.gradients, value, output)
    rule = rule_for(layer)
    assert rule is not None
    return partial(rule, layer, value)


def batched(model: nn.Module, inputs: Tensor, labels: Tensor, use: Use) -> None:
    """One forward and backward pass for all samples; `use` is given each parameter's gradients as they come.

    Layer by layer while the backward pass goes on: what is needed is still in the cache, and freed at once. Weight
    gradients summed over the batch, a third of the work, are never computed. A parameter that takes no part is left
    out. Raises `UnseenUseError`, before anything is used, where one takes part other than through calls of its layer
    with the whole batch.
    """
    names = {id(parameter): name for name, parameter in trainable(model).items()}
    with folded(model) as pairs:
        layers = {layer: _Layer() for layer in [*model.modules(), *pairs] if owned(layer)}
        _pass(model, layers, names, inputs, labels, use)


def _pass(
    model: nn.Module,
    layers: Mapping[nn.Module, _Layer],
    names: Mapping[int, str],
    inputs: Tensor,
    labels: Tensor,
    use: Use,
) -> None:
    first: list[GradientEdge] = []

    def note(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if len(args[0]) != len(inputs) or not output.requires_grad:
            raise UnseenUseError("a layer sees only a part of the batch, or autograd does not see the layer")
        seen = layers[layer]
        seen.call()
        waiting: list[Callable[[Tensor], Gradients]] = [_waiting(layer, args[0].detach(), output.detach())]
        if not args[0].requires_grad:
            first.append(get_gradient_edge(output))

        def arrived(gradient: Tensor) -> None:
            seen.add(waiting.pop()(gradient.detach()))  # and what it held on to is free
            if not seen.missing:
                hand_over(layer)

        # What follows may overwrite the output in place; the hook still gets the gradient of the output as it was.
        # Only a view would be cut off from what follows, so that gets a copy.
        output.register_hook(arrived)  # type: ignore[no-untyped-call]
        return output.clone() if output._is_view() else output

    def hand_over(layer: nn.Module) -> None:
        totals = layers[layer].totals
        for key, parameter in owned(layer).items():
            if key in totals:
                use(names[id(parameter)], totals.pop(key))
        totals.clear()

    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        with torch.enable_grad():
            loss = F.cross_entropy(model(inputs.clone()), labels, reduction="sum")
    finally:
        for handle in handles:
            handle.remove()
    uses, calling = _uses(loss), [(layer, seen) for layer, seen in layers.items() if seen.calls]
    calls = Counter({id(p): seen.calls for layer, seen in calling for p in owned(layer).values()})
    if any(uses[parameter] != calls[parameter] for parameter in names):
        raise UnseenUseError("a parameter is used without calling its layer, or by the layer and folded into another")
    # Every other layer lies between the loss and one of the first, so the backward pass comes by.
    torch.autograd.grad(loss, first, allow_unused=True)
    for layer in layers:  # one of several uses may not have got a gradient
        hand_over(layer)


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
