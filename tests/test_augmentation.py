"""Augmentation in a run: only training batches change, with the same bits in every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isfl.data import Dataset
from isfl.data.transforms import check_transforms
from isfl.data.transforms.crop import Crop
from isfl.data.transforms.flip import Flip
from isfl.data.transforms.own import OwnTransform
from isfl.engines import LocalEngine
from isfl.experiment.run import resume, run
from isfl.federation import Settings
from isfl.federation.client import train_client
from isfl.federation.values import ClientMemory, TrainTask
from tests.grids import config_of, engine_of, federation_of, rounds, run_locally
from tests.resumable import TINY, config, outcome
from tests.worlds import federate, random_images, same_bits, seeded, settings_of

SEEN: list[Tensor] = []


def recorded(batch: Tensor, generator: torch.Generator) -> Tensor:
    SEEN.append(batch.clone())
    return batch


def blank(batch: Tensor, generator: torch.Generator) -> Tensor:
    """In place, which is allowed: a batch is a copy."""
    return batch.zero_()


def of_images(settings: Settings, workers: int = 1) -> LocalEngine:
    def images(counts: tuple[int, ...], seed: int) -> Dataset:
        labels = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
        pixels = torch.randint(0, 100, (len(labels), 1, 8, 8), generator=seeded(seed), dtype=torch.uint8)
        pixels[torch.arange(len(labels)), 0, labels] = 200  # a bright row, at the height of the class
        return Dataset(pixels, labels, len(counts))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4))
    clients = [images((20, 4, 4, 4), 1), images((4, 4, 4, 20), 2)]
    return LocalEngine(model, clients, images((5, 5, 5, 5), 3), images((9, 9, 9, 9), 4), settings, workers=workers)


def with_transforms(scheme: Any, *transforms: Any, **training: Any) -> Settings:
    return settings_of(scheme, target={"kind": "uniform"}, training={"augment": list(transforms), **training})


def test_augmentation_changes_the_result_of_training() -> None:
    states = [
        federate(settings, of_images(settings))[0]
        for settings in (
            with_transforms("fedavg"),
            with_transforms("fedavg", "crop"),
            with_transforms("fedavg", "flip"),
        )
    ]
    assert not same_bits(states[0], states[1]) and not same_bits(states[0], states[2])


def test_a_word_is_short_for_a_table() -> None:
    training = with_transforms("fedavg", "crop", {"kind": "flip", "probability": 0.1}, "a.b:c").training
    assert training.augment == [Crop(padding=4), Flip(probability=0.1), OwnTransform(function="a.b:c")]


def test_a_transform_that_changes_nothing_is_no_augmentation_to_the_last_bit() -> None:
    plain, same = with_transforms("isfl"), with_transforms("isfl", f"{__name__}:recorded")
    assert same_bits(federate(plain, of_images(plain))[0], federate(same, of_images(same))[0])


@pytest.fixture
def seen() -> Iterator[list[Tensor]]:
    SEEN.clear()
    yield SEEN
    SEEN.clear()


@pytest.mark.parametrize("scheme", ["isfl", "isfedavg", "moon", {"name": "isfl", "sampling": {"where": "client"}}])
def test_only_training_samples_are_transformed_as_they_are_stored(scheme: Any, seen: list[Tensor]) -> None:
    """ISFL's public set, gradient norms and evaluation are passes over data as well."""
    settings = with_transforms(scheme, f"{__name__}:recorded", rounds=2, local_epochs=3)
    engine = of_images(settings)
    federate(settings, engine)
    assert sum(map(len, seen)) == 2 * 3 * (32 + 32)
    assert all(batch.dtype == torch.uint8 and len(batch) == 16 for batch in seen)
    stored = {bytes(image.flatten().tolist()) for image in engine.clients.data.stored()}
    assert all(bytes(image.flatten().tolist()) in stored for batch in seen for image in batch)


def test_a_transform_that_blanks_images_leaves_every_measurement_alone() -> None:
    measured: list[Any] = []
    for transforms in ([], [f"{__name__}:blank"]):
        settings = with_transforms({"name": "isfl"}, *transforms)
        engine = of_images(settings)
        reference = engine.server.initial_model()
        local = {name: value + 0.01 for name, value in reference.items()}
        estimate = engine.server.lipschitz([local], reference)
        standard, clients = engine.evaluate(local)
        stored = engine.clients.data.stored().clone()
        (update, *_) = engine.train([TrainTask(1, 0, reference, np.full(4, 0.25), None)])
        assert torch.equal(engine.clients.data.stored(), stored), "the stored images do not change"
        measured.append(
            (estimate.values, standard.total, dict(clients), engine.server.public_loss(local), update.train_loss)
        )
    plain, blanked = measured
    assert np.array_equal(plain[0], blanked[0]) and plain[0].min() > 0
    assert plain[1:3] == blanked[1:3] and np.array_equal(plain[3], blanked[3])
    assert plain[4] != blanked[4], "training has seen blank images"


def test_isfedavg_weighs_samples_by_gradients_of_untransformed_images() -> None:
    probabilities = []
    for transforms in ([], [f"{__name__}:blank"]):
        settings = with_transforms("isfedavg", *transforms)
        engine = of_images(settings)
        task = TrainTask(2, 0, engine.server.initial_model(), np.full(4, 0.25), None)
        _, memory = train_client(engine.model, task, engine.clients[0], settings, ClientMemory())
        assert memory.probabilities is not None
        probabilities.append(memory.probabilities)
    assert np.array_equal(probabilities[0], probabilities[1])
    local_mix = np.array([20, 4, 4, 4]) / 32
    assert not np.allclose(probabilities[0], local_mix), "gradient norms are not all the same"


def test_trying_a_transform_does_not_change_the_data() -> None:
    inputs = random_images(2)
    check_transforms([OwnTransform(function=f"{__name__}:blank")], inputs)
    assert torch.equal(inputs, random_images(2))


AUGMENT = ["crop", {"kind": "flip", "probability": 0.4}]


@pytest.mark.parametrize("scheme", ["isfl", "moon"])
def test_two_workers_augment_like_one(scheme: str) -> None:
    settings = with_transforms(scheme, *AUGMENT, local_epochs=2)
    states = []
    for workers in (1, 2):
        with of_images(settings, workers) as engine:
            states.append(federate(settings, engine)[0])
    assert same_bits(*states)


def test_flower_nodes_augment_like_the_local_engine(tmp_path: Path) -> None:
    settings = config_of("isfl", training={"augment": AUGMENT})
    expected, _ = run_locally(settings)
    found, reports = rounds(settings, engine_of(settings, federation_of(tmp_path), tmp_path))
    assert all(report.refused == {} for report in reports)
    assert same_bits(expected, found)
    assert not same_bits(expected, run_locally(config_of("isfl"))[0])


def test_an_interrupted_run_augments_like_an_uninterrupted_one(tmp_path: Path) -> None:
    settings = config(training={**TINY["training"], "augment": AUGMENT, "rounds": 4})

    def interrupt(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    run(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "stopped", interrupt)
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")
