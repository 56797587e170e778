"""Per-class gradient-Lipschitz values `L_{k,i}` between local models and the global one.

(The room is called after what `L` bounds, the smoothness of the loss; `isfl.lipschitz` is the function.)

| file | what |
|---|---|
| `exact.py` | the definition: largest gradient difference per class, over the distance of the models |
| `per_sample.py` | per-sample gradients, batched where every layer is known, one at a time otherwise |
| `layers.py` | one small rule a layer type: its per-sample gradients from inputs and output gradients |
"""

from isfl.smoothness.exact import LipschitzEstimate, estimate_lipschitz, lipschitz
from isfl.smoothness.per_sample import sample_gradient_norms

__all__ = ["LipschitzEstimate", "estimate_lipschitz", "lipschitz", "sample_gradient_norms"]
