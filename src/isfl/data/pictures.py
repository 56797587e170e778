"""Pictures in class folders, decoded when they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isfl.errors import UserError

KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
CHUNK = 256
"""Pictures that are in memory at a time while a data set is read."""


@dataclass(frozen=True)
class Pictures:
    """Files of one size and their labels, which are positions in `classes`."""

    where: str
    files: tuple[Path, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def chunks(self) -> Iterator[tuple[list[np.ndarray], list[Any]]]:
        expected: tuple[int, ...] = ()
        for start in range(0, len(self), CHUNK):
            chosen = self.files[start : start + CHUNK]
            pictures = [_picture(file) for file in chosen]
            expected = expected or pictures[0].shape
            for file, pixels in zip(chosen, pictures, strict=True):
                if pixels.shape != expected:
                    raise UserError(
                        f"{file}: has shape {pixels.shape} where {self.files[0]} has {expected}; make them equal"
                    )
            yield pictures, list(self.labels[start : start + CHUNK])


def class_folders(directory: Path) -> tuple[Pictures, Pictures]:
    """Return the pictures of `train/CLASS/*` and `test/CLASS/*`; classes are sorted by name."""
    if not (directory / "train").is_dir() or not (directory / "test").is_dir():
        raise UserError(f"data.path = {directory}: needs the directories train and test, one folder per class in each")
    classes = sorted(p.name for p in (directory / "train").iterdir() if p.is_dir())
    if len(classes) < 2:
        raise UserError(f"{directory / 'train'}: needs a folder for each of at least two classes")
    extra = sorted({p.name for p in (directory / "test").iterdir() if p.is_dir()} - set(classes))
    if extra:
        raise UserError(f"{directory / 'test' / extra[0]}: a class that the training data does not have")
    return pictures_by_class(directory / "train", classes), pictures_by_class(directory / "test", classes)


def pictures_by_class(directory: Path, classes: Sequence[str]) -> Pictures:
    """Return the pictures of `CLASS/*`; some classes may have none."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        folder = directory / name
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        own = [file for file in found if file.suffix.lower() in KINDS]
        files += own
        labels += [label] * len(own)
    if not files:
        raise UserError(f"{directory}: holds no picture ({', '.join(KINDS)})")
    return Pictures(str(directory), tuple(files), tuple(labels), tuple(classes))


def pixels_of(picture: Any, where: str) -> np.ndarray:
    """Return a picture of Pillow as bytes: (height, width) if it is grey, or else (height, width, 3)."""
    if picture.mode.startswith(("I", "F")):
        raise UserError(f"{where}: has more than 8 bits per pixel; convert it to 8 bits first")
    return np.asarray(picture.convert("L" if picture.mode in ("1", "L") else "RGB"))


def _picture(file: Path) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(file) as picture:
            return pixels_of(picture, str(file))
    except (UserError, MemoryError):
        raise
    except Exception as error:  # also for pictures of unreasonable size
        raise UserError(f"{file}: damaged or not a picture ({error})") from None
