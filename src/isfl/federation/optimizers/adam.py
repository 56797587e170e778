"""Adam: Kingma, Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import nn
from torch.optim.adam import adam

from isfl.federation.optimizers.base import Optimizer, Stepper, with_gradients

EPSILON = 1e-8


class Adam(Optimizer):
    """The paper's choice; its state is new every round."""

    kind: Literal["adam"] = "adam"
    lr: float = Field(1e-3, gt=0, le=1000, description="learning rate")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean of gradients")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the mean of squared gradients")
    weight_decay: float = Field(0.0, ge=0, description="L2 weight decay: factor on the weights added to the gradient")

    def stepper(self, parameters: Sequence[nn.Parameter]) -> Stepper:
        return AdamStepper(self, parameters)


class AdamStepper:
    def __init__(self, settings: Adam, parameters: Sequence[nn.Parameter]) -> None:
        self.settings, self.parameters = settings, parameters
        self.first = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in parameters]
        self.second = [torch.zeros_like(p, memory_format=torch.preserve_format) for p in parameters]
        self.steps = [torch.tensor(0.0) for _ in parameters]

    @torch.no_grad()
    def step(self) -> None:
        moved, gradients = with_gradients(self.parameters)
        if not moved:
            return
        adam(
            [self.parameters[i] for i in moved],
            gradients,
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
