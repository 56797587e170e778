"""The cheapest estimate: only the parameters of the output layer, for which a forward pass is enough.

With features `x` and logits `z = W x + b`, the gradient of cross-entropy is `(softmax(z) - onehot(y)) (x, 1)^T`.
`||theta^k - theta||` stays the distance of the whole models: it is the same for all classes of a client, and only their
ratios decide how the client samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isfl.smoothness.folded import folded
from isfl.smoothness.gradients import squared_differences
from isfl.smoothness.layers import Gradients, linear
from isfl.smoothness.models import bytes_of_pass, evaluation_mode, owned
from isfl.smoothness.plan import Division, Measurements, Part, chosen, fitting, slices


def divide(model: nn.Module, inputs: Tensor, labels: Tensor, memory: int) -> Division:
    """Neighbouring samples; a model without an output layer is refused here."""
    _gradients(model, inputs[:1], labels[:1])
    return Division(slices(len(labels), fitting(memory, bytes_of_pass(model, inputs))))


def measure(
    division: Division,
    part: Part,
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
) -> Measurements:
    inputs, labels = chosen(inputs, part), chosen(labels, part)
    reference = _gradients(global_model, inputs, labels)
    squares = np.zeros((len(local_models), len(labels)))
    for k in range(len(local_models)):
        model = local_models[k]
        with evaluation_mode(model):
            ours = _gradients(model, inputs, labels)
        squares[k] = sum(squared_differences(ours[name], reference[name]).numpy() for name in ours)
    return Measurements(squares, labels.cpu().numpy())


def evaluations(models: int, samples: int) -> int:
    """A forward pass counts as a third of a gradient, which is what it costs; rounded up."""
    return -(-models * samples // 3)


@torch.no_grad()
def _gradients(model: nn.Module, inputs: Tensor, labels: Tensor) -> Gradients:
    """Of the output layer's trainable parameters: of the Linear that is called last, wherever it was defined."""
    last: list[tuple[nn.Linear, Tensor, Tensor, int]] = []

    def note(layer: nn.Linear, args: tuple[Tensor, ...], output: Tensor) -> None:
        last[:] = [(layer, args[0], output, output._version)]

    handles = [module.register_forward_hook(note) for module in model.modules() if isinstance(module, nn.Linear)]
    try:
        with folded(model):
            logits = model(inputs.clone())
    finally:
        for handle in handles:
            handle.remove()
    # Whatever else happens to the logits, be it in place, would be missing from the closed form.
    if not last or last[0][2] is not logits or logits._version != last[0][3] or not owned(last[0][0]):
        raise ValueError(
            "method 'last-layer' needs a model whose logits come straight from a trainable torch.nn.Linear, and this "
            "one's do not: use method 'class-mean' or 'exact'"
        )
    layer, features, _, _ = last[0]
    error = F.softmax(logits, 1) - F.one_hot(labels, logits.shape[1])
    return {name: g for name, g in linear(layer, features, error).items() if name in owned(layer)}
