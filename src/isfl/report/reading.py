"""Run directories as they are found: finished, running, damaged or foreign.

What can be read is read, and every defect becomes one line for the reader. Only a directory with nothing to show is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from isfl import layout
from isfl.errors import UserError
from isfl.experiment import columns
from isfl.lines import LineReader
from isfl.theory.arrays import Array

SIGNS = (layout.CONFIG, layout.METRICS)
"""A directory with one of these is a run directory."""
DEPTH = 3
"""How far below a given directory runs are looked for."""
SEPARATOR = " · "
"""Between the group and the label of a planned run."""


@dataclass(frozen=True)
class FoundRun:
    """The content of a run directory, and what is wrong with it."""

    path: Path
    name: str
    """Its place below the directory that was asked for."""
    label: str
    """What it is among others: runs that differ in the seed alone share it."""
    config: Mapping[str, Any]
    """Empty where it cannot be read."""
    environment: Mapping[str, Any]
    class_names: tuple[str, ...]
    counts: Array | None
    """(K, C) samples of every client; None where they are private or unknown."""
    target: Array | None
    """(K, C) the target shares of every client."""
    public_counts: Array | None
    lines: tuple[Mapping[str, Any], ...]
    """Of `metrics.jsonl`, one per round."""
    probabilities: tuple[Mapping[str, Any], ...]
    """Of `probabilities.jsonl`, one per round."""
    finished: bool
    under_way: bool
    """A process is running it."""
    problems: tuple[str, ...]

    @property
    def group(self) -> str:
        """The setting it belongs to where a plan has several; else empty."""
        return self.label.rpartition(SEPARATOR)[0]

    @property
    def short_label(self) -> str:
        """What it is among the others of its group."""
        return self.label.rpartition(SEPARATOR)[2]

    @property
    def scheme(self) -> str:
        return str(part_of(self.config, "scheme").get("name", "unknown scheme"))

    @property
    def seed(self) -> int | None:
        return _whole(self.config.get("seed"))

    @property
    def rounds(self) -> int | None:
        """How many rounds are configured."""
        return _whole(part_of(self.config, "training").get("rounds"))

    @property
    def evaluated(self) -> list[Mapping[str, Any]]:
        """The rounds with accuracies."""
        return columns.evaluated(self.lines)

    @property
    def shares(self) -> Array | None:
        """(K, C) the label mix `p^k` of every client; None where it is private or unknown."""
        return None if self.counts is None else self.counts / self.counts.sum(axis=1, keepdims=True)


Readers = dict[Path, LineReader]
"""By file. A caller that polls keeps them, so that no line is parsed twice."""


def find_runs(paths: Sequence[Path], readers: Readers | None = None) -> tuple[list[FoundRun], list[str]]:
    """Return every run in or below the given directories, and a line for each that shows nothing.

    Raises `UserError` where there is nothing to show at all.
    """
    runs: list[FoundRun] = []
    refused: list[str] = []
    seen: set[Path] = set()
    for given in paths:
        for path, label in run_directories(given):
            if path.resolve() in seen:  # given twice, it must not pass for a second seed
                continue
            seen.add(path.resolve())
            try:
                runs.append(read_run(path, given, label, readers))
            except UserError as error:
                refused.append(str(error))
    if not runs:
        raise UserError("; ".join(refused))
    return _told_apart(runs), refused


def read_run(
    path: Path, given: Path | None = None, label: str | None = None, readers: Readers | None = None
) -> FoundRun:
    """Read one run directory."""
    if not path.is_dir():
        raise UserError(f"{path}: no such directory")
    if not any((path / name).exists() for name in SIGNS):
        raise UserError(f"{path}: not a run directory (it has neither {' nor '.join(SIGNS)})")
    problems: list[str] = []
    config, environment, split = (_object(path / name, problems) for name in layout.DESCRIPTION)
    known = {} if readers is None else readers
    lines, probabilities = (_lines(path / name, known, problems) for name in layout.GROWING)
    if not config and not lines:
        raise UserError(f"{path}: nothing in it can be read ({'; '.join(problems) or 'its files are empty'})")
    rounds = _whole(part_of(config, "training").get("rounds"))
    finished = (path / layout.MODEL).exists() or (rounds is not None and len(lines) == rounds)
    working = not finished and under_way(path)
    if not finished and not working:
        problems.append(f"unfinished: {len(lines)} of {rounds or 'an unknown number of'} rounds are done")
    names = split.get("class_names") if isinstance(split.get("class_names"), list) else None
    counts = _matrix(split.get("client_counts"), "client_counts", problems)
    width = counts.shape[1] if counts is not None else len(names or _first_recall(lines))
    return FoundRun(
        path=path,
        name=str(path.relative_to(given)) if given is not None and path != given else path.name,
        label=label or str(part_of(config, "scheme").get("name", path.name)),
        config=config,
        environment=environment,
        class_names=tuple(map(str, range(width) if names is None else names)),
        counts=counts,
        target=_matrix(split.get("target"), "target", problems),
        public_counts=_vector(split.get("public_counts")),
        lines=tuple(lines),
        probabilities=tuple(probabilities),
        finished=finished,
        under_way=working,
        problems=tuple(problems),
    )


def by_group(runs: Sequence[FoundRun]) -> dict[str, dict[str, list[FoundRun]]]:
    """Return group -> label -> runs, in the order they come; runs without a round are left out."""
    groups: dict[str, dict[str, list[FoundRun]]] = {}
    for run in runs:
        if run.lines:
            groups.setdefault(run.group, {}).setdefault(run.short_label, []).append(run)
    return groups


def run_directories(given: Path) -> list[tuple[Path, str | None]]:
    """Return the run directories at or below a path, with the labels of the plan they belong to."""
    if (given / layout.PLAN).is_file():
        cells = _object(given / layout.PLAN, []).get("cells")
        planned = [
            (given / str(cell["out"]), SEPARATOR.join(str(cell[k]) for k in ("group", "label") if cell.get(k)))
            for cell in (cells if isinstance(cells, list) else [])
            if isinstance(cell, dict) and (given / str(cell.get("out"))).is_dir()
        ]
        if planned:
            return [(path, label or None) for path, label in planned]
    if any((given / name).exists() for name in SIGNS):
        return [(given, None)]
    found = [
        file.parent
        for depth in range(1, DEPTH + 1)
        for file in sorted(given.glob("/".join(["*"] * depth + [layout.CONFIG])))
    ]
    return [(path, None) for path in found] or [(given, None)]


def under_way(path: Path) -> bool:
    """Return whether a process is running this run, from the kernel's list of locks: trying the lock could block it."""
    try:
        inode = (path / layout.LOCK).stat().st_ino
        held = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return False
    return any(line.split()[1] == "FLOCK" and line.split()[5].endswith(f":{inode}") for line in held.splitlines())


