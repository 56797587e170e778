"""Engines use compiled convolutions, with the same bits for any number of workers."""

from __future__ import annotations

import torch
from torch import nn

from isfl.engines import LocalEngine
from isfl.kernels import FastConv2d, available
from tests.convolutions import needs_compiler
from tests.test_workers import federated, identical
from tests.worlds import FEATURES, engine_of, settings_of


def convolutional() -> nn.Module:
    """A model with a convolution that is compiled if there is a compiler."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        spread = [nn.Linear(FEATURES, 16 * 6 * 5), nn.Unflatten(1, (16, 6, 5))]
        body = [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*spread, *body, nn.Linear(32, 4))


def fast(engine: LocalEngine) -> bool:
    return any(isinstance(layer, FastConv2d) for layer in engine.model.modules())


def test_any_number_of_workers_convolves_to_the_same_bits() -> None:
    settings = settings_of("isfl")
    results = []
    for workers in (1, 2):
        with engine_of(settings, model=convolutional(), workers=workers) as engine:
            assert fast(engine) is available()
            results.append(federated(settings, engine))
    assert identical(*results)


@needs_compiler
def test_compiled_convolutions_are_torchs_but_for_rounding() -> None:
    results = []
    for convolutions in ("fast", "torch"):
        steps = {
            "convolutions": convolutions,
            "rounds": 2,
            "optimizer": {"kind": "sgd"},
        }  # Adam would blow up tiny gradients
        settings = settings_of("isfl", training=steps)
        with engine_of(settings, model=convolutional()) as engine:
            assert fast(engine) is (convolutions == "fast")
            results.append(federated(settings, engine)[0])
    compiled, slow = results
    assert any(not torch.equal(compiled[name], slow[name]) for name in slow)
    for name in slow:
        torch.testing.assert_close(compiled[name], slow[name], rtol=1e-4, atol=1e-5)
