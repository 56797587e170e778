"""Inputs larger than memory are decoded once into a file of the cache and read by batch, with the same bits."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import isfl
from isfl.data import DataSettings, collect, load
from isfl.data.given import source_of
from isfl.data.stored import RowFile, RowWriter, StoredInputs
from isfl.errors import UserError
from tests.resumable import outcome

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (600, 3, 8, 8), np.uint8)
LABELS = np.arange(600) % 3
NAMES = ("cat", "dog", "fish")
TRAIN, TEST = (
    TensorDataset(torch.from_numpy(IMAGES[rows]), torch.from_numpy(LABELS[rows]))
    for rows in (slice(540), slice(540, 600))
)
CONFIG: dict[str, Any] = {
    "scheme": "isfl",
    "data": {"public": 30},
    "split": {"kind": "iid", "clients": 3, "samples_per_client": 40},
    "model": {"name": "mlp", "width": 0.25},
    "training": {"rounds": 2, "local_epochs": 1, "batch_size": 16, "augment": ["crop"]},
}


@pytest.fixture
def small_memory(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything above a kilobyte counts as large; returns where it goes."""
    monkeypatch.setattr(collect, "IN_MEMORY", 1024)
    return own_cache / "decoded"


def stored(count: int = 50) -> StoredInputs:
    writer = RowWriter((3, 8, 8), np.dtype(np.uint8))
    for start in range(0, count, 7):
        writer.add(IMAGES[start : min(start + 7, count)])
    return writer.finish()


def test_rows_are_read_in_any_order(own_cache: Path) -> None:
    rows, images = stored(), torch.from_numpy(IMAGES[:50])
    assert rows.shape == images.shape and rows.dtype == torch.uint8
    for index in (torch.tensor([3, 4, 5, 40, 2, 2, 49, 0]), torch.tensor([], dtype=torch.int64), torch.arange(50)):
        assert torch.equal(rows[index], images[index])
    for part in (slice(None), slice(10, 20), slice(45, 99), slice(5, 5)):
        assert torch.equal(rows[part], images[part])
    order = torch.tensor([9, 8, 7, 30])
    assert torch.equal(rows.view(order)[slice(1, 4)], images[order][1:4])
    assert torch.equal(rows.reshaped((192,))[slice(2)], images[:2].flatten(1))


def test_a_file_is_named_after_its_content_and_damage_does_not_last(own_cache: Path) -> None:
    first = stored().file.path
    assert [first] == list((own_cache / "decoded").iterdir())
    first.write_bytes(b"damage")
    again = stored()
    assert again.file.path == first and torch.equal(again[slice(None)], torch.from_numpy(IMAGES[:50]))
    assert stored(49).file.path != first
    abandoned = RowWriter((1,), np.dtype(np.uint8))
    abandoned.add(IMAGES[:1, 0, 0, :1])
    abandoned.close()
    assert len(list((own_cache / "decoded").iterdir())) == 2, "a draft that is not finished leaves nothing"


def test_rows_survive_pickling_and_the_removal_of_their_file(own_cache: Path) -> None:
    rows = stored()
    assert torch.equal(pickle.loads(pickle.dumps(rows))[slice(None)], rows[slice(None)])
    assert torch.equal(copy.deepcopy(rows)[slice(3)], rows[slice(3)])
    rows.file.path.unlink()
    assert torch.equal(rows[slice(None)], torch.from_numpy(IMAGES[:50]))


def test_a_truncated_file_is_refused(own_cache: Path) -> None:
    file = stored().file.path
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match="is truncated; remove it and start again"):
        RowFile(file, (3, 8, 8), np.dtype(np.uint8)).read(np.array([49]))


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ISFL_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"the cache cannot be written .*; set ISFL_CACHE to a larger disk"):
        stored()


def test_a_large_data_set_stays_in_its_file(small_memory: Path) -> None:
    source = source_of((TRAIN, TEST), "data")
    assert isinstance(source.train.inputs, StoredInputs) and isinstance(source.test.inputs, StoredInputs)
    chosen = source.train.subset(np.array([5, 3, 400]))
    assert isinstance(chosen.inputs, StoredInputs) and isinstance(chosen.rows(0, 2).inputs, StoredInputs)
    assert torch.equal(chosen.stored(), torch.from_numpy(IMAGES[[5, 3, 400]]))
    assert isinstance(chosen.in_memory().inputs, torch.Tensor)
    arrays = source_of((IMAGES, LABELS, IMAGES[:60], LABELS[:60]), "data")
    assert isinstance(arrays.train.inputs, StoredInputs)


def test_a_run_on_a_file_is_that_in_memory_for_any_number_of_workers(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = isfl.run(CONFIG, data=(TRAIN, TEST), out=tmp_path / "memory", workers=1)
    monkeypatch.setattr(collect, "IN_MEMORY", 1024)
    for workers in (1, 2):
        run = isfl.run(CONFIG, data=(TRAIN, TEST), out=tmp_path / f"file-{workers}", workers=workers)
        assert outcome(run.path) == outcome(expected.path)
        names = [(path.path / "split.json").read_text() for path in (run, expected)]
        assert names[0] == names[1], "checksums do not depend on where the data is"
    assert list((own_cache / "decoded").iterdir())


def test_feature_skew_and_clients_of_their_own_work_on_files(small_memory: Path, tmp_path: Path) -> None:
    split = {"kind": "feature", "clients": 2, "samples_per_client": 40}
    assert isfl.run({**CONFIG, "split": split}, ["training.rounds=1"], data=(TRAIN, TEST), out=tmp_path / "a").finished
    natural = {key: value for key, value in CONFIG.items() if key != "split"}
    data = ([TRAIN, TEST], TEST)
    assert isfl.run(natural, ["training.rounds=1"], data=data, out=tmp_path / "b", workers=1).finished


def test_pictures_in_class_folders_are_decoded_into_a_file(small_memory: Path, tmp_path: Path) -> None:
    for number in range(12):
        for part in ("train", "test"):
            file = tmp_path / "pictures" / part / NAMES[number % 3] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(IMAGES[number].transpose(1, 2, 0)).save(file)
    source = load(DataSettings(name="folders", path=str(tmp_path / "pictures")))
    assert isinstance(source.train.inputs, StoredInputs) and source.class_names == NAMES
    order = [number for label in range(3) for number in sorted(range(label, 12, 3), key=str)]
    assert torch.equal(source.train.stored(), torch.from_numpy(IMAGES[order]))
