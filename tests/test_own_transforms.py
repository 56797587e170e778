"""Transforms of the user that take global generators, per sample or per batch: the same bits in every engine."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isfl.data.transforms import augmentation
from isfl.data.transforms.own import OwnTransform, takes_generator
from tests.grids import config_of, engine_of, federation_of, rounds, run_locally
from tests.test_augmentation import of_images, with_transforms
from tests.worlds import federate, random_images, same_bits


def shifted(image: Tensor) -> Tensor:
    """As transforms of torchvision do: one sample, randomness from wherever."""
    assert image.dim() == 3
    shift = torch.randint(0, 9, (1,)).item() + np.random.randint(0, 9) + random.randint(0, 9)  # noqa: NPY002
    return image + int(shift)


class Masked(nn.Module):
    """Like the transforms of torchvision's second version: a module that takes any number of inputs."""

    def forward(self, *inputs: Any) -> Any:
        (batch,) = inputs
        return batch * (torch.rand(len(batch), 1, 1, 1) < 0.5)


class Scaled:
    def __call__(self, batch: Tensor, factor: int = 2) -> Tensor:
        return batch * factor


masked, scaled = Masked(), Scaled()
SHIFTED = {"kind": "own", "function": f"{__name__}:shifted", "per": "sample"}
MASKED = f"{__name__}:masked"


def transformed(seed: int = 0, round: int = 1, client: int = 0, epoch: int = 0) -> Tensor:
    augment = augmentation([OwnTransform.model_validate(SHIFTED)], seed, round, client)
    assert augment is not None
    return augment(epoch)(random_images(32))


@pytest.mark.parametrize("other", [{"seed": 1}, {"round": 2}, {"client": 1}, {"epoch": 1}], ids=lambda o: next(iter(o)))
def test_global_generators_are_a_function_of_seed_round_client_and_epoch(other: dict[str, int]) -> None:
    first = transformed()
    torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002
    assert torch.equal(first, transformed())
    assert not torch.equal(first, transformed(**other))


def test_global_generators_are_left_as_they_were() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # noqa: NPY002
    transformed()
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


def test_samples_and_batches_are_changed_differently() -> None:
    augment = augmentation([OwnTransform.model_validate(SHIFTED)], 0, 1, 0)
    assert augment is not None
    change, images = augment(0), torch.zeros(32, 1, 2, 2, dtype=torch.uint8)
    first, second = change(images), change(images)
    assert len(set(first[:, 0, 0, 0].tolist())) > 5, "each sample has its own shift"
    assert not torch.equal(first, second)


def test_only_a_callable_that_asks_for_it_gets_the_generator() -> None:
    assert takes_generator(lambda batch, generator: batch) and takes_generator(lambda batch, *, generator=None: batch)
    assert not any(map(takes_generator, (shifted, masked, scaled, torch.abs)))
    augment = augmentation([OwnTransform(function=f"{__name__}:scaled"), OwnTransform(function=MASKED)], 0, 1, 0)
    assert augment is not None
    images = augment(0)(torch.full((64, 1, 2, 2), 3, dtype=torch.uint8))
    assert set(images.flatten().tolist()) == {0, 6}


def test_two_workers_transform_like_one() -> None:
    settings = with_transforms("isfl", SHIFTED, MASKED, local_epochs=2)
    states = []
    for workers in (1, 2):
        with of_images(settings, workers) as engine:
            states.append(federate(settings, engine)[0])
    assert same_bits(*states)


def test_flower_nodes_transform_like_the_local_engine(tmp_path: Path) -> None:
    settings = config_of("isfl", training={"augment": [SHIFTED, MASKED]})
    expected, _ = run_locally(settings)
    found, reports = rounds(settings, engine_of(settings, federation_of(tmp_path), tmp_path))
    assert all(report.refused == {} for report in reports)
    assert same_bits(expected, found)
    assert not same_bits(expected, run_locally(config_of("isfl"))[0])
