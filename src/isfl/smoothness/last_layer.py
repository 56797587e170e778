"""Estimator `last-layer` (ours): only the parameters of the output layer, for which a forward pass is enough.

With features `x`, logits `z = W x + b` and `g` the gradient of the loss at the logits, the gradient of the layer is
`g (x, 1)^T`; for cross-entropy `g = softmax(z) - onehot(y)`. `||theta^k - theta||` stays the distance of the whole
models: it is the same for all classes of a client, and only their ratios decide how the client samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from isfl.smoothness.folded import folded
from isfl.smoothness.gradients import squared_differences
from isfl.smoothness.layers import Gradients, linear
from isfl.smoothness.models import bytes_of_pass, evaluation_mode, hooked, owned
from isfl.smoothness.plan import Division, Estimator, Measurements, fitting, slices
from isfl.smoothness.samples import Part, Samples


def divide(model: nn.Module, samples: Samples, memory: int) -> Division:
    """Make parts of neighbouring samples; raise a ValueError for a model without an output layer."""
    _gradients(model, samples.single(0))
    return Division(slices(len(samples), fitting(memory, bytes_of_pass(model, samples.inputs))))


def measure(
    division: Division, part: Part, local_models: Sequence[nn.Module], global_model: nn.Module, samples: Samples
) -> Measurements:
    """Return one squared difference per local model and sample."""
    samples = samples.part(part)
    reference = _gradients(global_model, samples)
    squares = np.zeros((len(local_models), len(samples)))
    for k in range(len(local_models)):
        model = local_models[k]
        with evaluation_mode(model):
            ours = _gradients(model, samples)
        squares[k] = sum(squared_differences(ours[name], reference[name]).numpy() for name in ours)
    return Measurements(squares, samples.labels.cpu().numpy())


def evaluations(models: int, samples: int) -> int:
    """Count a forward pass as a third of a gradient, which is what it costs; rounded up."""
    return -(-models * samples // 3)


@torch.no_grad()
def _gradients(model: nn.Module, samples: Samples) -> Gradients:
    """Return the gradients of the output layer: the trainable Linear that is called last, wherever it is defined."""
    last: list[tuple[nn.Linear, Tensor, Tensor, int]] = []

    def note(layer: nn.Linear, args: tuple[Tensor, ...], output: Tensor) -> None:
        last[:] = [(layer, args[0], output, output._version)]

    with hooked([module for module in model.modules() if isinstance(module, nn.Linear)], note), folded(model):
        logits = model(samples.inputs.clone())
    # The formula would miss anything else that happens to the logits, in place or not.
    if not last or last[0][2] is not logits or logits._version != last[0][3] or not owned(last[0][0]):
        raise ValueError(
            "method 'last-layer' needs a model whose logits come straight from a trainable torch.nn.Linear, and this "
            "one's do not: use method 'class-mean' or 'exact'"
        )
    layer, features, _, _ = last[0]
    gradients = linear(layer, features, samples.logit_gradients(logits))
    return {name: g for name, g in gradients.items() if name in owned(layer)}


ESTIMATOR = Estimator("last-layer", "the cheapest, on the output layer alone", divide, measure, evaluations)
