"""Data sets as people have them, given from Python or returned by a function: what they become."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

import isfl
from isfl.data import DataSettings, Source, load
from isfl.data.given import source_of
from isfl.problem.given import given_objects
from isfl.problem.problem import prepare
from tests.commands import isfl as command
from tests.resumable import outcome

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (60, 8, 8), np.uint8)
LABELS = np.arange(60) % 3
NAMES = ["cat", "dog", "fish"]
SMALL: dict[str, Any] = {
    "scheme": "isfl",
    "data": {"public": 9},
    "training": {"rounds": 2, "local_epochs": 1, "batch_size": 16},
}
SPLIT = {"kind": "iid", "clients": 2, "samples_per_client": 18}


class Pictures:
    """A map-style data set of pictures, as torchvision has them."""

    classes = NAMES

    def __init__(self, rows: slice, words: bool = False) -> None:
        self.rows, self.words = rows, words

    def __len__(self) -> int:
        return len(LABELS[self.rows])

    def __getitem__(self, number: int) -> tuple[Image.Image, int | str]:
        label = int(LABELS[self.rows][number])
        return Image.fromarray(IMAGES[self.rows][number]), NAMES[label] if self.words else label


def tensors(rows: slice) -> TensorDataset:
    return TensorDataset(torch.from_numpy(IMAGES[rows]), torch.from_numpy(LABELS[rows]))


TRAIN, TEST = slice(0, 45), slice(45, 60)
ARRAYS = (IMAGES[TRAIN], LABELS[TRAIN], IMAGES[TEST], LABELS[TEST])


def hugging_face() -> Any:
    import datasets

    features = datasets.Features({"picture": datasets.Image(), "kind": datasets.ClassLabel(names=NAMES)})
    return datasets.DatasetDict(
        {
            part: datasets.Dataset.from_dict(
                {"picture": [Image.fromarray(i) for i in IMAGES[rows]], "kind": LABELS[rows].tolist()},
                features=features,
            )
            for part, rows in (("train", TRAIN), ("test", TEST))
        }
    )


def same(source: Source, other: Source) -> bool:
    pairs = ((source.train, other.train), (source.test, other.test))
    return all(torch.equal(a.stored(), b.stored()) and torch.equal(a.labels, b.labels) for a, b in pairs)


FORMS: dict[str, Any] = {
    "four arrays": lambda: ARRAYS,
    "a dictionary of arrays": lambda: dict(zip(("x_train", "y_train", "x_test", "y_test"), ARRAYS, strict=True)),
    "pairs of arrays": lambda: (ARRAYS[:2], ARRAYS[2:]),
    "tensors": lambda: (tensors(TRAIN), tensors(TEST)),
    "pictures": lambda: {"train": Pictures(TRAIN), "test": Pictures(TEST)},
    "pictures with words as labels": lambda: (Pictures(TRAIN, words=True), Pictures(TEST, words=True)),
    "words as labels": lambda: {
        "train": (ARRAYS[0], [NAMES[i] for i in ARRAYS[1]]),
        "test": ARRAYS[2:],
        "classes": NAMES,
    },
    "Hugging Face": hugging_face,
    "Hugging Face, as torch tensors": lambda: hugging_face().with_format("torch"),
    "isfl": lambda: tuple(
        isfl.Dataset(torch.from_numpy(ARRAYS[i]), torch.from_numpy(ARRAYS[i + 1]), 3) for i in (0, 2)
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_samples_is_the_same_data(form: str) -> None:
    expected = source_of(ARRAYS, "data")
    found = source_of(FORMS[form](), "data")
    assert found.train.inputs.shape == (45, 1, 8, 8) and same(found, expected) and found.bounds is None
    named = any(word in form for word in ("pictures", "words", "Hugging"))
    assert found.class_names == (tuple(NAMES) if named else ("0", "1", "2"))


def test_a_function_may_return_any_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("forms.py").write_text("from tests.test_given_data import *\ndef load(): return FORMS['pictures']()\n")
    found = load(DataSettings(name="forms:load"))
    assert same(found, source_of(ARRAYS, "data")) and found.class_names == tuple(NAMES)


class Noisy(Pictures):
    """Transforms its samples with the global generators."""

    def __getitem__(self, number: int) -> tuple[Any, int | str]:
        return torch.rand(2) + float(np.random.rand()), number % 3  # noqa: NPY002


def test_a_data_set_that_transforms_at_random_is_the_same_every_time_and_global_generators_are_left_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    first, second = (source_of((Noisy(TRAIN), Noisy(TEST)), "data") for _ in range(2))
    assert same(first, second) and len(set(first.train.stored().flatten().tolist())) == 90
    after = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(before[0], after[0]) and before[1] == after[1]


# ---------------------------------------------------------------- runs


class Net(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU())
        self.head = nn.Linear(8, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


def stop(record: dict[str, Any]) -> None:
    raise KeyboardInterrupt


DATA = (tensors(TRAIN), tensors(TEST))
WRITERS = {f"writer {k}": tensors(slice(15 * k, 15 * k + 15)) for k in range(3)}


def test_a_run_on_objects_is_that_on_the_same_data_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("mine.npz", x_train=ARRAYS[0], y_train=ARRAYS[1], x_test=ARRAYS[2], y_test=ARRAYS[3])
    Path("nets.py").write_text("from tests.test_given_data import Net\n")
    config = {**SMALL, "split": SPLIT}
    named = {**config, "data": {"public": 9, "name": "npz", "path": "mine.npz"}, "model": {"name": "nets:Net"}}
    by_name = isfl.run(named, out=tmp_path / "named", workers=1)
    for workers in (1, 2):
        run = isfl.run(config, data=DATA, model=Net, out=tmp_path / f"given-{workers}", workers=workers)
        assert outcome(run.path) == outcome(by_name.path)
        assert (run.config.data.name, run.config.model.name) == ("python", "python")


def test_a_module_is_trained_from_its_weights_and_stays_as_it_is(tmp_path: Path) -> None:
    net = Net((1, 8, 8), 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    config = {**SMALL, "split": SPLIT, "scheme": "fedavg"}
    run = isfl.run(config, ["training.optimizer={kind='sgd', lr=1e-12}"], data=DATA, model=net, out=tmp_path / "a")
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items()) and net.training
    final = run.model(model=net)
    assert all(torch.allclose(value, before[name]) for name, value in final.state_dict().items())
    with pytest.raises(isfl.UserError, match=r"model\.name = 'python': the model was given from Python; give it again"):
        run.model()


def test_clients_that_the_data_comes_with_are_the_clients_of_the_run(tmp_path: Path) -> None:
    run = isfl.run(SMALL, data={"train": WRITERS, "test": tensors(TEST)}, model=Net, out=tmp_path / "a", workers=2)
    assert run.config.split.kind == "natural"
    counts = np.array(run._directory.split["client_counts"])
    assert counts.shape == (3, 3) and counts.sum() == 45 - 9
    for given in ([*WRITERS.values()], WRITERS):
        source = source_of((given, tensors(TEST)), "data")
        assert source.bounds is not None and source.bounds.tolist() == [0, 15, 30, 45]
    assert source.client_names == ("writer 0", "writer 1", "writer 2")
    everything = isfl.run(
        SMALL, ["data.public_from=all"], data=([*WRITERS.values()], tensors(TEST)), model=Net, out=tmp_path / "b"
    )
    assert np.array(everything._directory.split["client_counts"]).tolist() == [[5, 5, 5]] * 3


def test_every_client_keeps_its_own_samples_when_the_public_set_is_taken_out() -> None:
    sizes = (20, 5, 12)
    clients = [(np.full((size, 4), k, np.float32), np.arange(size) % 3) for k, size in enumerate(sizes)]
    given = given_objects((clients, clients[0]), None)
    config = isfl.load_config({"data": {"name": "python", "public": 12}, "model": {"name": "mlp"}})
    problem = prepare(config, given)
    for k, client in enumerate(problem.clients):
        assert set(client.stored().flatten().tolist()) == {float(k)} and len(client) < sizes[k]
    assert sum(map(len, problem.clients)) == sum(sizes) - 12


def test_a_split_of_clients_that_the_data_comes_with_is_refused(tmp_path: Path) -> None:
    data = ([*WRITERS.values()], tensors(TEST))
    with pytest.raises(
        isfl.UserError, match=r"^split\.kind = 'iid': the data comes with its 3 clients.*leave \[split\]"
    ):
        isfl.run({**SMALL, "split": SPLIT}, data=data, model=Net, out=tmp_path / "a")
    with pytest.raises(isfl.UserError, match=r"^split\.kind = 'natural': the data does not come with clients"):
        isfl.run({**SMALL, "split": {"kind": "natural"}}, data=DATA, model=Net, out=tmp_path / "a")
    config = isfl.load_config(isfl.load_config(SMALL), ["data.public=3"])  # which has every default filled in
    assert isfl.run(config, ["training.rounds=1"], data=data, model=Net, out=tmp_path / "b", workers=1).finished
    with pytest.raises(isfl.UserError, match=r"client \d of the data has no sample beside the public set"):
        isfl.run(config, ["data.public=44"], data=data, model=Net, out=tmp_path / "c")


def test_a_comparison_gets_objects_in_every_process(tmp_path: Path) -> None:
    data = ([*WRITERS.values()], tensors(TEST))
    found = isfl.compare(SMALL, ["fedavg", "isfl"], [0, 1], data=data, model=Net, out=tmp_path / "a", workers=2)
    alone = isfl.run(SMALL, ["seed=1"], data=data, model=Net, out=tmp_path / "b", workers=1)
    last = found.runs["isfl"][1].path
    assert outcome(last) == outcome(alone.path)
    shutil.rmtree(last)
    (found.runs["isfl"][0].path / "model.safetensors").unlink()
    assert isfl.resume(found.path, data=data, model=Net, workers=2).finished
    assert outcome(last) == outcome(alone.path)


def test_two_names_for_the_data_or_the_model_are_refused() -> None:
    with pytest.raises(isfl.UserError, match=r"^data\.name = 'digits' and data=\.\.\. are both given"):
        isfl.run({"data": {"name": "digits"}}, data=DATA)
    with pytest.raises(isfl.UserError, match=r"^model\.name = 'mlp' and model=\.\.\. are both given"):
        isfl.run({"model": {"name": "mlp"}}, model=Net)
    with pytest.raises(isfl.UserError, match=r"^model: found a str; give a torch\.nn\.Module, or a function"):
        isfl.run({}, model="mlp")  # type: ignore[arg-type]


def test_objects_are_refused_for_a_run_that_has_names(tmp_path: Path) -> None:
    config = {**SMALL, "data": {"public": 20, "name": "digits"}, "model": {"name": "mlp"}, "split": SPLIT}
    with pytest.raises(KeyboardInterrupt):
        isfl.run(config, out=tmp_path / "run", workers=1, callbacks=[stop])
    for option, key in (({"data": DATA}, "data"), ({"model": Net}, "model")):
        with pytest.raises(isfl.UserError, match=rf"^{key}\.name = '\w+' and {key}=\.\.\. are both given"):
            isfl.resume(tmp_path / "run", **option)


# ---------------------------------------------------------------- resuming


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run of two rounds on objects, stopped after the first."""
    with pytest.raises(KeyboardInterrupt):
        isfl.run({**SMALL, "split": SPLIT}, data=DATA, model=Net, out=tmp_path / "run", workers=1, callbacks=[stop])
    return tmp_path / "run"


