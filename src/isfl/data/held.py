"""A client's own data, as its operator names it: an npz file, a folder of pictures, or a function."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from isfl.data.checks import checked_inputs, checked_labels
from isfl.data.dataset import Dataset
from isfl.data.own import Arrays, array_in, call, opened_npz, resolve
from isfl.data.pictures import pictures_by_class
from isfl.errors import UserError

INPUTS = ("images", "inputs", "train_images", "train_inputs", "x", "x_train")
LABELS = ("labels", "train_labels", "y", "y_train")


def load_held(reference: str, class_names: Sequence[str], input_shape: Sequence[int]) -> Dataset:
    """Load a client's own samples from `FILE.npz`, a folder with one folder per class, or `module:function`.

    Classes are the federation's: labels are positions in `class_names`, and folders have those names. A client may
    lack some of them.
    """
    where = f"data = {reference!r}"
    if reference.endswith(".npz"):
        inputs, labels = _from_file(Path(reference))
    elif ":" in reference and not Path(reference).exists():
        inputs, labels = _from_function(reference, where)
    else:
        inputs, labels = _from_folder(Path(reference), class_names)
    inputs, labels = checked_inputs(inputs, f"{where}: inputs"), checked_labels(labels, f"{where}: labels")
    if len(inputs) != len(labels):
        raise UserError(f"{where}: {len(inputs)} inputs but {len(labels)} labels")
    if labels.min() < 0 or labels.max() >= len(class_names):
        raise UserError(
            f"{where}: labels must lie in 0 .. {len(class_names) - 1}; found {labels.min()} .. {labels.max()}"
        )
    if tuple(inputs.shape[1:]) != tuple(input_shape):
        raise UserError(
            f"{where}: inputs have shape {tuple(inputs.shape[1:])}, those of the federation have {tuple(input_shape)}"
        )
    return Dataset(torch.from_numpy(inputs), torch.from_numpy(labels), len(class_names))


def _from_file(file: Path) -> tuple[np.ndarray, np.ndarray]:
    with opened_npz(file, f"data = {file}") as content:
        names = content.files
        arrays: Arrays = {name: array_in(content, name) for name in names if name in (*INPUTS, *LABELS)}
    found = [next((arrays[name] for name in wanted if name in arrays), None) for wanted in (INPUTS, LABELS)]
    for array, wanted in zip(found, (INPUTS, LABELS), strict=True):
        if array is None:
            raise UserError(f"data = {file}: has no array {wanted[0]!r} (found {', '.join(names) or 'nothing'})")
    inputs, labels = found
    assert inputs is not None and labels is not None
    return inputs, labels


def _from_folder(folder: Path, class_names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    if not folder.is_dir():
        raise UserError(
            f"data = {folder}: no such folder; give FILE.npz, a folder of class folders, or module:function"
        )
    unknown = sorted({path.name for path in folder.iterdir() if path.is_dir()} - set(class_names))
    if unknown:
        raise UserError(f"data = {folder / unknown[0]}: not a class of this federation ({', '.join(class_names)})")
    chunks = list(pictures_by_class(folder, class_names).chunks())
    return np.concatenate([np.stack(inputs) for inputs, _ in chunks]), np.concatenate([labels for _, labels in chunks])


def _from_function(reference: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    result = call(resolve(reference, "data"), where)
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise UserError(f"{where}: it returned {type(result).__name__}; it should return inputs and labels")
    return np.asarray(result[0]), np.asarray(result[1])
