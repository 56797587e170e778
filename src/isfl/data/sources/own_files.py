"""The user's own data in files: arrays in an npz file, or pictures in class folders."""

from __future__ import annotations

from isfl.data.given import pooled_source
from isfl.data.own import read_npz
from isfl.data.pictures import class_folders
from isfl.data.sources.base import DataSettings, NamedSource, Source, required_path, source_from


def npz(settings: DataSettings) -> Source:
    """Your own arrays: an npz file at data.path with train_images, train_labels, test_images, test_labels."""
    path = required_path(settings)
    return source_from(read_npz(path), None, str(path))


def folders(settings: DataSettings) -> Source:
    """Your own pictures: data.path with train/CLASS/* and test/CLASS/*, all of one size."""
    path = required_path(settings)
    train, test = class_folders(path)
    return pooled_source(train, test, train.classes, str(path))


NPZ = NamedSource("npz", npz)
FOLDERS = NamedSource("folders", folders)
