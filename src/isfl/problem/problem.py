"""The data, the split and the model that a configuration names, in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from isfl.data import Dataset, Partition, load, partition
from isfl.data.population import Population, StoredPopulation
from isfl.data.public_set import public_set
from isfl.data.sources import Source, read
from isfl.data.splits import population
from isfl.data.splits.natural import NaturalSplit
from isfl.data.transforms import check_transforms
from isfl.errors import UserError
from isfl.federation.initial import layer_resets
from isfl.models import AnyModel, build_model, check_output
from isfl.problem.config import Config
from isfl.problem.given import NOTHING, Given


@dataclass(frozen=True)
class Problem:
    """The data and the model of a federation."""

    config: Config
    """With the split that the data comes with, if it comes with one."""
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


def prepare(config: Config, given: Given = NOTHING) -> Problem:
    """Load the data, split it and build the model; raise `UserError` if that is impossible."""
    source = load(config.data, given.source_for(config.data))
    check_transforms(config.training.augment, source.train.stored(slice(2)))
    if config.flower.own_data:
        labels = source.train.labels.numpy()
        public = source.train.subset(public_set(labels, config.data.public, config.seed, config.data.public_from))
        return Problem(
            config, model_for(config, source, given), None, public.in_memory(), source.test, source.class_names
        )
    config = settled(config, source)
    settings = config.data
    clients, chosen = population(
        config.split, source.train, settings.public, config.seed, settings.public_from, source.bounds
    )
    if config.scheme.pooled:  # the centralised reference: one client that holds D_G
        clients = StoredPopulation(clients.data, np.array([0, len(clients.data)]))
    public = source.train.subset(chosen).in_memory()
    return Problem(config, model_for(config, source, given), clients, public, source.test, source.class_names)


def loaded(config: Config, given: Given = NOTHING) -> tuple[Config, Given]:
    """Read the data once for many runs; return the configuration with the split that it comes with."""
    given = with_data(config, given)
    assert given.source is not None
    return settled(config, given.source), given


def with_data(config: Config, given: Given) -> Given:
    """Return what was given together with the data of a configuration, for all runs that name the same data."""
    return given if given.source is not None else replace(given, source=read(config.data), read_from=config.data)


def settled(config: Config, source: Source) -> Config:
    """Return the configuration with the split that the data comes with, if it comes with one."""
    if source.bounds is None or config.split.kind == "natural":
        return config
    if "split" in config.model_fields_set:
        raise UserError(
            f"split.kind = {config.split.kind!r}: the data comes with its {len(source.bounds) - 1} clients; leave "
            "[split] out"
        )
    return config.model_copy(update={"split": NaturalSplit()})


def shared_out(config: Config, source: Source) -> Partition:
    """Return which samples of the training data each client has, and which are public."""
    settings, train = config.data, source.train
    return partition(
        config.split,
        train.labels.numpy(),
        settings.public,
        config.seed,
        settings.public_from,
        source.bounds,
        train.num_classes,
    )


def model_for(config: Config, source: Source, given: Given = NOTHING) -> nn.Module:
    """Return the model of a configuration, checked on samples of the data."""
    shape, classes = tuple(source.train.inputs.shape[1:]), source.train.num_classes
    model = model_of(config, shape, classes, given.model_for(config.model))
    check_output(model, source.test.batch(slice(0, 2))[0], classes, config.model.name)
    return model


def model_of(config: Config, shape: tuple[int, ...], classes: int, given: AnyModel | None = None) -> nn.Module:
    """Return the model that a configuration names (or the one given) for inputs of this shape."""
    model = build_model(config.model, shape, classes, config.seed, given)
    if config.training.initial_models == "independent":
        layer_resets(model)  # refuses a model that cannot be initialised again, before the first round
    return model
