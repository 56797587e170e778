"""What an optimiser offers: its settings, a learning rate among them, and steps for the parameters of a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from pydantic import Field
from torch import Tensor, nn

from isfl.schema import Part


class Stepper(Protocol):
    """An optimiser at work on some parameters, with its state."""

    def step(self) -> None:
        """Move the parameters by their gradients; parameters without a gradient stay where they are."""


class Optimizer(Part):
    """The base of all optimisers."""

    kind: str
    lr: float = Field(gt=0, le=1000, description="learning rate")

    @abstractmethod
    def stepper(self, parameters: Sequence[nn.Parameter]) -> Stepper:
        """Return a stepper with new state: a client starts each round with a new one, as in the paper."""


def with_gradients(parameters: Sequence[nn.Parameter]) -> tuple[list[int], list[Tensor]]:
    """Return the positions of the parameters that have a gradient, and those gradients."""
    found = [(i, p.grad) for i, p in enumerate(parameters) if p.grad is not None]
    return [i for i, _ in found], [gradient for _, gradient in found]
