"""The optimisers equal torch's to the last bit, without torch's slow imports."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from isfl.federation.optimizers.adam import Adam
from isfl.federation.optimizers.sgd import SGD

ADAM, DECAYED = Adam(lr=0.01), Adam(lr=0.1, beta1=0.5, beta2=0.9, weight_decay=0.01)
PLAIN, HEAVY = SGD(lr=0.1), SGD(lr=0.1, momentum=0.9, weight_decay=0.01)


def oracle(settings: Adam | SGD, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if isinstance(settings, SGD):
        return torch.optim.SGD(
            parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
        )
    betas = (settings.beta1, settings.beta2)
    return torch.optim.Adam(parameters, lr=settings.lr, betas=betas, weight_decay=settings.weight_decay)


@pytest.mark.parametrize("settings", [ADAM, DECAYED, PLAIN, HEAVY], ids=["adam", "decayed", "sgd", "momentum"])
def test_steps_are_those_of_torch_to_the_bit(settings: Adam | SGD) -> None:
    """Also for a parameter that has a gradient only now and then, and one that never has."""
    shapes = [(5, 3), (4, 3, 2, 2), (), (7,)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        start = [torch.randn(shape) for shape in shapes]
        gradients = [[torch.randn(shape) for shape in shapes] for _ in range(6)]
    ours, theirs = ([nn.Parameter(value.clone()) for value in start] for _ in range(2))
    step, reference = settings.stepper(ours), oracle(settings, theirs)
    for number, of_step in enumerate(gradients):
        for parameters in (ours, theirs):
            for i, parameter in enumerate(parameters):
                absent = i == 3 or (i == 1 and number % 2 == 0)
                parameter.grad = None if absent else of_step[i].clone()
        step.step()
        reference.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], start[0]) and torch.equal(ours[3], start[3])


def test_training_does_not_import_the_compiler() -> None:
    code = (
        "import sys, torch; from torch import nn; from isfl.federation.optimizers.adam import Adam;"
        "from isfl.federation.optimizers.sgd import SGD; p = nn.Parameter(torch.ones(2)); p.grad = torch.ones(2);"
        "[kind().stepper([p]).step() for kind in (Adam, SGD)];"
        "print('torch._dynamo' in sys.modules, 'sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
