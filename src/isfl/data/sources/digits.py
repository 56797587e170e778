"""The handwritten digits of scikit-learn: Alpaydin, Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
Learning Repository, 1998."""

from __future__ import annotations

import numpy as np

from isfl.data.sources.base import DataSettings, NamedSource, Source, numbered, source_from
from isfl.errors import UserError


def digits(settings: DataSettings) -> Source:
    """1,797 real 8x8 digits inside scikit-learn: 1,297 for training, 50 of each class for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UserError("data.name = 'digits' needs scikit-learn; pip install 'isfl[digits]'") from None
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) * (255 / 16)).round().astype(np.uint8)
    last = np.sort(np.concatenate([np.flatnonzero(labels == c)[-50:] for c in range(10)]))
    first = np.setdiff1d(np.arange(len(labels)), last)
    arrays = {
        "train_images": images[first],
        "train_labels": labels[first],
        "test_images": images[last],
        "test_labels": labels[last],
    }
    return source_from(arrays, numbered(10), "digits")


DIGITS = NamedSource("digits", digits)