def test_a_run_on_objects_is_resumed_with_the_same_objects(stopped: Path, tmp_path: Path) -> None:
    whole = isfl.run({**SMALL, "split": SPLIT}, data=DATA, model=Net, out=tmp_path / "whole", workers=1)
    isfl.resume(stopped, data=DATA, model=Net, workers=2)
    assert outcome(stopped) == outcome(whole.path)


def test_a_run_on_objects_is_not_resumed_with_others(stopped: Path) -> None:
    with pytest.raises(isfl.UserError, match="the data is not what it was when the run began"):
        isfl.resume(stopped, data=(tensors(slice(1, 46)), tensors(TEST)), model=Net)
    with pytest.raises(isfl.UserError, match="the model has other layers than when the run began"):
        isfl.resume(stopped, data=DATA, model=nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))
    for option in ({"data": DATA}, {"model": Net}):
        with pytest.raises(isfl.UserError, match=r"was given from Python; give it again, with isfl\.resume\(DIRECTORY"):
            isfl.resume(stopped, **option)


def test_other_initial_weights_are_refused_before_the_first_checkpoint(stopped: Path) -> None:
    for file in (stopped / "checkpoints").iterdir():
        file.rename(stopped / file.name)
    with pytest.raises(isfl.UserError, match="stopped before its first round, and the model has other initial weights"):
        isfl.resume(stopped, data=DATA, model=Net((1, 8, 8), 3))
    isfl.resume(stopped, data=DATA, model=Net, workers=1)


def test_the_command_line_says_how_to_resume_a_run_on_objects(stopped: Path) -> None:
    done = command("resume", str(stopped), cwd=stopped.parent)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert (
        "error: data.name = 'python': the data was given from Python; give it again, with isfl.resume(" in done.stderr
    )
