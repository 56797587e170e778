"""The user's own data and code: arrays in an npz file, and what `module:name` stands for."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.lib.npyio import NpzFile

from isfl.errors import UserCodeError, UserError, summary, user_traceback

Arrays = dict[str, np.ndarray]

NAMES = (
    ("train_images", "train_inputs", "x_train"),
    ("train_labels", "y_train"),
    ("test_images", "test_inputs", "x_test"),
    ("test_labels", "y_test"),
)
PYTHON = "python"
"""The name of data, and of a model, that was given to a call from Python."""


_ALLOWED: ContextVar[Collection[str] | None] = ContextVar("allowed names of code", default=None)


@contextmanager
def only_code(names: Collection[str] | None) -> Iterator[None]:
    """Let `resolve` load only these `module:name` while the context lasts; None: any."""
    token = _ALLOWED.set(names)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def read_npz(file: Path) -> Arrays:
    """Read arrays `train_images`, `train_labels`, `test_images`, `test_labels` (or `x_train`, `y_train`, ...)."""
    with opened_npz(file, f"data.path = {file}") as content:
        arrays = {}
        for names in NAMES:
            found = [name for name in names if name in content.files]
            if not found:
                raise UserError(f"{file}: has no array {names[0]!r} (found {', '.join(content.files) or 'nothing'})")
            arrays[names[0]] = array_in(content, found[0])
    return arrays


@contextmanager
def opened_npz(file: Path, where: str) -> Iterator[NpzFile]:
    """Open an npz file; what goes wrong with it, also while it is read, is a `UserError` that begins with `where`."""
    try:
        with np.load(file, allow_pickle=False) as content:
            yield content
    except (UserError, MemoryError):  # too little memory is not damage
        raise
    except FileNotFoundError:
        raise UserError(f"{where}: no such file; give the path of an npz file") from None
    except Exception as error:  # numpy raises many kinds for a file that is not what it should be
        raise UserError(f"{where}: damaged or not an npz file ({str(error).splitlines()[0]})") from None


def array_in(content: NpzFile, name: str) -> np.ndarray:
    """Read one array, after a look at its header: numpy allocates whatever the header claims."""
    assert content.zip is not None  # it is open
    info = content.zip.getinfo(f"{name}.npy")
    with content.zip.open(info) as stream:
        shape, _, dtype = _HEADERS[read_magic(stream)](stream)
    if math.prod(shape) * dtype.itemsize > info.file_size:
        raise ValueError(f"the header of {name} claims more than the file has")
    return content[name]


_HEADERS = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0}


def resolve(reference: str, key: str) -> Any:
    """Return what `module:name` stands for; the current directory is searched too.

    All names of code in configurations come through here, so this is where `only_code` refuses some.
    """
    if (allowed := _ALLOWED.get()) is not None and reference not in allowed:
        raise UserError(
            f"{key} = {reference!r}: its operator does not allow this code; the key allow-code of the node "
            f"configuration has {' '.join(sorted(allowed)) or 'none'}"
        )
    module_name, _, name = reference.partition(":")
    sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        message = f"{key} = {reference!r}: cannot import {module_name!r} ({error})"
        raise UserCodeError(message, user_traceback(error)) from error
    except Exception as error:
        message = f"{key} = {reference!r}: importing {module_name!r} failed ({summary(error)})"
        raise UserCodeError(message, user_traceback(error)) from error
    finally:
        sys.path.remove("")
    try:
        return getattr(module, name)
    except AttributeError:
        raise UserError(f"{key} = {reference!r}: module {module_name!r} has no {name!r}") from None


def call(function: Any, key: str, *arguments: Any) -> Any:
    """Call the user's function; if it raises, raise a `UserCodeError` that names the key."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        raise UserCodeError(f"{key}: it raised {summary(error)}", user_traceback(error)) from error
