"""The input of `isfl diagnose`: class counts from a CSV file, or from the split of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isfl.data import load
from isfl.data.counts import ClassCounts, federation_of, read_counts, read_lipschitz
from isfl.data.tables import number
from isfl.diagnose.diagnosis import Question
from isfl.errors import UserError
from isfl.federation.sampling_rules.isfl import ImportanceSampling
from isfl.federation.targets import GivenTarget, GlobalTarget, Target, UniformTarget
from isfl.problem.config import Config, load_config
from isfl.problem.problem import settled, shared_out


@dataclass(frozen=True)
class Options:
    """Options of the command; None takes the value of the configuration, or the default."""

    overrides: Sequence[str] = ()
    target: str | None = None
    floor: float | None = None
    target_floor: float | None = None
    lipschitz: str | None = None


def question_from(path: Path, options: Options) -> tuple[ClassCounts, Question]:
    """Read a configuration (`.toml`) or a CSV file of counts (any other name)."""
    if path.suffix.lower() == ".toml":
        config = load_config(path, options.overrides)
        federation = split_of(config, str(path))
    else:
        if options.overrides:
            raise UserError(f"--set {options.overrides[0]}: {path} holds counts; --set is for a configuration (.toml)")
        config, federation = Config(), read_counts(path)
    question = Question(
        target=config.target if options.target is None else target_named(options.target),
        rule=_rule(config.importance_sampling or ImportanceSampling(), options),
        lipschitz=None if options.lipschitz is None else read_lipschitz(options.lipschitz, federation),
        public=config.data.public,
        passes=config.training.local_epochs * config.training.sampling_ratio,
    )
    return federation, question


def split_of(config: Config, name: str) -> ClassCounts:
    """Return the class counts of the clients that a configuration makes."""
    if config.flower.own_data:
        raise UserError(f"{name}: flower.own_data = true: clients hold their own data; give their class counts as CSV")
    source = load(config.data)
    labels = source.train.labels.numpy()
    parts = shared_out(settled(config, source), source)
    rows = [np.bincount(labels[indices], minlength=source.train.num_classes) for indices in parts.clients]
    clients = source.client_names or tuple(map(str, range(len(rows))))
    places = [f"client {client}" for client in clients]
    return federation_of(np.stack(rows).astype(np.float64), clients, source.class_names, places)


def target_named(text: str) -> Target:
    """Parse `global`, `uniform`, or shares such as `0.5,0.3,0.2`."""
    if text == "global":
        return GlobalTarget()
    if text == "uniform":
        return UniformTarget()
    values = [number(cell) for cell in text.split(",")]
    try:
        return GivenTarget(shares=[value for value in values if value is not None] if None not in values else [])
    except ValueError:
        raise UserError(
            f"--target {text}: write global, uniform, or one share per class, summing to 1, such as 0.5,0.3,0.2"
        ) from None


def _rule(rule: ImportanceSampling, options: Options) -> ImportanceSampling:
    given = {"floor": options.floor, "target_floor": options.target_floor}
    changed = rule.model_dump() | {key: value for key, value in given.items() if value is not None}
    if changed["floor"] + changed["target_floor"] > 1:
        raise UserError(
            f"--floor {changed['floor']:g} --target-floor {changed['target_floor']:g}: together they must not exceed 1"
        )
    return ImportanceSampling.model_validate(changed)
