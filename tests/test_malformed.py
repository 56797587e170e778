"""Inputs that once gave a traceback, or an error of several lines."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.lib.format import write_array_header_1_0
from numpy.lib.npyio import NpzFile
from PIL import Image

from isfl import Run, layout
from isfl.cli import main
from isfl.data.held import load_held
from isfl.data.own import read_npz
from isfl.engines.flower import client
from isfl.engines.flower.client import PROBLEM, client_app
from isfl.engines.flower.node import simulated_node
from isfl.errors import UserError
from isfl.experiment.cells import planned_cells
from isfl.experiment.flower_app import configuration
from isfl.experiment.submission import _flwr
from isfl.federation.codec import CodecError
from isfl.files import read_object
from isfl.lines import read_lines
from isfl.problem.config import config_from
from isfl.report.page import write_report
from tests.directories import written_run
from tests.grids import config_of, engine_of, federation_of, rounds


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_that_is_nested_deep_is_refused_in_one_short_line() -> None:
    with pytest.raises(UserError, match=r"^c: seed: found \[\[") as refused:
        config_from({"seed": nested(3000)}, "c")
    assert len(str(refused.value)) < 300
    with pytest.raises(UserError) as refused:
        config_from({"seed": "x" * 5000}, "c")
    assert len(str(refused.value)) < 400


def test_an_argument_of_two_lines_is_an_error_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.csv").write_text("1,2\n3,4\n")
    with pytest.raises(SystemExit) as ending:
        main(["diagnose", str(tmp_path / "c.csv"), "--target", "0.5,\n"])
    (line,) = capsys.readouterr().err.splitlines()
    assert ending.value.code == 2 and line.startswith("error: --target 0.5,")


def test_a_name_that_is_too_long_for_a_file_is_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        main(["resume", "x" * 3000])
    (line,) = capsys.readouterr().err.splitlines()
    assert ending.value.code == 2 and "the name is too long for a file" in line and len(line) < 120


@pytest.mark.parametrize("name", [layout.PLAN, layout.SPLIT])
def test_a_file_that_is_nested_too_deep_cannot_be_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deep"):
        read_object(tmp_path / name)
    with pytest.raises(UserError, match=r"cannot be read|not a run directory"):
        planned_cells(tmp_path) if name == layout.PLAN else Run(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"lipschitz": {"0": [{}, 1.0]}},
        {"lipschitz": {"x": [1.0]}},
        {"lipschitz": {"0": [-1.0]}},
        {"probabilities": {"0": 5}},
        {"accuracy_standard": [0.5]},
        {"recall": {"a": 1}},
        {"train_loss": 10**400},
        {"confusion": [1, 2]},
        {"seconds": {"wall": "long"}},
        {"refused": {"0": None}},
    ],
    ids=json.dumps,
)
def test_a_line_with_values_of_another_kind_is_damaged(change: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps({"round": 1, "accuracy_standard": 0.5, "recall": [0.5, None]}) + "\n")
    assert len(read_lines(file)) == 1
    with file.open("a") as stream:
        stream.write(json.dumps({"round": 2, **change}) + "\n")
    assert len(read_lines(file)) == 1


def test_a_report_of_a_run_with_wrong_lipschitz_values_says_so(tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 2, 4, rounds=2)
    file = path / layout.PROBABILITIES
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    first["lipschitz"]["0"][0] = {}
    file.write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
    write_report([path], tmp_path / "report.html")
    assert "probabilities.jsonl: line 1 is damaged" in (tmp_path / "report.html").read_text()


def test_a_report_of_a_run_with_a_wrong_configuration_is_written(tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 2, 4, rounds=1)
    (path / layout.CONFIG).write_text(json.dumps({"split": 7, "model": [1], "training": {"optimizer": "x"}}))
    write_report([path], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_a_model_that_does_not_fit_is_answered_with_a_reason(tmp_path: Path) -> None:
    config, sent = config_of("fedavg", training={"rounds": 1}), list[Message]()

    def listen(client: int, message: Message, reply: Message) -> Message:
        sent.append(message)
        return reply

    rounds(config, engine_of(config, federation_of(tmp_path, meddle=listen)))
    message = next(message for message in sent if message.metadata.message_type == "train")
    message.content["model"] = ArrayRecord()
    node = simulated_node(0, tmp_path)
    reply = client_app(lambda context: node)(message, Context(1, 1000, {}, RecordDict(), {}))
    problem = reply.content[PROBLEM]
    assert isinstance(problem, ConfigRecord)
    assert str(problem["reason"]).startswith("the model in the message does not fit: Missing key(s)")


def test_a_round_without_its_accuracy_can_be_shown(tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 2, 4, rounds=1)
    (path / layout.METRICS).write_text('{"round": 1}\n')
    assert "1 of 1 rounds>" in repr(Run(path))


@pytest.mark.parametrize("names", [None, ["a"], [1, 2, 3, 4], "abcd"])
def test_probabilities_that_do_not_fit_the_classes_are_refused(names: Any, tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 2, 4, rounds=1)
    split = json.loads((path / layout.SPLIT).read_text())
    (path / layout.SPLIT).write_text(json.dumps({**split, "class_names": names}))
    with pytest.raises(UserError, match=r"class_names is not a list|does not fit the 1 classes"):
        _ = Run(path).probabilities


def test_an_error_of_flower_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 1, "Using SuperLink: x\n\nConnection is unavailable.\n", "")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: done)
    with pytest.raises(UserError, match=r"^flwr list: Using SuperLink: x Connection is unavailable\.$"):
        _flwr("list", home=None)


@pytest.mark.parametrize("read", [read_npz, lambda file: load_held(str(file), ["a"], (4,))], ids=["path", "client"])
def test_an_npz_header_that_claims_a_terabyte_is_damage_but_too_little_memory_is_not(
    read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("train_images", "train_labels", "test_images", "test_labels")
    arrays: dict[str, Any] = {name: np.zeros((1, 4)) for name in names}
    np.savez(tmp_path / "good.npz", **arrays)
    header = io.BytesIO()
    write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 37,)})
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        for name in names:
            archive.writestr(f"{name}.npy", header.getvalue())
    with pytest.raises(UserError, match=r"bad.npz: damaged or not an npz file \(the header of \w+ claims"):
        read(tmp_path / "bad.npz")

    def no_room(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(NpzFile, "__getitem__", no_room)
    with pytest.raises(MemoryError):
        read(tmp_path / "good.npz")


def test_too_little_memory_for_a_picture_is_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "a/0.png")

    def no_room(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Image.Image, "convert", no_room)
    with pytest.raises(MemoryError):
        load_held(str(tmp_path), ["a"], (3, 4, 4))


def test_a_refused_account_removes_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.token").write_text("of another")
    (tmp_path / "d").mkdir()
    with pytest.raises(SystemExit) as ending:
        main(["flower", "account", "../x", "--dir", str(tmp_path / "d")])
    assert ending.value.code == 2 and (tmp_path / "x.token").exists()


def test_a_configuration_that_is_nested_too_deep_is_one_line_at_a_node_and_at_the_server() -> None:
    deep = '{"data": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(CodecError, match=r"^the configuration in the message is not JSON$"):
        client._config(deep)
    with pytest.raises(UserError, match=r"^config: is not valid JSON \("):
        configuration({"config": deep})
