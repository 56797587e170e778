"""Accuracy of a model: on the standard test set D_S by class, on each client's data (together D_G) in total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from isfl.data.dataset import Dataset
from isfl.smoothness.models import evaluation_mode
from isfl.theory.arrays import Array

BATCH = 125
"""Samples per forward pass; part of a result's last bits. Larger ones would need fresh memory for each layer, which
costs more than it saves."""


@dataclass(frozen=True)
class Score:
    """Totals over a set of samples. For a model that always predicts one class, they reveal its class count."""

    samples: int
    correct: int
    correct_top5: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.samples

    @property
    def accuracy_top5(self) -> float:
        return self.correct_top5 / self.samples

    def __add__(self, other: Score) -> Score:
        return Score(self.samples + other.samples, self.correct + other.correct, self.correct_top5 + other.correct_top5)


@dataclass(frozen=True)
class ClassScores:
    """A score with recall and loss per class; NaN for classes without samples."""

    total: Score
    recall: Array
    loss: Array
    confusion: np.ndarray
    """(C, C) samples by label (rows) and prediction (columns)."""


@dataclass(frozen=True)
class Outcomes:
    """Per sample: the prediction, whether it was right, whether the label was among the first five, and the loss."""

    predicted: np.ndarray
    correct: np.ndarray
    correct_top5: np.ndarray
    loss: np.ndarray

    def rows(self, start: int, stop: int) -> Outcomes:
        return Outcomes(*(getattr(self, part.name)[start:stop] for part in fields(self)))

    def at(self, positions: np.ndarray) -> Outcomes:
        return Outcomes(*(getattr(self, part.name)[positions] for part in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Outcomes]) -> Outcomes:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def outcomes(model: nn.Module, data: Dataset) -> Outcomes:
    """Evaluate the model on the data, in eval mode."""
    device = next(model.parameters()).device
    found = []
    with evaluation_mode(model), torch.inference_mode():
        for start in range(0, len(data), BATCH):
            inputs, labels = (part.to(device) for part in data.batch(slice(start, start + BATCH)))
            logits = model(inputs)
            first = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
            loss = F.cross_entropy(logits, labels, reduction="none")
            predicted = logits.argmax(1)
            per_sample = (predicted.int(), predicted == labels, first.any(1), loss.double())
            found.append(Outcomes(*(values.cpu().numpy() for values in per_sample)))
    return Outcomes.joined(found)


def score(found: Outcomes) -> Score:
    return Score(len(found.correct), int(found.correct.sum()), int(found.correct_top5.sum()))


def class_scores(found: Outcomes, labels: np.ndarray, classes: int) -> ClassScores:
    counts = np.bincount(labels, minlength=classes)
    correct = np.bincount(labels, weights=found.correct, minlength=classes)
    losses = np.bincount(labels, weights=found.loss, minlength=classes)
    inside = found.predicted < classes  # a model may have more outputs than the data has classes
    cells = np.bincount(labels[inside] * classes + found.predicted[inside], minlength=classes**2)
    with np.errstate(invalid="ignore"):
        return ClassScores(score(found), correct / counts, losses / counts, cells.reshape(classes, classes))
