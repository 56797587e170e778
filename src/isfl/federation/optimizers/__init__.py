"""The optimisers of a client's training: one file per optimiser, with its settings, its step and its citation.

To add an optimiser, write a file with a subclass of `Optimizer` and add its name to `FILES`.

The steps are torch's own functions. `torch.optim.Adam` itself imports torch's compiler when the first one is made:
2.6 seconds and 70 MB for every process. The functions behind it do not, and give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from isfl.federation.optimizers.base import Optimizer, Stepper
from isfl.schema import choices_in, default_choice, one_of

FILES = (
    "adam",
    "sgd",
)
OPTIMIZERS = choices_in(__name__, FILES, Optimizer)

if TYPE_CHECKING:
    AnyOptimizer = Optimizer
else:
    AnyOptimizer = Annotated[one_of(OPTIMIZERS, "kind"), default_choice("kind", "adam")]

__all__ = ["OPTIMIZERS", "AnyOptimizer", "Optimizer", "Stepper"]
