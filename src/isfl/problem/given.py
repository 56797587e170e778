"""Data and model from Python, in place of those that a configuration names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from isfl.data import DataSettings, Source
from isfl.data.given import source_of
from isfl.data.own import PYTHON
from isfl.errors import UserError
from isfl.models import AnyModel, ModelSettings
from isfl.problem.config import Config
from isfl.schema import Part

OBJECTS = DataSettings(name=PYTHON)


@dataclass(frozen=True)
class Given:
    """None if nothing was given."""

    source: Source | None = None
    model: AnyModel | None = None
    read_from: DataSettings = OBJECTS
    """The settings that the source belongs to."""

    def source_for(self, settings: DataSettings) -> Source | None:
        """Return the source if it is that of these settings; refuse objects for data that has another name."""
        if self.source is not None and self.read_from == OBJECTS:
            _refuse_another("data", settings.name)
        same = all(getattr(settings, key) == getattr(self.read_from, key) for key in ("name", "path", "hub"))
        return self.source if same else None

    def model_for(self, settings: ModelSettings) -> AnyModel | None:
        """Return the model; refuse one for a model that has another name."""
        if self.model is not None:
            _refuse_another("model", settings.name)
        return self.model


NOTHING = Given()


def given_objects(data: Any, model: Any) -> Given:
    """Read the data and check the model that a call from Python was given."""
    if model is not None and not isinstance(model, nn.Module) and not callable(model):
        raise UserError(f"model: found a {type(model).__name__}; give a torch.nn.Module, or a function that builds one")
    return Given(None if data is None else source_of(data, "data"), model)


def named_python(config: Config, given: Given) -> Config:
    """Return the configuration with the name `python` for what was given; refuse a second name for the same thing."""
    changes: dict[str, Part] = {}
    if given.source is not None:
        _refuse_another("data", config.data.name, DataSettings().name)
        changes["data"] = config.data.model_copy(update={"name": PYTHON})
    if given.model is not None:
        _refuse_another("model", config.model.name, ModelSettings().name)
        changes["model"] = config.model.model_copy(update={"name": PYTHON})
    return config.model_copy(update=changes)


def _refuse_another(key: str, name: str, default: str = PYTHON) -> None:
    if name not in (default, PYTHON):
        raise UserError(f"{key}.name = {name!r} and {key}=... are both given; leave one of them out")
