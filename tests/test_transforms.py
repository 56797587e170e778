"""Augmentation: what crop and flip do, where their randomness comes from, and that it touches training batches only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isfl.data import Dataset
from isfl.data.transforms import augmentation, check_transforms
from isfl.data.transforms.crop import Crop, crop
from isfl.data.transforms.flip import Flip, flip
from isfl.data.transforms.own import OwnTransform
from isfl.engines import LocalEngine
from isfl.experiment.run import resume, run
from isfl.federation import Settings
from isfl.federation.client import train_client
from isfl.federation.values import ClientMemory, TrainTask
from tests.grids import at_home, config_of, engine_of, federation_of, rounds
from tests.refusals import refusal
from tests.resumable import TINY, config, outcome
from tests.worlds import federate, same_bits, settings_of


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(count: int, side: int = 8, channels: int = 3) -> Tensor:
    return torch.randint(1, 256, (count, channels, side, side), generator=seeded(1), dtype=torch.uint8)


# ---------------------------------------------------------------- crop and flip against slow loops


def slow_window(image: Tensor, top: int, left: int, padding: int) -> Tensor:
    """Pixel by pixel: the window at (top, left) of the image with a black border."""
    _, height, width = image.shape
    window = torch.zeros_like(image)
    for y in range(height):
        for x in range(width):
            row, column = y + top - padding, x + left - padding
            if 0 <= row < height and 0 <= column < width:
                window[:, y, x] = image[:, row, column]
    return window


def slow_mirror(image: Tensor) -> Tensor:
    mirrored = torch.zeros_like(image)
    for x in range(image.shape[2]):
        mirrored[:, :, x] = image[:, :, image.shape[2] - 1 - x]
    return mirrored


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 5, 7)])
@pytest.mark.parametrize("padding", [1, 2])
def test_a_crop_is_one_window_of_its_own_padded_image(shape: tuple[int, int, int], padding: int) -> None:
    images = torch.randint(1, 256, (12, *shape), generator=seeded(1), dtype=torch.uint8)
    places = range(2 * padding + 1)
    cropped = crop(images, padding, seeded())
    assert cropped.shape == images.shape and cropped.dtype == torch.uint8
    found = set()
    for image, result in zip(images, cropped, strict=True):
        windows = [
            (t, left) for t in places for left in places if torch.equal(slow_window(image, t, left, padding), result)
        ]
        assert len(windows) == 1
        found.add(windows[0])
    assert len(found) > 3, "images are cropped at places of their own"


def test_a_flip_mirrors_whole_images_or_leaves_them() -> None:
    images = random_images(40)
    flipped = flip(images, 0.5, seeded())
    assert flipped.shape == images.shape and flipped.dtype == torch.uint8
    mirrored = [torch.equal(result, slow_mirror(image)) for image, result in zip(images, flipped, strict=True)]
    kept = [torch.equal(result, image) for image, result in zip(images, flipped, strict=True)]
    assert all(a != b for a, b in zip(mirrored, kept, strict=True))
    assert 5 < sum(mirrored) < 35
    assert torch.equal(flip(images, 1.0, seeded()), torch.stack([slow_mirror(image) for image in images]))


def test_images_of_floats_are_cropped_and_flipped_too() -> None:
    images = random_images(20)
    assert torch.equal(crop(images / 255, 2, seeded(3)), crop(images, 2, seeded(3)) / 255)
    assert torch.equal(flip(images / 255, 0.5, seeded(3)), flip(images, 0.5, seeded(3)) / 255)


def test_every_offset_of_a_crop_is_equally_likely() -> None:
    """Each pixel holds its own place, so that the centre of a crop tells the offsets; 25 places, 400 images each."""
    count, side, padding = 10_000, 8, 2
    places = torch.arange(side * side, dtype=torch.uint8).view(1, 1, side, side).expand(count, 1, side, side)
    centre = crop(places, padding, seeded())[:, 0, side // 2, side // 2].long()
    rows, columns = centre // side - side // 2 + padding, centre % side - side // 2 + padding
    counts = torch.bincount(rows * 5 + columns, minlength=25)
    assert len(counts) == 25
    assert counts.min() > 400 - 5 * 20 and counts.max() < 400 + 5 * 20  # the deviation of each is about 20


@pytest.mark.parametrize("probability", [0.5, 0.2])
def test_the_share_of_mirrored_images_is_the_probability(probability: float) -> None:
    images = torch.zeros(10_000, 1, 1, 2, dtype=torch.uint8)
    images[..., 0] = 1
    mirrored = flip(images, probability, seeded())[:, 0, 0, 1].float()
    assert float(mirrored.mean()) == pytest.approx(probability, abs=0.02)
    pairs = torch.bincount((mirrored[0::2] * 2 + mirrored[1::2]).long(), minlength=4) / 5000
    p = probability
    assert pairs.tolist() == pytest.approx([(1 - p) ** 2, p * (1 - p), p * (1 - p), p**2], abs=0.03)


# ---------------------------------------------------------------- randomness


def augmented(seed: int = 0, round: int = 1, client: int = 0, epoch: int = 0) -> Tensor:
    augment = augmentation([Crop(padding=2), Flip()], seed, round, client)
    assert augment is not None
    return augment(epoch)(random_images(32))


@pytest.mark.parametrize("other", [{"seed": 1}, {"round": 2}, {"client": 1}, {"epoch": 1}], ids=lambda o: next(iter(o)))
def test_augmentation_is_a_function_of_seed_round_client_and_epoch(other: dict[str, int]) -> None:
    assert torch.equal(augmented(), augmented())
    assert not torch.equal(augmented(), augmented(**other))
    assert torch.equal(augmented(**other), augmented(**other))


def test_augmentation_does_not_depend_on_call_order_or_on_torchs_generator() -> None:
    augment = augmentation([Crop(padding=2), Flip()], 0, 1, 0)
    assert augment is not None
    torch.manual_seed(5)
    before = torch.get_rng_state()
    later = augment(1)(random_images(32))
    torch.manual_seed(6)
    assert torch.equal(augment(0)(random_images(32)), augmented())
    assert torch.equal(later, augmented(epoch=1))
    torch.set_rng_state(before)
    augmented()
    assert torch.equal(torch.get_rng_state(), before)


def test_two_batches_of_an_epoch_are_changed_differently() -> None:
    augment = augmentation([Crop(padding=2)], 0, 1, 0)
    assert augment is not None
    transform = augment(0)
    assert not torch.equal(transform(random_images(32)), transform(random_images(32)))


def test_transforms_apply_in_the_order_given() -> None:
    def own(transforms: list[str]) -> int:
        augment = augmentation([OwnTransform(function=f"{__name__}:{name}") for name in transforms], 0, 1, 0)
        assert augment is not None
        return int(augment(0)(torch.full((1, 1, 1, 1), 3, dtype=torch.uint8)))

    assert own(["doubled", "plus_one"]) == 7 and own(["plus_one", "doubled"]) == 8
    assert augmentation([], 0, 1, 0) is None


# ---------------------------------------------------------------- a federation of images

SEEN: list[Tensor] = []


def doubled(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch * 2


def plus_one(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch + 1


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
    stored = {bytes(image.flatten().tolist()) for image in engine.clients.data.inputs}
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
        stored = engine.clients.data.inputs.clone()
        (update, *_) = engine.train([TrainTask(1, 0, reference, np.full(4, 0.25), None)])
        assert torch.equal(engine.clients.data.inputs, stored), "the stored images are what they were"
        measured.append(
            (estimate.values, standard.total, dict(clients), engine.server.public_loss(local), update.train_loss)
        )
    plain, blanked = measured
    assert np.array_equal(plain[0], blanked[0]) and plain[0].min() > 0
    assert plain[1:3] == blanked[1:3] and np.array_equal(plain[3], blanked[3])
    assert plain[4] != blanked[4], "training has seen blank images"


def test_isfedavg_weighs_samples_by_gradients_of_images_as_they_are() -> None:
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


# ---------------------------------------------------------------- the same bits everywhere

AUGMENT = ["crop", {"kind": "flip", "probability": 0.4}]


@pytest.mark.parametrize("scheme", ["isfl", "moon"])
def test_two_workers_augment_as_one(scheme: str) -> None:
    settings = with_transforms(scheme, *AUGMENT, local_epochs=2)
    states = []
    for workers in (1, 2):
        with of_images(settings, workers) as engine:
            states.append(federate(settings, engine)[0])
    assert same_bits(*states)


def test_flower_nodes_augment_as_the_local_engine(tmp_path: Path) -> None:
    settings = config_of("isfl", training={"augment": AUGMENT})
    expected, _ = at_home(settings)
    found, reports = rounds(settings, engine_of(settings, federation_of(tmp_path), tmp_path))
    assert all(report.refused == {} for report in reports)
    assert same_bits(expected, found)
    assert not same_bits(expected, at_home(config_of("isfl"))[0])


def test_an_interrupted_run_augments_as_an_uninterrupted_one(tmp_path: Path) -> None:
    settings = config(training={**TINY["training"], "augment": AUGMENT, "rounds": 4})

    def interrupt(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    run(settings, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "stopped", interrupt)
    resume(tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "whole")


# ---------------------------------------------------------------- what does not fit


def vectors() -> tuple[np.ndarray, ...]:
    return np.ones((200, 5)), np.arange(200) % 4, np.ones((20, 5)), np.arange(20) % 4


def smaller(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch[:, :, 1:]


def fewer(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch[1:]


def as_floats(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch / 255


def not_finite(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch * float("nan")


def as_array(batch: Tensor, generator: torch.Generator) -> np.ndarray:
    return batch.numpy()


def nothing(batch: Tensor, generator: torch.Generator) -> None:
    return None


def raising(batch: Tensor, generator: torch.Generator) -> Tensor:
    raise RuntimeError("the scanner is jammed")


def lonely(batch: Tensor) -> Tensor:
    return batch


VECTORS = f"data.name={__name__}:vectors"


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        (["crp"], "training.augment.0.kind: found 'crp'; choose one of 'crop', 'flip', 'own'"),
        ([{"padding": 2}], "training.augment.0: needs the key 'kind'"),
        ([{"kind": "crop", "padding": 0}], "training.augment.0.padding: found 0"),
        (["flip", {"kind": "flip", "probability": 1.5}], "training.augment.1.probability: found 1.5"),
        (["a b:c"], "training.augment.0: found 'a b:c'"),
        (["no_such_module:f"], "training.augment = 'no_such_module:f': cannot import 'no_such_module'"),
        ([f"{__name__}:absent"], "has no 'absent'"),
        ([f"{__name__}:smaller"], "into torch.uint8 (2, 1, 27, 28); it should keep type and shape"),
        ([f"{__name__}:fewer"], "into torch.uint8 (1, 1, 28, 28); it should keep type and shape"),
        ([f"{__name__}:as_floats"], "a batch of torch.uint8 (2, 1, 28, 28) into torch.float32"),
        ([f"{__name__}:as_array"], "it returned ndarray; it should return a tensor"),
        ([f"{__name__}:nothing"], "it returned NoneType; it should return a tensor"),
        ([f"{__name__}:raising"], "it raised RuntimeError: the scanner is jammed"),
        ([f"{__name__}:lonely"], "it raised TypeError: lonely() takes 1 positional argument but 2 were given"),
        ([f"{__name__}:AUGMENT"], "it raised TypeError: 'list' object is not callable"),
    ],
    ids=str,
)
def test_a_transform_that_does_not_fit_is_refused_before_the_first_round(
    transforms: list[Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "{" + ", ".join(f"{key} = {value!r}" for key, value in entry.items()) + "}"
        if isinstance(entry, dict)
        else repr(entry)
        for entry in transforms
    ]
    line = refusal(tmp_path, capsys, f"training.augment=[{', '.join(words)}]")
    assert "training.augment" in line and message in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("crop", "'crop' needs images (channels, height, width), the data has inputs of shape (5,)"),
        ("flip", "'flip' needs images (channels, height, width), the data has inputs of shape (5,)"),
        (f"{__name__}:not_finite", "it returned values that are not finite"),
    ],
)
def test_a_transform_that_does_not_fit_vectors_is_refused(
    transform: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refusal(tmp_path, capsys, VECTORS, f"training.augment=['{transform}']")
    assert "training.augment" in line and message in line
    assert not (tmp_path / "out").exists()


CALLS: list[int] = []


def raising_later(batch: Tensor, generator: torch.Generator) -> Tensor:
    CALLS.append(len(batch))
    if len(CALLS) > 3:
        raise RuntimeError("the scanner is jammed")
    return batch


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_transform_that_fails_in_a_round_ends_the_run_with_one_line(
    jobs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CALLS.clear()
    line = refusal(tmp_path, capsys, f"training.augment=['{__name__}:raising_later']", "training.rounds=50", jobs=jobs)
    assert "it raised RuntimeError: the scanner is jammed" in line
