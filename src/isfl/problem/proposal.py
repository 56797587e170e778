"""A first configuration for a data set: the data is inspected, and split, model and training are chosen to fit it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np

from isfl.data import SOURCES, DataSettings, load
from isfl.data.sources import Source
from isfl.errors import UserError
from isfl.federation.scheme import SHORTHANDS
from isfl.models import MODELS
from isfl.problem.config import parse_config
from isfl.problem.problem import model_for, settled, shared_out

MOST_CLIENTS, SHARDS = 10, 2
LEAST_PER_CLIENT = 20
"""Fewer clients are proposed before one has fewer samples than this."""
MOST_PUBLIC, LARGEST_SHARD, LARGEST_BATCH = 500, 500, 128
"""The paper's values: smaller data gets smaller ones."""
LARGEST_RESNET_IMAGE = 64
"""Pixels of the longer side up to which ResNet8 trains in reasonable time on a CPU."""
MOST_NAMES = 10


def data_named(given: str) -> DataSettings:
    """Return the data that a word means: a data set by name, `module:function`, a directory or an npz file."""
    if given in SOURCES or ":" in given:
        return DataSettings(name=given)
    path = Path(given)
    if path.is_dir():
        if (path / "train.csv").is_file():
            return DataSettings(name="csv", path=given)
        name = "leaf" if any((path / "train").glob("*.json")) else "folders"
        return DataSettings(name=name, path=given)
    if path.is_file():
        return DataSettings(name="npz", path=given)
    raise UserError(
        f"{given}: neither a data set ({', '.join(SOURCES)}) nor a directory with train/CLASS/* and test/CLASS/*, nor "
        "an npz file"
    )


def propose(given: str, file: Path) -> str:
    """Return a commented configuration for the data that `given` means, to be written to `file`; it can be run."""
    settings = data_named(given)
    source = load(settings)
    text = _text(settings, source, file)
    config = parse_config(text, str(file))
    shared_out(settled(config, source), source)
    model_for(config, source)
    return text


def _text(settings: DataSettings, source: Source, file: Path) -> str:
    samples, classes = len(source.train), source.train.num_classes
    public = min(MOST_PUBLIC, max(classes, samples // 10))
    left = samples - public
    clients = max(2, min(MOST_CLIENTS, left // LEAST_PER_CLIENT))
    shard = min(LARGEST_SHARD, left // (clients * SHARDS))
    if shard < 1:
        raise UserError(f"{settings.path or settings.name}: {samples} training samples are too few to split")
    batch = 2 ** int(np.log2(min(LARGEST_BATCH, max(2, SHARDS * shard // 4))))
    name = shlex.quote(str(file))
    model, width = _model(tuple(source.train.inputs.shape[1:]))
    lines = [
        *_facts(settings, source),
        "#",
        f"#     isfl data show {name}    how the data is split: a picture and a skew card",
        f"#     isfl run {name}          one run",
        f"#     isfl compare {name}      FedAvg, Uniform-IS and ISFL over three seeds",
        "#",
        "# Every key that is not here has a default.",
        "",
        f"# {', '.join(SHORTHANDS)}",
        'scheme = "isfl"',
        "",
        "[data]",
        f"name = {_quoted(settings.name)}",
        *([f"path = {_quoted(settings.path)}"] if settings.path is not None else []),
        f"public = {public}  # samples at the server, on which Lipschitz values are estimated",
        "",
        *(_split(clients, shard) if source.bounds is None else []),
        "[model]",
        f"name = {_quoted(model)}  # or {', '.join(other for other in MODELS if other != model)}, module:Class",
        f"width = {width}",
        "",
        "[training]",
        "rounds = 10",
        "local_epochs = 2",
        f"batch_size = {batch}",
    ]
    return "\n".join(lines) + "\n"


def _split(clients: int, shard: int) -> list[str]:
    return [
        "[split]",
        'kind = "mixed"  # or iid, shards, dirichlet, feature, flower',
        f"clients = {clients}",
        f"shards_per_client = {SHARDS}",
        f"shard_size = {shard}  # of samples sorted by class: a client knows few classes well",
        "nr = 0.9  # the share of each shard that is sorted; the rest is i.i.d. (1: most skew, 0: none)",
        "",
    ]


def _facts(settings: DataSettings, source: Source) -> list[str]:
    """Return comments that say what is in the data."""
    counts, names = source.train.class_counts, source.class_names
    each = f"{counts.min():,}" if counts.min() == counts.max() else f"{counts.min():,} to {counts.max():,}"
    shape = " x ".join(map(str, source.train.inputs.shape[1:]))
    shown = ", ".join(map(_quoted, names[:MOST_NAMES])) + (", ..." if len(names) > MOST_NAMES else "")
    return [
        f"# {_quoted(settings.path or settings.name)}: {len(source.train):,} training and {len(source.test):,} test "
        f"samples of shape {shape}.",
        f"# {len(names)} classes with {each} training samples each: {shown}.",
        *([] if source.bounds is None else [f"# It comes with {len(source.bounds) - 1} clients."]),
    ]


def _model(shape: tuple[int, ...]) -> tuple[str, float]:
    """Return the name and the width of a model that takes inputs of this shape and trains on a CPU."""
    sides = shape[1:]
    if len(shape) != 3 or min(sides) < 12:
        return "mlp", 1.0
    if shape[0] == 3 and min(sides) >= 16 and max(sides) <= LARGEST_RESNET_IMAGE:
        return "resnet8", 0.5
    return "small-cnn", 1.0


def _quoted(text: str) -> str:
    """Return a TOML string without line breaks, whatever a directory is called."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
