"""Per-class gradient-Lipschitz values `L_{k,i}` between local models and the global one.

The package is named after what `L` bounds, the smoothness of the loss; `isfl.lipschitz` is the function.

| file | what |
|---|---|
| `calls.py` | `lipschitz`: values from models and data in one call |
| `estimate.py` | from models and data to values: plan, measure part by part, conclude; the list of estimators |
| `exact.py`, `class_mean.py`, `last_layer.py` | the estimators: the definition, class means, the output layer |
| `plan.py` | what these steps pass to each other, and what an estimator consists of |
| `samples.py` | the public set and the loss that is measured on it |
| `per_sample.py` | when to use the batched rules; one backward pass per sample; gradient norms |
| `mean_gradient.py` | the gradient of the expected loss, for the convergence bound |
| `moments.py` | Gram matrix and variances of the gradients of each class, for bias-variance sampling |
| `batched.py` | per-sample gradients of a whole batch from one forward and one backward pass |
| `layers.py` | one small rule per layer type: its per-sample gradients from inputs and output gradients |
| `folded.py` | a convolution and the BatchNorm after it as one layer |
| `gradients.py` | operations on a per-sample gradient, whatever its form |
| `tiled.py` | gradients of 3x3 convolutions with a quarter of the multiplications |
| `outer.py` | gradients that are sums of outer products, and norms of their differences |
| `models.py` | parameters, modes and memory of models; checks of the input |
"""

from isfl.smoothness.calls import estimate_lipschitz, lipschitz
from isfl.smoothness.estimate import ESTIMATORS, LipschitzEstimate, conclude, distance, measure_part, plan_estimate
from isfl.smoothness.mean_gradient import squared_gradient
from isfl.smoothness.moments import MomentsEstimate, gradient_moments
from isfl.smoothness.per_sample import sample_gradient_norms
from isfl.smoothness.plan import MEMORY, Measurements, Plan
from isfl.smoothness.samples import Loss

__all__ = [
    "ESTIMATORS",
    "MEMORY",
    "LipschitzEstimate",
    "Loss",
    "Measurements",
    "MomentsEstimate",
    "Plan",
    "conclude",
    "distance",
    "estimate_lipschitz",
    "gradient_moments",
    "lipschitz",
    "measure_part",
    "plan_estimate",
    "sample_gradient_norms",
    "squared_gradient",
]