def _told_apart(runs: list[FoundRun]) -> list[FoundRun]:
    """Relabel runs of one label whose configurations differ in more than the seed: the labels say in what."""
    settings = [{key: value for key, value in flat(run.config).items() if key != "seed"} for run in runs]
    labels = told_apart([run.label for run in runs], settings)
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def told_apart(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Add to equal names the settings in which they differ; unknown (empty) settings differ from none."""
    result = []
    for name, own in zip(names, settings, strict=True):
        others = [other for peer, other in zip(names, settings, strict=True) if peer == name and other]
        keys = [key for key in own if any(other.get(key) != own[key] for other in others)]
        told = ", ".join(f"{key}={own[key]}" for key in keys[:3]) + (", …" if len(keys) > 3 else "")
        result.append(f"{name} ({told})" if keys else name)
    return result


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Return nested settings as `a.b.c` -> value."""
    if isinstance(value, Mapping):
        parts = [flat(item, f"{name}.{key}" if name else str(key)) for key, item in value.items()]
        return {key: item for part in parts for key, item in part.items()}
    return {name: value}


def part_of(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a table of the configuration; empty if it is anything else."""
    part = config.get(key)
    return part if isinstance(part, Mapping) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _object(file: Path, problems: list[str]) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(f"{file.name} is missing")
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{file.name} cannot be read ({error})")
    else:
        if isinstance(content, dict):
            return content
        problems.append(f"{file.name} is not a JSON object")
    return {}


def _lines(file: Path, readers: Readers, problems: list[str]) -> list[dict[str, Any]]:
    """Return the complete lines up to the first damaged one; half a line at the end is still being written."""
    reader = readers.setdefault(file, LineReader(file))
    found = reader.read()
    if not file.exists():
        problems.append(f"{file.name} is missing")
    if reader.damaged is not None:
        problems.append(f"{file.name}: line {reader.damaged} is damaged; later lines are not shown")
    return found


def _matrix(value: Any, name: str, problems: list[str]) -> Array | None:
    if value is None:
        return None
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all():
        problems.append(f"{layout.SPLIT}: {name} is not a table of numbers")
        return None
    return array


def _vector(value: Any) -> Array | None:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 1 and array.size else None


def _first_recall(lines: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
    return next((line["recall"] for line in lines if isinstance(line.get("recall"), list)), [])
