"""What the server itself computes in a round, from its model, the public set and the test set."""

from __future__ import annotations

import pickle
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import nn

from isfl.data.dataset import Dataset, Population
from isfl.engines.board import row_bytes
from isfl.engines.hands import Hands, ManyProcesses, OneProcess
from isfl.engines.workplace import Loaded, Place, Workplace, devices, pieces, state_of
from isfl.federation.evaluation import ClassScores, Outcomes, class_scores
from isfl.federation.interface import ModelFacts
from isfl.federation.normalization import estimate_statistics, statistic_names, with_group_norm
from isfl.federation.round import participant_count
from isfl.federation.settings import Settings
from isfl.federation.values import Weights
from isfl.kernels import with_fast_convolutions
from isfl.smoothness import LipschitzEstimate, conclude, distance, plan_estimate, squared_gradient
from isfl.theory.arrays import Array

PIECE = 1000
"""Samples a worker evaluates at a time."""
LOCAL_BYTES = 256 << 20
"""Local models held in shared memory at a time, to be compared with the global one."""


def as_trained(model: nn.Module, settings: Settings) -> nn.Module:
    """The model as every engine trains it.

    Convolutions on a CPU are faster with channels last and in our own way; both are part of a result's bits.
    """
    if settings.training.batchnorm == "group":
        model = with_group_norm(model)
    if settings.training.convolutions == "fast":
        model = with_fast_convolutions(model)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class ServerSide:
    """The server's share of an engine. `workers` processes share its work; with one, it is done here.

    `clients` are those whose data is on this machine, for whoever trains them here; `directory` is where the weights
    go that they remember (default: a temporary one). What is started is ended by `close`, or at the end of a `with`.
    """

    def __init__(
        self,
        model: nn.Module,
        clients: Population,
        public: Dataset,
        test: Dataset,
        settings: Settings,
        workers: int,
        directory: Path | None,
    ) -> None:
        self.model, self.settings = as_trained(model, settings), settings
        self.public, self.num_classes = public, test.num_classes
        kept_local = settings.training.batchnorm == "local"
        self.facts = ModelFacts(
            # A parameter with two names is one parameter: the optimiser must move it under both.
            parameters=frozenset(n for n, p in self.model.named_parameters(remove_duplicate=False) if p.requires_grad),
            statistics=statistic_names(self.model) if kept_local else frozenset(),
        )
        self._initial = state_of(self.model)
        self._devices, self._temporary = devices(workers), directory is None
        self._place = Workplace(
            self.model, clients, public, test, settings, directory or self._scratch(), self._devices[0]
        )
        self._hands: Hands | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; the next request would start new ones."""
        if self._hands is not None:
            self._hands.close()
        self._hands = None

    # ------------------------------------------------------------ what a round asks for

    def initial_model(self) -> Weights:
        return self._initial

    def lipschitz(self, local: Sequence[Weights], reference: Weights) -> LipschitzEstimate:
        module, device = self._place.loaded(reference), self._place.device
        inputs, labels = self.public.everything()
        plan = plan_estimate(
            module, inputs.to(device), labels.to(device), self.num_classes, method=self.settings.estimator
        )
        distances = [distance(other, module) for other in Loaded(self._place.spare, local)]
        return conclude(plan, self._workers().measure(plan, local, reference), distances)

    def with_statistics(self, model: Weights) -> Weights:
        module = self._place.loaded(model)
        estimate_statistics(module, self.public.everything()[0].to(self._place.device))
        return state_of(module)

    def public_loss(self, model: Weights) -> Array:
        (found,) = self._outcomes(model, "public")
        return class_scores(found, self.public.labels.numpy(), self.num_classes).loss

    def gradient_square(self, model: Weights, target: Array) -> tuple[float, int]:
        module, device = self._place.loaded(model), self._place.device
        inputs, labels = self.public.everything()
        return squared_gradient(module, inputs.to(device), labels.to(device), target), len(labels)

    # ------------------------------------------------------------ who does it

    def _standard(self, found: Outcomes) -> ClassScores:
        """The scores of what was found on the test set."""
        return class_scores(found, self._place.data["test"].labels.numpy(), self.num_classes)

    def _outcomes(self, model: Weights, *places: Place) -> list[Outcomes]:
        """Of whole data sets, piece by piece, all in one go: nobody waits for the others between two sets."""
        rows = [(place, *piece) for place in places for piece in pieces(len(self._place.data[place]), PIECE)]
        found = self._workers().outcomes(rows, model)
        return [
            Outcomes.joined([part for (at, *_), part in zip(rows, found, strict=True) if at == place])
            for place in places
        ]

    def _workers(self) -> Hands:
        if self._hands is None:
            self._hands = self._staffed()
        return self._hands

    def _staffed(self) -> Hands:
        if len(self._devices) == 1:
            return OneProcess(self._place)
        compared = participant_count(self.settings, len(self._place.clients)) if self.settings.measures_lipschitz else 1
        rows = max(1, min(compared, LOCAL_BYTES // row_bytes(self._initial)))
        try:
            return ManyProcesses(self._place, rows, self._devices)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            warnings.warn(
                f"one worker instead of {len(self._devices)}: the model cannot be sent ({error})", stacklevel=2
            )
            return OneProcess(self._place)

    def _scratch(self) -> Path:
        """Removed with the engine."""
        path = Path(tempfile.mkdtemp(prefix="isfl-"))
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
        return path
