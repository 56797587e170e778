"""Per-class gradient-Lipschitz values `L_{k,i}` between local models and the global one.

(The room is called after what `L` bounds, the smoothness of the loss; `isfl.lipschitz` is the function.)

| file | what |
|---|---|
| `estimate.py` | from models and data to values: plan, measure part by part, conclude |
| `plan.py` | what these steps hand to each other, and what a method must offer |
| `exact.py` | the definition: the gradient difference of every sample |
| `class_mean.py`, `last_layer.py` | cheaper: a class's mean loss; the output layer alone |
| `per_sample.py` | when to believe the batched rules; one backward pass a sample; gradient norms |
| `mean_gradient.py` | the gradient of the expected loss, for the convergence bound |
| `batched.py` | a whole chunk from one forward and one backward pass |
| `layers.py` | one small rule a layer type: its per-sample gradients from inputs and output gradients |
| `folded.py` | a convolution and the BatchNorm behind it as one layer |
| `gradients.py` | what can be asked of a gradient, whatever its form |
| `tiled.py` | gradients of 3x3 convolutions with a quarter of the multiplications |
| `outer.py` | gradients that are sums of outer products, and norms of their differences |
| `models.py` | parameters, modes and memory of models; checks |
"""

from isfl.smoothness.estimate import (
    METHODS,
    LipschitzEstimate,
    conclude,
    distance,
    estimate_lipschitz,
    lipschitz,
    measure_part,
    plan_estimate,
)
from isfl.smoothness.mean_gradient import squared_gradient
from isfl.smoothness.per_sample import sample_gradient_norms
from isfl.smoothness.plan import MEMORY, Measurements, Method, Plan

__all__ = [
    "MEMORY",
    "METHODS",
    "LipschitzEstimate",
    "Measurements",
    "Method",
    "Plan",
    "conclude",
    "distance",
    "estimate_lipschitz",
    "lipschitz",
    "measure_part",
    "plan_estimate",
    "sample_gradient_norms",
    "squared_gradient",
]
