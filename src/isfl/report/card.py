"""The model card of a run, in Markdown: data, skew, training, results and limits, computed from the run directory."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from isfl import layout
from isfl.experiment import columns
from isfl.report.content import warnings_of
from isfl.report.reading import FoundRun, flat, read_run
from isfl.theory import skew_card

MOST_CLASSES = 20
"""Rows of the table of classes: those with the lowest recall."""


def model_card(directory: Path) -> str:
    """Return the card of the finished run in a directory."""
    run = read_run(directory)
    data, model = (dict(run.config.get(key) or {}) for key in ("data", "model"))
    parts = [
        f"# Model card: {_plain(model.get('name'))} trained with {_plain(run.scheme)} on {_plain(data.get('name'))}",
        f"Written by isfl from the run directory `{_plain(run.path.name)}`; every number is computed from it.",
        _section("Model", _table(("", ""), _model_rows(run, directory / layout.MODEL))),
        _section("Data and skew", _table(("", ""), _data_rows(run)), _skew(run)),
        _section("Training", _table(("", ""), _training_rows(run))),
        _section("Results", _table(("last evaluated round", ""), _result_rows(run)), _recalls(run)),
        _section("Limits", "\n".join(f"- {line}" for line in limits_of(run))),
    ]
    return "\n\n".join(parts) + "\n"


def _model_rows(run: FoundRun, file: Path) -> list[tuple[str, str]]:
    with safe_open(file, framework="numpy") as weights:
        names = weights.keys()
        sizes = [math.prod(weights.get_slice(name).get_shape()) for name in names]
    versions = dict(run.environment.get("versions") or {})
    return [
        *_settings(run.config, "model"),
        ("values in the state dictionary", f"{sum(sizes):,}"),
        ("SHA-256 of the weights", hashlib.sha256(file.read_bytes()).hexdigest()),
        ("made with", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]


def _data_rows(run: FoundRun) -> list[tuple[str, str]]:
    rows = [*_settings(run.config, "data"), *_settings(run.config, "split")]
    rows.append(("classes", ", ".join(run.class_names[:MOST_CLASSES]) + (", ..." if len(run.class_names) > 20 else "")))
    if run.public_counts is not None:
        rows.append(("public samples", f"{run.public_counts.sum():,.0f}"))
    return rows


def _skew(run: FoundRun) -> str:
    if run.counts is None:
        return "The class counts of the clients are private, so their skew is not known here."
    card = skew_card(run.counts)
    rows = [
        (name, f"{values.min():{form}}", f"{np.median(values):{form}}", f"{values.max():{form}}")
        for name, values, form in (
            ("samples", card.samples, ",.0f"),
            ("classes the client lacks", card.missing, ".0f"),
            ("total variation distance to the federation's label mix", card.total_variation, ".2f"),
            ("Hellinger distance", card.hellinger, ".2f"),
        )
    ]
    return _table((f"over {len(run.counts)} clients", "lowest", "median", "highest"), rows)


def _training_rows(run: FoundRun) -> list[tuple[str, str]]:
    return [
        ("seed", str(run.seed)),
        *(row for part in ("scheme", "target", "training") for row in _settings(run.config, part)),
    ]


def _result_rows(run: FoundRun) -> list[tuple[str, str]]:
    lines = run.lines
    best = columns.best_line(lines) if run.evaluated else None
    return [
        ("rounds", f"{len(lines)} of {run.rounds}"),
        ("accuracy on the balanced test set (D_S)", _percent(columns.last(lines, "accuracy_standard"))),
        ("the best round", "-" if best is None else f"{best['round']} ({_percent(best['accuracy_standard'])})"),
        ("accuracy on all clients' data (D_G)", _percent(columns.last(lines, "accuracy_global"))),
        ("the worst client, on its own data", _percent(columns.last(lines, "worst_client_accuracy"))),
        *(
            (f"gradient evaluations for {part}", f"{columns.total(lines, f'gradient_evaluations.{part}'):,.0f}")
            for part in ("training", "sampling", "diagnostics")
        ),
        ("bytes sent by clients", f"{columns.total(lines, 'bytes_up'):,.0f}"),
        ("bytes sent to clients", f"{columns.total(lines, 'bytes_down'):,.0f}"),
        ("seconds of training and sampling", f"{columns.mean_seconds([lines]):,.1f}"),
    ]


def _recall_by_class(run: FoundRun) -> list[tuple[str, float]]:
    """Return the recall of each class in the last evaluated round, the lowest first; empty if none was evaluated."""
    last: Sequence[Any] = next(
        (line["recall"] for line in reversed(run.lines) if isinstance(line.get("recall"), list)), []
    )
    known = [(name, float(recall)) for name, recall in zip(run.class_names, last, strict=False) if recall is not None]
    return sorted(known, key=lambda row: row[1])


def _recalls(run: FoundRun) -> str:
    rows = _recall_by_class(run)
    heading = "class" if len(rows) <= MOST_CLASSES else f"class (the {MOST_CLASSES} lowest of {len(rows)})"
    return _table((heading, "recall on D_S"), [(name, _percent(recall)) for name, recall in rows[:MOST_CLASSES]])


def limits_of(run: FoundRun) -> list[str]:
    """Return what a user of the model should know, one sentence each."""
    found = [
        "One run with one seed: the spread over seeds is not known from it. `isfl compare` measures it.",
        "Accuracies hold for the data named above. The model was not tested on any other.",
    ]
    recalls = _recall_by_class(run)
    if recalls and recalls[0][1] < recalls[-1][1]:
        (low, lowest), (high, highest) = recalls[0], recalls[-1]
        found.append(
            f"Classes are not served equally: recall is {_percent(lowest)} on {_plain(low)} and {_percent(highest)} on "
            f"{_plain(high)}."
        )
    mean, worst = (columns.last(run.lines, key) for key in ("accuracy_global", "worst_client_accuracy"))
    if worst < mean:
        found.append(f"Clients are not served equally: the worst has {_percent(worst)}, all together {_percent(mean)}.")
    best = columns.best_line(run.lines) if run.evaluated else None
    if best is not None and best["accuracy_standard"] > columns.last(run.lines, "accuracy_standard"):
        found.append(f"This is the model of the last round; round {best['round']} was better on D_S.")
    refused = sum(len(line.get("refused") or {}) for line in run.lines)
    if refused:
        found.append(f"Results of clients were refused {refused} times (`refused` in the metrics says why).")
    return [*found, *warnings_of(run)]


# ---------------------------------------------------------------- Markdown


def _settings(config: Mapping[str, Any], part: str) -> list[tuple[str, str]]:
    """Return the keys of a part of the configuration that have a value."""
    return [(key, str(value)) for key, value in flat(config.get(part), part).items() if value not in (None, [], {})]


def _section(title: str, *parts: str) -> str:
    return "\n\n".join([f"## {title}", *parts])


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *([_plain(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: object) -> str:
    """Return a text that Markdown shows as it is: names of classes and files may hold anything."""
    line = " ".join(str(text).split())
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in line)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if math.isfinite(share) else "-"
