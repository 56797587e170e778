"""isfl: federated learning on label-skewed clients with local importance sampling.

Four names to build your own training loop with:

- `sampling_probabilities`: target shares, local shares and Lipschitz values in, probabilities out;
- `rho`: the factor of the convergence bound those probabilities lower;
- `lipschitz`: per-class gradient-Lipschitz values between local models and the global one;
- `ClassSampler`: a `torch.utils.data.Sampler` that draws classes with given probabilities.

They are loaded on first use, so that `import isfl` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isfl.sampling import ClassSampler as ClassSampler
    from isfl.smoothness import lipschitz as lipschitz
    from isfl.theory import rho as rho
    from isfl.theory import sampling_probabilities as sampling_probabilities

__version__ = "0.1.0"

_HOME = {
    "sampling_probabilities": "isfl.theory",
    "rho": "isfl.theory",
    "lipschitz": "isfl.smoothness",
    "ClassSampler": "isfl.sampling",
}

__all__ = ["ClassSampler", "__version__", "lipschitz", "rho", "sampling_probabilities"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'isfl' has no attribute {name!r}")
