"""Per-sample gradients of a whole batch from one forward and one backward pass, for models made of known layers (ours).

The gradient of the summed loss at a layer's output holds one row per sample; the rules of `layers.py` turn it and the
layer's input into one gradient per sample and parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from isfl.smoothness.folded import Folded, folded
from isfl.smoothness.gradients import Gradient, total
from isfl.smoothness.layers import Gradients, rule_for
from isfl.smoothness.models import hooked, owned, trainable
from isfl.smoothness.samples import Samples

Use = Callable[[str, Gradient], None]
"""Takes a parameter's name and its gradients for all samples."""


class UnseenUseError(RuntimeError):
    """A model uses its layers in a way that the batched rules do not see."""


class _Layer:
    """The calls of one layer in a pass, and the gradients of its parameters so far."""

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
    """Return the function from the gradient at the output of this call to those of the layer's parameters."""
    if isinstance(layer, Folded):
        return partial(layer.gradients, value, output)
    rule = rule_for(layer)
    assert rule is not None
    return partial(rule, layer, value)


def batched(model: nn.Module, samples: Samples, use: Use) -> None:
    """Run one forward and backward pass for all samples, and call `use` with each parameter's gradients.

    `use` is called layer by layer during the backward pass: its data is still in the cache, and freed right after.
    Weight gradients summed over the batch, a third of the work, are never computed. A parameter that does not enter the
    loss is left out. Raises `UnseenUseError`, before any call of `use`, if a parameter enters the loss other than
    through calls of its layer with the whole batch.
    """
    names = {id(parameter): name for name, parameter in trainable(model).items()}
    with folded(model) as pairs:
        layers = {layer: _Layer() for layer in [*model.modules(), *pairs] if owned(layer)}
        _pass(model, layers, names, samples, use)


def _pass(
    model: nn.Module,
    layers: Mapping[nn.Module, _Layer],
    names: Mapping[int, str],
    samples: Samples,
    use: Use,
) -> None:
    first: list[GradientEdge] = []

    def note(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if len(args[0]) != len(samples) or not output.requires_grad:
            raise UnseenUseError("a layer sees only a part of the batch, or autograd does not see the layer")
        seen = layers[layer]
        seen.call()
        waiting: list[Callable[[Tensor], Gradients]] = [_waiting(layer, args[0].detach(), output.detach())]
        if not args[0].requires_grad:
            first.append(get_gradient_edge(output))

        def arrived(gradient: Tensor) -> None:
            seen.add(waiting.pop()(gradient.detach()))  # popped: the activations it holds are freed
            if not seen.missing:
                hand_over(layer)

        # A later layer may overwrite the output in place; the hook still gets the gradient of the original output.
        # Only a view would lose its connection to the later layers, so a view is copied.
        output.register_hook(arrived)  # type: ignore[no-untyped-call]
        return output.clone() if output._is_view() else output

    def hand_over(layer: nn.Module) -> None:
        totals = layers[layer].totals
        for key, parameter in owned(layer).items():
            if key in totals:
                use(names[id(parameter)], totals.pop(key))
        totals.clear()

    with hooked(layers, note), torch.enable_grad():
        loss = samples.losses(model).sum()
    uses, calling = _uses(loss), [(layer, seen) for layer, seen in layers.items() if seen.calls]
    calls = Counter({id(p): seen.calls for layer, seen in calling for p in owned(layer).values()})
    if any(uses[parameter] != calls[parameter] for parameter in names):
        raise UnseenUseError("a parameter is used without calling its layer, or by the layer and folded into another")
    # Every other layer lies between the loss and one of these, so the backward pass reaches it.
    torch.autograd.grad(loss, first, allow_unused=True)
    for layer in layers:  # one of several calls may have received no gradient
        hand_over(layer)


def _uses(loss: Tensor) -> Counter[int]:
    """Count how often each parameter enters the computation of the loss, from autograd's graph."""
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
    """Return whether every layer that owns trainable parameters has a rule for them, and no parameter is shared."""
    owners = [module for module in model.modules() if owned(module)]
    owned_ids = [id(p) for module in owners for p in owned(module).values()]
    plain = all(rule_for(module) is not None and owned(module).keys() <= {"weight", "bias"} for module in owners)
    return plain and len(owned_ids) == len(set(owned_ids))
