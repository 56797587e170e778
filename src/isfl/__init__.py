"""isfl: federated learning on label-skewed clients with local importance sampling.

Run experiments:

- `run`, `compare`, `resume`: one run, several schemes over several seeds, an interrupted run;
- `load_config`, `Config`: what to run;
- `Run`, `Comparison`: a directory of results as an object with tables, figures, a report and the model.

Build your own training loop:

- `sampling_probabilities`: target shares, local shares and Lipschitz values in, probabilities out;
- `rho`: the factor of the convergence bound those probabilities lower;
- `lipschitz`: per-class gradient-Lipschitz values between local models and the global one;
- `ClassSampler`: a `torch.utils.data.Sampler` that draws classes with given probabilities.

Build your own federation: `Dataset`, `LocalEngine` and the functions of `isfl.federation`; on Flower, `isfl.flower`.

Mistakes in the input raise `UserError`. All names are loaded on first use, so that `import isfl` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isfl import federation as federation
    from isfl import flower as flower
    from isfl import sampling as sampling
    from isfl import smoothness as smoothness
    from isfl import theory as theory
    from isfl.api import Comparison as Comparison
    from isfl.api import Run as Run
    from isfl.api import compare as compare
    from isfl.api import load_config as load_config
    from isfl.api import resume as resume
    from isfl.api import run as run
    from isfl.data import Dataset as Dataset
    from isfl.engines import LocalEngine as LocalEngine
    from isfl.errors import UserError as UserError
    from isfl.problem.config import Config as Config
    from isfl.sampling import ClassSampler as ClassSampler
    from isfl.smoothness import lipschitz as lipschitz
    from isfl.theory import rho as rho
    from isfl.theory import sampling_probabilities as sampling_probabilities

__version__ = "0.1.0"

_HOME = {
    "ClassSampler": "isfl.sampling",
    "Comparison": "isfl.api",
    "Config": "isfl.problem.config",
    "Dataset": "isfl.data",
    "LocalEngine": "isfl.engines",
    "Run": "isfl.api",
    "UserError": "isfl.errors",
    "compare": "isfl.api",
    "lipschitz": "isfl.smoothness",
    "load_config": "isfl.api",
    "resume": "isfl.api",
    "rho": "isfl.theory",
    "run": "isfl.api",
    "sampling_probabilities": "isfl.theory",
}
_MODULES = ("federation", "flower", "sampling", "smoothness", "theory")
"""Modules with further public names; not in `__all__`, since `flower` needs an optional dependency."""

__all__ = [
    "ClassSampler",
    "Comparison",
    "Config",
    "Dataset",
    "LocalEngine",
    "Run",
    "UserError",
    "__version__",
    "compare",
    "lipschitz",
    "load_config",
    "resume",
    "rho",
    "run",
    "sampling_probabilities",
]


if not TYPE_CHECKING:  # type checkers would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name in _HOME:
            return getattr(importlib.import_module(_HOME[name]), name)
        if name in _MODULES:
            return importlib.import_module(f"isfl.{name}")
        raise AttributeError(f"module 'isfl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
