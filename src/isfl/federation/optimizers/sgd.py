"""Stochastic gradient descent: Robbins, Monro, "A Stochastic Approximation Method", 1951; with Polyak's momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.sgd import sgd

from isfl.federation.optimizers.base import Optimizer, Stepper, with_gradients


class SGD(Optimizer):
    """Plain gradient steps, the subject of Theorem 1; its momentum is new every round."""

    kind: Literal["sgd"] = "sgd"
    lr: float = Field(0.01, gt=0, le=1000, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="share of the last step that is kept")
    weight_decay: float = Field(0.0, ge=0, description="L2 weight decay: factor on the weights added to the gradient")

    def stepper(self, parameters: Sequence[nn.Parameter]) -> Stepper:
        return SGDStepper(self, parameters)


class SGDStepper:
    def __init__(self, settings: SGD, parameters: Sequence[nn.Parameter]) -> None:
        self.settings, self.parameters = settings, parameters
        self.buffers: list[Tensor | None] = [None] * len(parameters)

    @torch.no_grad()
    def step(self) -> None:
        moved, gradients = with_gradients(self.parameters)
        buffers = [self.buffers[i] for i in moved]
        sgd(
            [self.parameters[i] for i in moved],
            gradients,
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
