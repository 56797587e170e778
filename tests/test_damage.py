"""One wrong bit is found: in the description of a run, in its results, in a client's memory, in compiled code."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from isfl import Run, layout
from isfl.engines.flower.node import memory_folder, recall, remember, simulated_node
from isfl.errors import UserError, as_user_error
from isfl.experiment.run import resume, run
from isfl.federation.values import ClientMemory
from isfl.kernels import compiler, library
from tests.grids import RUN
from tests.resumable import config, outcome, stop_after


def flip(file: Path, place: int = -20) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run"
    run(config(), path)
    return path


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.mark.parametrize("name", layout.DESCRIPTION)
def test_a_changed_description_is_refused_by_name_even_without_a_checkpoint(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    stop_after(path, 1)
    shutil.rmtree(path / layout.CHECKPOINTS)
    text = (path / name).read_text()
    (path / name).write_text(text.replace("0", "1", 1))
    with pytest.raises(UserError, match=rf"run/{name}: is not what it was when the run began"):
        resume(path)
    (path / name).write_text(text)
    (path / layout.CHECKSUMS).write_text("{")
    with pytest.raises(UserError, match="its description cannot be read"):
        resume(path)


def test_a_damaged_final_model_is_refused_and_written_again_from_the_checkpoint(finished: Path, whole: Path) -> None:
    flip(finished / layout.MODEL)
    with pytest.raises(UserError, match=r"model.safetensors: damaged; isfl resume .* writes it again"):
        Run(finished).model()
    with pytest.warns(UserWarning, match="is damaged; writing it again"):
        resume(finished)
    assert outcome(finished) == outcome(whole)
    assert Run(finished).model() is not None


@pytest.mark.parametrize("name", layout.GROWING)
def test_changed_lines_of_a_finished_run_are_refused_until_the_user_decides(
    name: str, finished: Path, whole: Path
) -> None:
    with (finished / name).open("a") as stream:
        stream.write("\n")
    with pytest.raises(UserError, match=rf"{name}: is not what it was when the run finished"):
        resume(finished)
    (finished / name).unlink()
    with pytest.raises(UserError, match=r"remove model.safetensors and resume to repeat the rounds"):
        resume(finished)
    (finished / layout.MODEL).unlink()
    with pytest.warns(UserWarning, match="is damaged"):
        resume(finished)
    assert outcome(finished) == outcome(whole)


def test_a_finished_run_with_a_damaged_checkpoint_stays_as_it_is(finished: Path, whole: Path) -> None:
    flip(finished / layout.CHECKPOINTS / "round-00005.safetensors")
    with pytest.warns(UserWarning, match="round-00005 is damaged .*; the run cannot be checked"):
        resume(finished)
    assert outcome(finished) == outcome(whole)


@pytest.mark.parametrize("place", [12, -4])
def test_a_client_whose_memory_is_damaged_says_so(place: int, tmp_path: Path) -> None:
    node = simulated_node(1, tmp_path)
    remember(node, RUN, 3, ClientMemory(probabilities=np.array([0.25, 0.75])))
    assert recall(node, RUN, 3).probabilities is not None
    flip(memory_folder(node, RUN) / "round-000003.safetensors", place)
    with pytest.raises(UserError, match=r"its memory of round 3 is damaged \(.*\); without round-000003.safetensors"):
        recall(node, RUN, 3)


def test_a_clock_that_was_set_back_does_not_make_a_client_forget_the_new_run(tmp_path: Path) -> None:
    node, runs = simulated_node(0, tmp_path), [f"{number:032x}" for number in range(6)]
    for name in runs[:5]:
        remember(node, name, 1, ClientMemory())
        os.utime(memory_folder(node, name), (4e9, 4e9))
    remember(node, runs[5], 1, ClientMemory(probabilities=np.array([1.0])))
    assert recall(node, runs[5], 1).probabilities is not None


def test_a_compiled_library_with_a_wrong_bit_is_compiled_again(tmp_path: Path, own_cache: Path) -> None:
    if not library.available():
        pytest.skip("there is no C compiler")
    source = tmp_path / "twice.c"
    source.write_text("double twice(double x) { return 2 * x; }\n")
    compiler.compiled([source])
    (kept,) = (own_cache / "compiled").glob("*.so")
    good = kept.read_bytes()
    other = kept.with_name("other")  # this process maps the file: it must not change
    flip_in = bytearray(good)
    flip_in[len(good) // 2] ^= 1
    other.write_bytes(flip_in)
    other.replace(kept)
    compiler.compiled([source])
    assert kept.read_bytes() == good


def test_too_little_memory_is_one_line() -> None:
    def refused() -> None:
        torch.empty(1 << 60)

    shared = RuntimeError("unable to resize file </torch_1> to the right size: No space left on device (28)")
    convolution = RuntimeError("could not create a primitive")
    errors = (
        convolution,
        MemoryError("no room"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        shared,
        _raised(refused),
    )
    for error in errors:
        told = as_user_error(error)
        assert told is not None and str(told).startswith("not enough memory (") and "--jobs" in str(told)
    assert as_user_error(OSError(errno.EIO, "Input/output error")) is None


def _raised(act: object) -> Exception:
    assert callable(act)
    try:
        act()
    except RuntimeError as error:
        return error.with_traceback(None)
    raise AssertionError("it has to fail")
