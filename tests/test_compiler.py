"""C code is compiled once and cached, and everything works without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from isfl.kernels import compiler, library
from isfl.kernels.compiler import CompilerError
from tests.convolutions import needs_compiler

SOURCE = "double twice(double x) { return 2 * x; }\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A C file and a cache of its own; `CC` counts how often it is called in `calls`."""
    if not library.available():
        pytest.skip("there is no C compiler")
    monkeypatch.setenv("ISFL_CACHE", str(tmp_path / "cache"))
    real = compiler.compiler_path()
    counting = tmp_path / "counting-cc"
    counting.write_text(f'#!/bin/sh\necho called >> {tmp_path}/calls\nexec {real} "$@"\n', encoding="utf-8")
    counting.chmod(0o755)
    monkeypatch.setenv("CC", str(counting))
    file = tmp_path / "twice.c"
    file.write_text(SOURCE, encoding="utf-8")
    return file


def calls(source: Path) -> int:
    return len((source.parent / "calls").read_text(encoding="utf-8").splitlines())


def test_c_is_compiled_once_for_a_machine(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        compiler.compiled([source])
    assert calls(source) == 1
    source.write_text(SOURCE + "\n", encoding="utf-8")
    compiler.compiled([source])
    monkeypatch.setattr(compiler, "_processor", lambda: "another one")
    compiler.compiled([source])
    assert calls(source) == 3


def test_a_damaged_library_is_compiled_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.compiled([source])
    (good,) = (source.parent / "cache/compiled").glob("*.so")
    # In another cache: this process has loaded the good library and would not read the file again.
    damaged = source.parent / "other/compiled" / good.name
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    monkeypatch.setenv("ISFL_CACHE", str(source.parent / "other"))
    compiler.compiled([source])
    assert calls(source) == 2
    assert damaged.read_bytes() == good.read_bytes()


def test_a_world_writable_library_is_not_loaded(source: Path) -> None:
    compiler.compiled([source])
    (kept,) = (source.parent / "cache/compiled").glob("*.so")
    kept.chmod(0o777)
    compiler.compiled([source])
    assert calls(source) == 2


def test_another_compiler_in_the_same_place_compiles_again(source: Path) -> None:
    compiler.compiled([source])
    os.utime(os.environ["CC"], (0, 0))
    compiler.compiled([source])
    assert calls(source) == 2


@pytest.mark.skipif(os.getuid() != 0, reason="needs the right to give files away")
def test_a_library_of_another_owner_is_not_loaded(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.compiled([source])
    (kept,) = (source.parent / "cache/compiled").glob("*.so")
    os.chown(kept, 12345, 12345)
    compiler.compiled([source])
    assert calls(source) == 2


def test_compilation_works_without_a_writable_cache(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source.parent / "file").touch()
    monkeypatch.setenv("ISFL_CACHE", str(source.parent / "file"))
    compiler.compiled([source])


def test_without_room_to_compile_torch_does_everything(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(source.parent / "nowhere"))
    with pytest.raises(CompilerError, match="No such file or directory"):
        compiler.compiled([source])


def test_without_a_home_torch_does_everything(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ISFL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(CompilerError, match="home directory"):
        compiler.compiled([source])


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo it begins >&2; echo 'no space left' >&2; echo >&2; exit 1", r"broken-cc failed \(no space left\)"),
        ("exit 3", r"broken-cc failed \(exit code 3\)"),
        ("exit 0", "cannot open shared object file"),
        ("sleep 30", "timed out after 0.5 seconds"),
    ],
    ids=["fails", "fails without a word", "makes nothing", "hangs"],
)
def test_a_broken_compiler_falls_back_to_torch(
    script: str, reason: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = source.parent / "broken-cc"
    broken.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setattr(compiler, "PATIENCE", 0.5)
    with pytest.raises(CompilerError, match=reason):
        compiler.compiled([source])


def test_a_slow_compiler_gets_ten_minutes(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Giving up on a busy machine would change the bits of a run."""
    given = []

    def slow(command: list[str], timeout: float, **_: object) -> None:
        given.append(timeout)
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", slow)
    with pytest.raises(CompilerError, match="timed out after 600"):
        compiler.compiled([source])
    assert given == [600.0]


def test_without_a_compiler_torch_does_everything(tmp_path: Path) -> None:
    code = """
        import torch
        from isfl.kernels import FastConv2d, available, with_fast_convolutions
        layer = with_fast_convolutions(torch.nn.Conv2d(16, 16, 3, padding=1))
        assert not available() and type(layer) is torch.nn.Conv2d
        sent = FastConv2d(16, 16, 3, padding=1)  # as it would come from a machine with a compiler
        sent.load_state_dict(layer.state_dict())
        x = torch.randn(1, 16, 4, 4)
        print(torch.equal(layer(x), sent(x)))
    """
    environment = {**os.environ, "PATH": str(tmp_path), "ISFL_CACHE": str(tmp_path / "cache")}
    environment.pop("CC", None)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "True"


CONFIG = """
scheme = "fedavg"
[data]
public = 40
[split]
clients = 3
shard_size = 20
[model]
name = "resnet8"
width = 0.25
[training]
rounds = 2
local_epochs = 1
"""


def lines_of_run(directory: Path, environment: dict[str, str], *overrides: str) -> list[str]:
    """Return what `isfl run` prints as warnings."""
    return finished_run(directory, environment, *overrides).stderr.splitlines()


def finished_run(directory: Path, environment: dict[str, str], *overrides: str) -> subprocess.CompletedProcess[str]:
    (directory / "small.toml").write_text(CONFIG, encoding="utf-8")
    options = [word for change in overrides for word in ("--set", change)]
    command = [sys.executable, "-m", "isfl.cli", "run", "small.toml", "--jobs", "2", *options]
    environment = {**os.environ, "ISFL_CACHE": str(directory / "cache"), **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=directory)
    assert done.returncode == 0, done.stderr
    return done


@needs_compiler
def test_a_run_with_compiled_convolutions_says_so_in_one_line(tmp_path: Path) -> None:
    done = finished_run(tmp_path, {})
    assert done.stdout.count("3x3 convolutions: compiled") == 1 and done.stderr == ""
    quiet = finished_run(tmp_path, {}, "model.name='small-cnn'")
    assert "convolutions" not in quiet.stdout + quiet.stderr


def test_a_run_without_a_compiler_says_so_in_one_line(tmp_path: Path) -> None:
    lines = lines_of_run(tmp_path, {"PATH": str(tmp_path), "CC": ""})
    assert lines == [
        "warning: compiled convolutions are not used: no C compiler found (tried $CC, cc, gcc, clang)",
    ]


def test_a_run_with_a_compiler_that_fails_says_so_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho 'unknown option -march' >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    lines = lines_of_run(tmp_path, {"CC": str(broken)})
    assert lines == [f"warning: compiled convolutions are not used: {broken} failed (unknown option -march)"]


def test_a_run_that_asks_for_torchs_convolutions_says_so(tmp_path: Path) -> None:
    lines = lines_of_run(tmp_path, {}, "training.convolutions='torch'")
    assert lines == ["warning: compiled convolutions are not used: training.convolutions = 'torch'"]


def test_a_model_without_3x3_convolutions_of_stride_1_needs_no_compiler(tmp_path: Path) -> None:
    assert lines_of_run(tmp_path, {"PATH": str(tmp_path), "CC": ""}, "model.name='small-cnn'") == []
