"""The tracker for Weights & Biases, offline, with the real library: what it writes is read back from its files."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from isfl.errors import UserError
from isfl.trackers import wandb as tracker
from isfl.trackers.content import scalars
from isfl.trackers.tracking import Tracking
from tests.tracked import clients_of, metrics, resume_tracked, run_tracked, stop_in_round_2

wandb = pytest.importorskip("wandb", reason="needs Weights & Biases: pip install 'isfl[wandb]'")
pytestmark = pytest.mark.timeout(200)
BLOCK, HEADER = 32_768, 7


def isolate(patch: pytest.MonkeyPatch, place: Path) -> None:
    """Leave no account and no key to find, and nothing to write outside of `place`."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_IDENTITY_TOKEN_FILE"):
        patch.delenv(name, raising=False)
    patch.setenv("NETRC", str(place / "no-netrc"))
    patch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("CONFIG", "CACHE", "DATA"):
        patch.setenv(f"WANDB_{name}_DIR", str(place / "library"))
    tracker._mode.cache_clear()


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def records(file: Path) -> Iterator[Any]:
    """Yield the records of an offline file: protocol buffers in a LevelDB log, which cuts them at blocks of 32 kB."""
    messages: Any = import_module("wandb.proto.wandb_internal_pb2")
    content, at, parts = file.read_bytes(), HEADER, b""
    assert content.startswith(b":W&B")
    while at < len(content):
        if BLOCK - at % BLOCK < HEADER:  # too little for another header: padding
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        parts += content[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # complete, or its last part
            yield messages.Record.FromString(parts)
            parts = b""


class Offline:
    """What the offline files of a run directory say, the oldest first."""

    def __init__(self, out: Path) -> None:
        files = sorted((out / "wandb").glob("offline-run-*/*.wandb"))
        self.parts = [list(records(file)) for file in files]
        self.all = [record for part in self.parts for record in part]

    @property
    def ids(self) -> list[str]:
        return [record.run.run_id for record in self.all if record.HasField("run")]

    def history(self, part: int = 0) -> dict[int, dict[str, Any]]:
        steps: dict[int, dict[str, Any]] = {}
        for record in self.parts[part]:
            if record.HasField("history"):
                found = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
                steps.setdefault(record.history.step.num, {}).update({k: json.loads(v) for k, v in found.items()})
        return steps

    @property
    def config(self) -> dict[str, Any]:
        run = next(record.run for record in self.all if record.HasField("run"))
        return {item.key: json.loads(item.value_json) for item in run.config.update}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wandb") / "isfl" / "seed-0"
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, out.parent.parent)
        with pytest.warns(UserWarning, match="tracker wandb writes to the run directory only") as warned:
            run_tracked("wandb", out)
    assert len(warned) == 1
    return out


def test_every_number_of_every_round_is_in_the_file(finished: Path) -> None:
    found, lines = Offline(finished).history(), metrics(finished)
    assert sorted(found) == [1, 2, 3]
    for line in lines:
        own = {tag: value for tag, value in scalars(line) if not tag.startswith("client_")}
        assert {tag: found[line["round"]].get(tag) for tag in own} == pytest.approx(own)


def test_the_file_has_the_configuration_and_the_name(finished: Path) -> None:
    offline = Offline(finished)
    written = json.loads((finished / "config.json").read_text())
    assert {key: offline.config.get(key) for key in written} == written
    (run,) = [record.run for record in offline.all if record.HasField("run")]
    assert (run.project, run.display_name) == ("isfl", "isfl/seed-0")
    assert json.loads((finished / "wandb/tracked.json").read_text()) == {"id": run.run_id, "round": 3}


def test_the_clients_are_a_table_and_the_report_is_an_artifact(finished: Path) -> None:
    (file,) = (finished / "wandb").glob("offline-run-*/files/media/table/clients_*.json")
    table = json.loads(file.read_text())
    assert table["columns"] == ["round", "client", "accuracy", "update_norm", "drift"]
    assert table["data"] == clients_of(finished) and len(table["data"]) == 6
    artifacts = [r.request.log_artifact.artifact for r in Offline(finished).all if r.HasField("request")]
    artifacts += [r.artifact for r in Offline(finished).all if r.HasField("artifact")]
    names = [(one.type, [entry.path for entry in one.manifest.contents]) for one in artifacts if one.type == "report"]
    assert names == [("report", ["report.html"])]


def test_a_resumed_run_goes_on_in_the_same_tracked_run(tmp_path: Path) -> None:
    """The run was stopped before its second round was tracked: the resumed run reports that round as well."""
    out = tmp_path / "run"
    with pytest.warns(UserWarning, match="nobody is logged in"), pytest.raises(KeyboardInterrupt):
        run_tracked("wandb", out, stop_in_round_2)
    resume_tracked("wandb", out)  # no second warning
    offline, lines = Offline(out), metrics(out)
    assert len(offline.parts) == 2 and len(set(offline.ids)) == 1
    assert [sorted(offline.history(part)) for part in (0, 1)] == [[1], [2, 3]]
    losses = [offline.history(part)[at]["train_loss"] for part, at in ((0, 1), (1, 2), (1, 3))]
    assert losses == pytest.approx([line["train_loss"] for line in lines])


def test_without_the_library_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"--track wandb: .*pip install 'isfl\[wandb\]'"):
        Tracking(["wandb"])


def test_a_key_that_cannot_be_one_means_offline_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "too short")
    with pytest.warns(UserWarning, match=r"run directory only \(WANDB_API_KEY invalid") as warned:
        assert tracker._mode() == tracker._mode() == "offline"
    assert len(warned) == 1


def test_the_users_mode_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert tracker._mode() is None


def test_a_failure_in_mid_run_is_one_warning_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker, "_mode", lambda: "offline")
    monkeypatch.setattr(wandb.Run, "log", lambda self, values, step: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.warns(UserWarning, match="disk full") as warned:
        run_tracked("wandb", tmp_path / "run")
    assert [str(one.message).splitlines()[0] for one in warned] == [
        "tracker wandb failed and is dropped (OSError: disk full)"
    ]
    assert len(metrics(tmp_path / "run")) == 3 and (tmp_path / "run/model.safetensors").exists()
