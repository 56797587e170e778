"""Accuracy of a model: on the standard test set D_S by class, on each client's data (together D_G) in total."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from isfl.data.dataset import Dataset
from isfl.smoothness.models import evaluation_mode
from isfl.theory.arrays import Array

BATCH = 500


@dataclass(frozen=True)
class Score:
    """Totals over a set of samples; they say nothing about its label mix."""

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
    """A score with recall and loss class by class; NaN for classes without samples."""

    total: Score
    recall: Array
    loss: Array


def evaluate(model: nn.Module, data: Dataset) -> ClassScores:
    """One pass over the data in eval mode."""
    classes = data.num_classes
    correct, losses, top5 = np.zeros(classes), np.zeros(classes), 0
    with evaluation_mode(model), torch.no_grad():
        for start in range(0, len(data), BATCH):
            inputs, labels = data.batch(slice(start, start + BATCH))
            logits = model(inputs)
            hit = (logits.argmax(1) == labels).double()
            loss = F.cross_entropy(logits, labels, reduction="none").double()
            correct += np.bincount(labels.numpy(), weights=hit.numpy(), minlength=classes)
            losses += np.bincount(labels.numpy(), weights=loss.numpy(), minlength=classes)
            top5 += int((logits.topk(min(5, classes), dim=1).indices == labels[:, None]).any(1).sum())
    counts = data.class_counts
    with np.errstate(invalid="ignore"):
        return ClassScores(Score(len(data), int(correct.sum()), top5), correct / counts, losses / counts)
