"""The data, the split and the model that a configuration names, in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from isfl.data import Dataset, load, partition
from isfl.data.dataset import Population
from isfl.data.public_set import public_set
from isfl.data.sources import Source
from isfl.data.transforms import check_transforms
from isfl.federation.initial import layer_resets
from isfl.models import build_model, check_output
from isfl.problem.config import Config


@dataclass(frozen=True)
class Problem:
    """The data and the model of a federation."""

    model: nn.Module
    population: Population | None
    """None if clients hold their own data (`flower.own_data`)."""
    public: Dataset
    """The public set D_L."""
    test: Dataset
    """The balanced test set D_S."""
    class_names: tuple[str, ...]

    @property
    def clients(self) -> Population:
        """The clients' data; only for configurations that split it themselves."""
        assert self.population is not None, "clients with their own data are not part of the problem"
        return self.population


def prepare(config: Config) -> Problem:
    """Load the data, split it and build the model; raise `UserError` if that is impossible."""
    source = load(config.data)
    check_transforms(config.training.augment, source.train.inputs[:2])
    labels = source.train.labels.numpy()
    if config.flower.own_data:
        public = source.train.subset(public_set(labels, config.data.public, config.seed, config.data.public_from))
        return Problem(model_of(config, source), None, public, source.test, source.class_names)
    parts = partition(config.split, labels, config.data.public, config.seed, config.data.public_from)
    bounds = np.cumsum([0, *(len(indices) for indices in parts.clients)])
    clients = Population(source.train.subset(np.concatenate(parts.clients)), bounds)
    clients = config.split.transformed(clients, config.seed)
    if config.scheme.pooled:  # the centralised reference: one client that holds D_G
        clients = Population(clients.data, bounds[[0, -1]])
    public = source.train.subset(parts.public)
    return Problem(model_of(config, source), clients, public, source.test, source.class_names)


def model_of(config: Config, source: Source) -> nn.Module:
    """Return the model that a configuration names, for the data of `source`."""
    model = build_model(config.model, tuple(source.train.inputs.shape[1:]), source.train.num_classes, config.seed)
    check_output(model, source.test.batch(slice(0, 2))[0], source.train.num_classes, config.model.name)
    if config.training.initial_models == "independent":
        layer_resets(model)  # refuses a model that cannot be initialised again, before the first round
    return model
