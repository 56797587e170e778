"""The user's own data: an npz file, images in class folders, or a function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


def read_npz(file: Path) -> Arrays:
    """Read arrays `train_images`, `train_labels`, `test_images`, `test_labels` (or `x_train`, `y_train`, ...)."""
    try:
        with np.load(file, allow_pickle=False) as content:
            arrays = {}
            for names in NAMES:
                found = [name for name in names if name in content.files]
                if not found:
                    raise UserError(
                        f"{file}: has no array {names[0]!r} (found {', '.join(content.files) or 'nothing'})"
                    )
                arrays[names[0]] = content[found[0]]
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"data.path = {file}: no such file; give the path of an npz file") from None
    except Exception as error:  # numpy raises many kinds for a file that is not what it should be
        raise UserError(f"{file}: damaged or not an npz file ({str(error).splitlines()[0]})") from None
    return arrays


def read_folders(directory: Path) -> tuple[Arrays, tuple[str, ...]]:
    """Read `train/CLASS/*` and `test/CLASS/*`, pictures of one size; return them and the sorted class names."""
    if not (directory / "train").is_dir() or not (directory / "test").is_dir():
        raise UserError(f"data.path = {directory}: needs the directories train and test, one folder per class in each")
    classes = sorted(p.name for p in (directory / "train").iterdir() if p.is_dir())
    if len(classes) < 2:
        raise UserError(f"{directory / 'train'}: needs a folder for each of at least two classes")
    extra = sorted({p.name for p in (directory / "test").iterdir() if p.is_dir()} - set(classes))
    if extra:
        raise UserError(f"{directory / 'test' / extra[0]}: a class that the training data does not have")
    arrays: Arrays = {}
    for part in ("train", "test"):
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = pictures_by_class(directory / part, classes)
    return arrays, tuple(classes)


def pictures_by_class(directory: Path, classes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read `CLASS/*`, pictures of one size; their labels are positions in `classes`, some of which may have none."""
    pictures: list[np.ndarray] = []
    labels: list[int] = []
    files: list[Path] = []
    for label, name in enumerate(classes):
        folder = directory / name
        for file in sorted(folder.iterdir()) if folder.is_dir() else []:
            if file.suffix.lower() not in PICTURES:
                continue
            pixels = _picture(file)
            if pictures and pixels.shape != pictures[0].shape:
                raise UserError(
                    f"{file}: has shape {pixels.shape} where {files[0]} has {pictures[0].shape}; make them equal"
                )
            pictures.append(pixels)
            labels.append(label)
            files.append(file)
    if not pictures:
        raise UserError(f"{directory}: holds no picture ({', '.join(PICTURES)})")
    return np.stack(pictures), np.array(labels)


def _picture(file: Path) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(file) as picture:
            return pixels_of(picture, str(file))
    except UserError:
        raise
    except Exception as error:  # also for pictures of unreasonable size
        raise UserError(f"{file}: damaged or not a picture ({error})") from None


def pixels_of(picture: Any, where: str) -> np.ndarray:
    """Return a picture of Pillow as bytes: (height, width) if it is grey, or else (height, width, 3)."""
    if picture.mode.startswith(("I", "F")):
        raise UserError(f"{where}: has more than 8 bits per pixel; convert it to 8 bits first")
    return np.asarray(picture.convert("L" if picture.mode in ("1", "L") else "RGB"))


def resolve(reference: str, key: str) -> Any:
    """Return what `module:name` stands for; the current directory is searched too."""
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
