"""Sequences of tokens and tables of numbers: from what people have to a run, padding included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import isfl
from isfl.data import DataSettings, load
from isfl.data.given import source_of
from isfl.errors import UserError
from isfl.problem.config import parse_config
from isfl.problem.problem import prepare
from isfl.problem.proposal import propose
from tests.refusals import refusal

ROOT = Path(__file__).parent.parent
RNG = np.random.default_rng(0)


# ---------------------------------------------------------------- text


def sequences(count: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Tokens from 1 on, of 1 to 9 words; the largest decides the class."""
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(1, 30, rng.integers(1, 10)) for _ in range(count)]
    return tokens, np.array([int(row.max()) // 10 for row in tokens])


class Words:
    """A map-style data set of sentences."""

    def __init__(self, count: int) -> None:
        self.tokens, self.labels = sequences(count)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, number: int) -> tuple[list[int], int]:
        return self.tokens[number].tolist(), int(self.labels[number])


def hugging_face(count: int) -> Any:
    import datasets

    tokens, labels = sequences(count)
    return datasets.Dataset.from_dict({"input_ids": [row.tolist() for row in tokens], "label": labels.tolist()})


TEXT: dict[str, Any] = {
    "lists": lambda: (*sequences(600), *sequences(20, 1)),
    "pairs": lambda: (sequences(600), sequences(20, 1)),
    "a map-style data set": lambda: (Words(600), sequences(20, 1)),
    "Hugging Face": lambda: (hugging_face(600), sequences(20, 1)),
    "clients": lambda: ([sequences(600)], sequences(20, 1)),
}


@pytest.mark.parametrize("form", TEXT)
def test_sequences_are_padded_with_zeros_to_the_longest(form: str) -> None:
    source = source_of(TEXT[form](), "data")
    tokens, labels = sequences(600)
    assert source.train.inputs.shape == (600, 9) and source.train.inputs.dtype == torch.int64
    assert source.test.inputs.shape == (20, 9)
    for row, expected in zip(source.train.stored().tolist(), tokens, strict=True):
        assert row == expected.tolist() + [0] * (9 - len(expected))
    assert source.train.labels.tolist() == labels.tolist()


def test_a_longer_test_set_pads_the_training_data() -> None:
    source = source_of((([[1, 2], [3], [4]], [0, 1, 0]), ([[1, 2, 3, 4], [5]], [0, 1])), "data")
    assert source.train.stored().tolist() == [[1, 2, 0, 0], [3, 0, 0, 0], [4, 0, 0, 0]]


def test_a_padding_token_in_the_text_is_refused_unless_nothing_is_padded() -> None:
    with pytest.raises(UserError, match="sequences of 1 to 2 tokens are filled up with token 0, which they use"):
        source_of((([[0, 2], [3]], [0, 1]), ([[1, 2]], [0])), "data")
    assert source_of((([[0, 2], [3, 4]], [0, 1]), ([[1, 2]], [0])), "data").train.stored().tolist() == [[0, 2], [3, 4]]


def test_sequences_in_a_file_must_have_one_length(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isfl.data import collect

    monkeypatch.setattr(collect, "IN_MEMORY", 64)
    with pytest.raises(UserError, match=r"has shape \(\d+,\) where .*; make them equal first|pad them to one length"):
        source_of((sequences(600), sequences(20, 1)), "data")


class Bag(nn.Module):
    """Sum of embeddings; what `padding` says is what padded positions add."""

    def __init__(self, padding: int | None) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(30, 8, padding_idx=padding), nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.words(tokens).sum(1))


def test_a_model_with_an_embedding_trains_and_padding_has_no_effect(tmp_path: Path) -> None:
    config = {
        "scheme": "isfl",
        "data": {"public": 30},
        "split": {"kind": "dirichlet", "clients": 3, "samples_per_client": 60},
        "training": {"rounds": 2, "local_epochs": 1, "optimizer": {"kind": "adam", "lr": 0.01}},
    }
    (tokens, labels), test = sequences(300), sequences(60, 1)
    longer = [*tokens[:-1], np.arange(1, 30)]  # pads all others to 29
    labels[-1] = 2
    data = ((longer, labels), test)
    run = isfl.run(config, data=data, model=lambda shape, classes: Bag(0), out=tmp_path / "run", workers=2)
    assert run.records[-1]["accuracy_standard"] > 0.3 and run.records[-1]["gradient_evaluations.sampling"] > 0
    model = run.model(model=Bag(0))
    padded = torch.tensor([[5, 6, 0, 0]])
    assert torch.allclose(model(padded), model(padded[:, :2]))
    assert torch.equal(model.get_parameter("words.weight")[0], torch.zeros(8)), "padding is not trained"


# ---------------------------------------------------------------- tables


def table(file: Path, rows: int, client: bool = False, words: bool = False) -> None:
    lines = ["height,label,weight" + (",client" if client else "")]
    for number in range(rows):
        label = ["no", "yes"][number % 2] if words else str(number % 2)
        lines.append(f"{number + 0.5},{label},{-number}" + (f",clinic {number % 3}" if client else ""))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_tables_in_csv_files(tmp_path: Path) -> None:
    for words in (False, True):
        table(tmp_path / "train.csv", 8, words=words)
        table(tmp_path / "test.csv", 4, words=words)
        source = load(DataSettings(name="csv", path=str(tmp_path)))
        assert source.train.inputs.dtype == torch.float32 and source.bounds is None
        assert source.train.stored()[:2].tolist() == [[0.5, 0], [1.5, -1]]
        assert source.train.labels.tolist() == [0, 1] * 4 and len(source.test) == 4
        assert source.class_names == (("no", "yes") if words else ("0", "1"))


def test_a_column_of_clients_is_the_split(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", 9, client=True)
    table(tmp_path / "test.csv", 4)
    source = load(DataSettings(name="csv", path=str(tmp_path)))
    assert source.client_names == ("clinic 0", "clinic 1", "clinic 2")
    assert source.bounds is not None and source.bounds.tolist() == [0, 3, 6, 9]
    assert source.train.stored()[:, 0].tolist() == [0.5, 3.5, 6.5, 1.5, 4.5, 7.5, 2.5, 5.5, 8.5]


HEADER = "height,label,weight\n"
WRONG = {
    "no label": ("a,b\n1,2\n", "train.csv: its first line must name the columns, one of them 'label'; found ['a'"),
    "empty": ("", "its first line must name the columns"),
    "no rows": (HEADER, "train.csv: has no rows below its first line"),
    "a word": (HEADER + "1,0,heavy\n", "train.csv: line 2, column 'weight' is 'heavy'; features must be numbers"),
    "a missing value": (HEADER + "1,0,\n", "line 2, column 'weight' is ''; features must be numbers"),
    "a long row": (HEADER + "1,0,2,3\n", "train.csv: line 2 has 4 cells where the first line has 3"),
    "an open quote": (HEADER + '"1,0,2\n', "train.csv: cannot be read as CSV in UTF-8"),
    "other features": ("size,label\n1,0\n1,1\n", "test.csv: its features are height, weight, not size"),
    "not finite": (HEADER + "1,0,inf\n1,1,2\n", "train.csv: inputs are not all finite"),
    "a class that only the test has": (HEADER + "1,a,2\n1,b,2\n", "label 0 is '0', not one of the classes a, b"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_table_that_cannot_be_used_is_refused(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = WRONG[case]
    table(tmp_path / "test.csv", 4)
    (tmp_path / "train.csv").write_text(text)
    assert message in refusal(tmp_path, capsys, "data.name=csv", f"data.path={tmp_path}")
    (tmp_path / "train.csv").unlink()
    assert "train.csv: no such file" in refusal(tmp_path, capsys, "data.name=csv", f"data.path={tmp_path}")


def test_a_first_configuration_for_data_that_comes_with_clients_has_no_split(tmp_path: Path) -> None:
    table(tmp_path / "train.csv", 90, client=True)
    table(tmp_path / "test.csv", 6)
    text = propose(str(tmp_path), tmp_path / "c.toml")
    assert 'name = "csv"' in text and "[split]" not in text and "# It comes with 3 clients." in text
    assert len(prepare(parse_config(text, "c.toml")).clients) == 3


# ---------------------------------------------------------------- examples


@pytest.mark.parametrize("name", ["own_table", "own_text"])
def test_the_example_runs_and_learns(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(ROOT / f"examples/{name}.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split("accuracy ")[1].split()[0]) > 0.8, done.stdout
