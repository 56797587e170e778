"""The cost of recording a round does not grow: nothing written earlier is read again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from isfl.errors import UserError
from isfl.experiment.directory import RunDirectory
from isfl.experiment.growing import GrowingFile, Prefix, is_prefix
from isfl.federation.values import FederationState


def state(round: int) -> FederationState:
    return FederationState(
        round, {"weight": torch.ones(2)}, 1, np.array([0]), np.ones((1, 2)), np.array([5]), np.array([1]), None, None
    )


def test_the_running_checksum_is_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("earlier\n")
    growing = GrowingFile(file)
    for number in range(3):
        growing.append({"round": number})
        content = file.read_bytes()
        assert growing.prefix == Prefix(len(content), hashlib.sha256(content).hexdigest())
        assert is_prefix(file, growing.prefix, whole=True)
    growing.cut(len(b"earlier\n"))
    assert growing.prefix == Prefix(8, hashlib.sha256(b"earlier\n").hexdigest())
    assert not is_prefix(file, Prefix(8, hashlib.sha256(b"Earlier\n").hexdigest()))
    earlier = Prefix(4, hashlib.sha256(b"earl").hexdigest())
    assert is_prefix(file, earlier) and not is_prefix(file, earlier, whole=True)


def test_a_line_that_another_program_added_is_found(tmp_path: Path) -> None:
    growing = GrowingFile(tmp_path / "file")
    growing.cut(0)
    growing.append({"round": 1})
    with growing.path.open("a") as stream:
        stream.write("not ours\n")
    with pytest.raises(UserError, match="another program changed it"):
        growing.append({"round": 2})


def test_recording_a_round_reads_no_earlier_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory.create(tmp_path / "run", {}, {})
    directory.record(state(1), {}, {"round": 1}, {"round": 1})
    read: list[int] = []
    real = Path.read_bytes

    def counted(path: Path) -> bytes:
        content = real(path)
        read.append(len(content))
        return content

    monkeypatch.setattr(Path, "read_bytes", counted)
    for number in range(2, 20):
        directory.record(state(number), {}, {"round": number, "text": "x" * 1000}, {"round": number})
    assert not read
    monkeypatch.undo()
    checkpoint = RunDirectory.open(tmp_path / "run").restore()
    assert checkpoint is not None and checkpoint.state.round == 19
