"""A finished run in files for other programs: the model, the metrics, the model card."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isfl.data.own import call
from isfl.errors import UserError
from isfl.files import write_whole

if TYPE_CHECKING:
    from isfl.api.results import Run
    from isfl.models import AnyModel


def export(run: Run, to: Path, model: AnyModel | None = None) -> list[Path]:
    """Write one file, or all formats into a directory; return the files.

    A directory lacks the formats whose library is not installed, with a warning for each.
    """
    if not run.finished:
        raise UserError(f"{run.path}: the run is not finished, there is nothing to export; resume it with isfl.resume")
    if to.is_dir() or not to.suffix:
        return _export_all(run, to, model)
    if to.suffix not in FORMATS:
        known = ", ".join(f"{suffix} ({format.meaning})" for suffix, format in FORMATS.items())
        raise UserError(f"{to}: unknown format {to.suffix!r}; choose one of {known}, or a directory for all of them")
    _write(to, FORMATS[to.suffix].content(run, model))
    return [to]


def _export_all(run: Run, directory: Path, model: AnyModel | None) -> list[Path]:
    written = []
    for format in FORMATS.values():
        try:
            content = format.content(run, model)
        except _MissingLibraryError as missing:
            warnings.warn(f"{directory / format.file} is not written: {missing}", stacklevel=4)
            continue
        _write(directory / format.file, content)
        written.append(directory / format.file)
    return written


def _write(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
    except OSError as error:
        raise UserError(f"{file}: cannot be written ({error.strerror})") from None


class _MissingLibraryError(UserError):
    """A format needs a library that is not installed."""


# ---------------------------------------------------------------- formats


def _state_dict(run: Run, given: AnyModel | None) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save(run.model(given).state_dict(), stream)
    return stream.getvalue()


def _program(run: Run, given: AnyModel | None) -> bytes:
    """Return the model as a program of torch.export, for batches of any size."""
    import torch

    from isfl.api.final_model import example_inputs
    from isfl.experiment.directory import RunDirectory

    inputs = example_inputs(RunDirectory.open(run.path), run.config)
    batch = {0: torch.export.Dim("batch")}
    make = partial(torch.export.export, run.model(given), (inputs,), dynamic_shapes=(batch,))
    stream = io.BytesIO()
    torch.export.save(call(make, "torch.export of the model"), stream)
    return stream.getvalue()


def _csv(run: Run, given: AnyModel | None) -> bytes:
    """Return one row per round; lists are JSON, and what was not measured is empty."""
    stream = io.StringIO(newline="")
    table = _columns(run)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table)
    writer.writerows([_cell(value) for value in row] for row in zip(*table.values(), strict=True))
    return stream.getvalue().encode()


def _parquet(run: Run, given: AnyModel | None) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise _MissingLibraryError("Parquet needs pyarrow; pip install 'isfl[tables]'") from None
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table(_columns(run)), stream)
    return stream.getvalue()


def _card(run: Run, given: AnyModel | None) -> bytes:
    from isfl.report.card import model_card

    return model_card(run.path).encode()


def _columns(run: Run) -> dict[str, list[Any]]:
    """Return the records by column; None where a round lacks a value."""
    records = run.records
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | bool) else value


@dataclass(frozen=True)
class Format:
    """What a suffix means."""

    file: str
    """Its name in a directory of all formats."""
    meaning: str
    content: Callable[[Run, AnyModel | None], bytes]


FORMATS = {
    ".pt": Format("model.pt", "weights as a state_dict", _state_dict),
    ".pt2": Format("model.pt2", "the model as a program of torch.export", _program),
    ".csv": Format("metrics.csv", "metrics", _csv),
    ".parquet": Format("metrics.parquet", "metrics", _parquet),
    ".md": Format("MODEL_CARD.md", "the model card", _card),
}
