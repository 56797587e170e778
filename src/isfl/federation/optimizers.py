"""Adam and SGD of a client's training, by torch's own step functions.

`torch.optim.Adam` itself imports torch's compiler when the first one is made: 2.6 seconds and 70 MB for every process.
The functions behind it do not, and give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from isfl.federation.settings import SGD, Adam, Optimizer

EPSILON = 1e-8


class Stepper(Protocol):
    def step(self) -> None:
        """Move the parameters by their gradients; those without one stay where they are."""


def new_optimizer(settings: Optimizer, parameters: Sequence[nn.Parameter]) -> Stepper:
    """Optimiser state never crosses a round: clients start each one anew, as in the paper."""
    return SGDStepper(settings, parameters) if isinstance(settings, SGD) else AdamStepper(settings, parameters)


class AdamStepper:
    def __init__(self, settings: Adam, parameters: Sequence[nn.Parameter]) -> None:
        self.settings, self.parameters = settings, parameters
        self.first = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in parameters]
        self.second = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in parameters]
        self.steps = [torch.tensor(0.0) for _ in parameters]

    @torch.no_grad()
    def step(self) -> None:
        moved = [i for i, p in enumerate(self.parameters) if p.grad is not None]
        if not moved:
            return
        adam(
            [self.parameters[i] for i in moved],
            [_gradient(self.parameters[i]) for i in moved],
            [self.first[i] for i in moved],
            [self.second[i] for i in moved],
            [],
            [self.steps[i] for i in moved],
            amsgrad=False,
            beta1=self.settings.beta1,
            beta2=self.settings.beta2,
            lr=self.settings.lr,
            weight_decay=self.settings.weight_decay,
            eps=EPSILON,
            maximize=False,
        )


class SGDStepper:
    def __init__(self, settings: SGD, parameters: Sequence[nn.Parameter]) -> None:
        self.settings, self.parameters = settings, parameters
        self.buffers: list[Tensor | None] = [None] * len(parameters)

    @torch.no_grad()
    def step(self) -> None:
        moved = [i for i, p in enumerate(self.parameters) if p.grad is not None]
        buffers = [self.buffers[i] for i in moved]
        sgd(
            [self.parameters[i] for i in moved],
            [_gradient(self.parameters[i]) for i in moved],
            buffers,
            weight_decay=self.settings.weight_decay,
            momentum=self.settings.momentum,
            lr=self.settings.lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for i, buffer in zip(moved, buffers, strict=True):
            self.buffers[i] = buffer


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
