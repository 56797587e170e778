"""The mathematics of ISFL in numpy: probabilities, the bound they come from, measures of label skew.

The paper is Z. Zhu, Y. Shi, P. Fan, C. Peng, K. B. Letaief, "ISFL: Federated Learning for Non-i.i.d. Data with Local
Importance Sampling", IEEE Internet of Things Journal, 2024.

| file | what | where in the paper |
|---|---|---|
| `rho.py` | the factor of the bound that sampling moves | eq. of `rho` in Theorem 1 |
| `probabilities.py` | the public call: checks, floors, support; the list of solvers | problem P |
| `feasible.py` | the feasible set of problem P, and what a solver is | problem P |
| `arrays.py` | checks and shapes of arrays | - |
| `water_filling.py` | solver `paper` | Theorems 2, 3, Algorithm 1 |
| `exact.py` | solver `exact`: the true minimum | not in the paper |
| `bias_variance.py` | probabilities with the smallest gradient error | not in the paper |
| `bound.py` | the right-hand side of the convergence bound | Theorem 1 |
| `skew.py` | how far each client's label mix is from the global one | - |
| `drivers.py` | which clients and classes cause the skew | - |

Notation, as everywhere in this package: `K` clients, `C` classes, `p` target shares, `p^k` local
shares, `q^k` sampling probabilities, `L` gradient-Lipschitz values, `varpi` the lowest weight.
"""

from isfl.theory.bound import Bound, convergence_bound, drift_bound
from isfl.theory.probabilities import SOLVERS, sampling_probabilities
from isfl.theory.rho import rho
from isfl.theory.skew import SkewCard, effective_sample_size, skew_card

__all__ = [
    "SOLVERS",
    "Bound",
    "SkewCard",
    "convergence_bound",
    "drift_bound",
    "effective_sample_size",
    "rho",
    "sampling_probabilities",
    "skew_card",
]
