"""The caller's models and process stay as they were, after `isfl.lipschitz` returns and after it raises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from isfl import lipschitz
from isfl.smoothness import ESTIMATORS, sample_gradient_norms
from tests.test_losses import smoothed
from tests.zoo import OwnParameter, problem, resnet_like

every_method = pytest.mark.parametrize("method", list(ESTIMATORS))
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")


def state(model: nn.Module) -> dict[str, Any]:
    """Return everything about a model that a caller could notice."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        hooks = {key: dict(getattr(module, key)) for key in HOOKS}
        found[name] = (type(module), sorted(vars(module)), own, hooks)
    for name, parameter in model.named_parameters():
        found[f"{name} as a parameter"] = (id(parameter), parameter.requires_grad, parameter.grad, parameter._version)
    for name, tensor in model.state_dict().items():
        found[f"{name} in bytes"] = tensor.numpy().tobytes()
    return found


class Fails(nn.Module):
    """Returns its input, and raises after a number of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = [10**9]

    def forward(self, x: Tensor) -> Tensor:
        self.calls[0] -= 1
        if self.calls[0] < 0:
            raise RuntimeError("this local model is broken")
        return x


def fragile() -> nn.Module:
    return nn.Sequential(resnet_like()[:4], Fails(), resnet_like()[4:])  # type: ignore[index]


def mixed_modes(models: list[nn.Module]) -> None:
    """Put models, and parts of them, into different modes, and freeze a parameter of each."""
    for model in models:
        model.train()
        list(model.modules())[-1].eval()
        next(model.parameters()).requires_grad_(False)
    models[-1].eval()


@every_method
@pytest.mark.parametrize("make", [resnet_like, OwnParameter])
@pytest.mark.filterwarnings("ignore:per-sample gradients one at a time")
def test_models_are_unchanged_after_a_measurement(make: Callable[[], nn.Module], method: str) -> None:
    local, center, inputs, labels = problem(make)
    mixed_modes([*local, center])
    before = [state(model) for model in (*local, center)]
    lipschitz(local, center, inputs, labels, 4, method=method)
    sample_gradient_norms(center, inputs, labels)
    assert [state(model) for model in (*local, center)] == before


@every_method
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_models_are_unchanged_after_a_local_model_raised(calls: int, method: str) -> None:
    local, center, inputs, labels = problem(fragile, samples=150)  # three parts, four classes
    mixed_modes([*local, center])
    for module in local[1].modules():
        if isinstance(module, Fails):
            module.calls = [calls]
    before = [state(model) for model in (*local, center)]
    with pytest.raises(RuntimeError, match="this local model is broken"):
        lipschitz(local, center, inputs, labels, 4, method=method)
    after = [state(model) for model in (*local, center)]
    for model in local:
        for module in model.modules():
            assert "forward" not in vars(module)
    assert after == before


@every_method
def test_models_are_unchanged_after_the_loss_raised(method: str) -> None:
    local, center, inputs, labels = problem(resnet_like)
    mixed_modes([*local, center])
    seen: list[int] = []

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        seen.append(len(labels))
        if seen.count(len(inputs)) == 2 or len(seen) > 8:
            raise RuntimeError("this loss is broken")
        return smoothed(logits, labels)

    before = [state(model) for model in (*local, center)]
    with pytest.raises(RuntimeError, match="this loss is broken"):
        lipschitz(local, center, inputs, labels, 4, method=method, loss=loss)
    assert [state(model) for model in (*local, center)] == before


class Merges(nn.Module):
    """Changes its weights when it changes its mode, as adapters that are merged for inference do."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 4)

    def train(self, mode: bool = True) -> Merges:
        with torch.no_grad():
            self.head.weight.mul_(2 if mode else 0.5)
        super().train(mode)
        return self

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.flatten(1))
        return out


def test_a_model_whose_modes_have_side_effects_is_unchanged() -> None:
    local, center, inputs, labels = problem(Merges)
    before = [state(model) for model in (*local, center)]
    lipschitz(local, center, inputs, labels, 4)
    assert [state(model) for model in (*local, center)] == before


ALLOCATOR = """
import ctypes, torch
from isfl import lipschitz
from isfl.smoothness import sample_gradient_norms
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d e".split()]
libc.mallinfo2.restype = Info
def mapped():
    before = libc.mallinfo2().hblks
    libc.malloc(24 << 20)
    return libc.mallinfo2().hblks - before
model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
print(mapped())
lipschitz([other], model, torch.randn(8, 2), torch.arange(8) % 2, 2)
sample_gradient_norms(model, torch.randn(8, 2), torch.arange(8) % 2)
print(mapped())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks glibc")
def test_the_allocator_of_the_process_keeps_its_thresholds() -> None:
    """A large block is still allocated by mmap, as before the call."""
    done = subprocess.run([sys.executable, "-c", ALLOCATOR], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]
