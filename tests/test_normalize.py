"""Normalisation: by hand, in every part of a run, and refused where it does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from isfl.data import Dataset, DataSettings, load
from isfl.data.normalize import Normalize, normalized
from isfl.data.population import StoredPopulation
from isfl.problem.config import config_from
from isfl.problem.problem import prepare
from tests.grids import config_of, engine_of, federation_of, rounds, run_locally
from tests.refusals import refusal
from tests.worlds import same_bits

RNG = np.random.default_rng(0)
MEAN, STD = [0.1, 0.5, 0.9], [0.2, 0.3, 2.0]


def write_pictures(file: Path, kind: type = np.uint8) -> np.ndarray:
    """An npz file of random 4x5 pictures in three channels, as (N, 3, 4, 5)."""
    pictures: np.ndarray = RNG.integers(0, 256, (12, 3, 4, 5)).astype(kind)
    np.savez(file, x_train=pictures[:8], y_train=np.arange(8) % 2, x_test=pictures[8:], y_test=np.arange(4) % 2)
    return pictures


def by_hand(values: np.ndarray) -> np.ndarray:
    """Channel by channel, in double precision."""
    channels = [(values[:, c].astype(float) - MEAN[c]) / STD[c] for c in range(3)]
    return np.stack(channels, axis=1)


@pytest.mark.parametrize(("kind", "scale"), [(np.uint8, 255.0), (np.float32, 1.0)])
def test_channels_are_normalised_by_mean_and_deviation(tmp_path: Path, kind: type, scale: float) -> None:
    """Bytes are pixels between 0 and 1 first; floats are taken as they are."""
    pictures = write_pictures(tmp_path / "a.npz", kind)
    settings = DataSettings(name="npz", path=str(tmp_path / "a.npz"), normalize=Normalize(mean=MEAN, std=STD))
    source = load(settings)
    for data, stored in ((source.train, pictures[:8]), (source.test, pictures[8:])):
        inputs = data.everything()[0]
        np.testing.assert_allclose(inputs.numpy(), by_hand(stored / scale), rtol=1e-4, atol=1e-5)
        assert inputs.dtype == torch.float32 and inputs.is_contiguous(memory_format=torch.channels_last)
        assert np.array_equal(data.stored().numpy(), stored), "stored inputs do not change"


def test_vectors_are_normalised_feature_by_feature() -> None:
    vectors = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    data = normalized(Dataset(vectors, torch.tensor([0, 1]), 2), Normalize(mean=[1.0, 20.0], std=[2.0, 5.0]))
    assert data.everything()[0].tolist() == [[0.0, -2.0], [1.0, 2.0]]


def test_normalisation_survives_every_way_to_take_samples(tmp_path: Path) -> None:
    pictures = by_hand(write_pictures(tmp_path / "a.npz") / 255.0)[:8]
    settings = DataSettings(name="npz", path=str(tmp_path / "a.npz"), normalize=Normalize(mean=MEAN, std=STD))
    data = load(settings).train
    some = np.array([5, 0, 3])
    population = StoredPopulation.of([data.subset(some), data.rows(6, 8)])
    for found, expected in (
        (data.batch(some)[0], pictures[some]),
        (data.batch(slice(1, 4))[0], pictures[1:4]),
        (data.subset(some).everything()[0], pictures[some]),
        (data.rows(2, 6).everything()[0], pictures[2:6]),
        (data.rows(2, 6).subset(np.array([1])).everything()[0], pictures[3:4]),
        (population[0].everything()[0], pictures[some]),
        (population[1].everything()[0], pictures[6:8]),
        (population.data.everything()[0], pictures[[5, 0, 3, 6, 7]]),
    ):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_clients_public_set_and_test_set_of_a_run_are_normalised() -> None:
    """For the embedded images, also if every client has its own lens."""
    for split in ({"kind": "iid"}, {"kind": "feature", "lens": "contrast"}):
        config = config_from(
            {
                "data": {"public": 20, "normalize": {"mean": [0.3], "std": [0.5]}},
                "split": {**split, "clients": 2, "samples_per_client": 10},
            },
            "test",
        )
        problem = prepare(config)
        for data in (*problem.clients, problem.public, problem.test):
            expected = (data.inputs.double() / 255 - 0.3) / 0.5
            torch.testing.assert_close(data.everything()[0].double(), expected, rtol=1e-4, atol=1e-5)


def test_flower_nodes_normalise_like_the_local_engine(tmp_path: Path) -> None:
    config = config_of("isfl", data={"public": 40, "normalize": {"mean": [0.3], "std": [0.5]}})
    expected, _ = run_locally(config)
    assert same_bits(expected, rounds(config, engine_of(config, federation_of(tmp_path), tmp_path))[0])
    assert not same_bits(expected, run_locally(config_of("isfl"))[0])


def tokens() -> tuple[np.ndarray, ...]:
    return np.ones((80, 5), int), np.arange(80) % 4, np.ones((8, 5), int), np.arange(8) % 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.normalize={mean=[0.5,0.5,0.5], std=[1.0,1.0,1.0]}"], "data.normalize has 3 channels, the data has 1"),
        (["data.normalize={mean=[0.5], std=[0.0]}"], "data.normalize: std has 0; deviations are at least 1e-06"),
        (["data.normalize={mean=[0.5], std=[-1.0]}"], "data.normalize: std has -1; deviations are at least 1e-06"),
        (["data.normalize={mean=[0.5,0.5], std=[1.0]}"], "data.normalize: mean has 2 numbers and std 1"),
        (["data.normalize={mean=[], std=[]}"], "data.normalize.mean: found []"),
        (["data.normalize={mean=[0.5]}"], "data.normalize.std: is required"),
        (["data.normalize={mean=['grey'], std=[1.0]}"], "data.normalize.mean.0: found 'grey'"),
        (
            [f"data.name={__name__}:tokens", "data.normalize={mean=[0.5,0.5,0.5,0.5,0.5], std=[1.0,1.0,1.0,1.0,1.0]}"],
            "data.normalize: inputs of type torch.int64 cannot be normalised; leave it out",
        ),
    ],
)
def test_a_normalisation_that_does_not_fit_is_refused(
    changes: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refusal(tmp_path, capsys, *changes)
    assert not (tmp_path / "out").exists()
