"""Per-class gradient-Lipschitz values `L_{k,i}` between local models and the global one.

(The room is called after what `L` bounds, the smoothness of the loss; `isfl.lipschitz` is the function.)

| file | what |
|---|---|
| `exact.py` | the definition: largest gradient difference per class, over the distance of the models |
| `per_sample.py` | per-sample gradients: in batches where that is known to be right, one at a time otherwise |
| `batched.py` | a whole chunk from one forward and one backward pass |
| `layers.py` | one small rule a layer type: its per-sample gradients from inputs and output gradients |
| `models.py` | parameters, modes and memory of models; checks |
"""

from isfl.smoothness.exact import LipschitzEstimate, estimate_lipschitz, lipschitz
from isfl.smoothness.per_sample import sample_gradient_norms

__all__ = ["LipschitzEstimate", "estimate_lipschitz", "lipschitz", "sample_gradient_norms"]
