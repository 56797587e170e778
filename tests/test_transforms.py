"""Crop and flip against slow loops, and where their randomness comes from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from isfl.data.transforms import augmentation
from isfl.data.transforms.crop import Crop, crop
from isfl.data.transforms.flip import Flip, flip
from isfl.data.transforms.own import OwnTransform
from tests.worlds import random_images, seeded


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
    assert len(found) > 3, "images are cropped at different places"


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
    """Each pixel holds its position, so the centre of a crop gives the offsets; 25 offsets, 400 images each."""
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


def doubled(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch * 2


def plus_one(batch: Tensor, generator: torch.Generator) -> Tensor:
    return batch + 1
