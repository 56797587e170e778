"""The directory of a run as an object. Nothing is stored here: every answer is read from the directory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isfl import layout
from isfl.api.records import Record, metrics_record, table
from isfl.errors import UserError
from isfl.experiment.directory import RunDirectory
from isfl.lines import LineReader
from isfl.problem.config import Config, config_from
from isfl.report.reading import find_runs

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure
    from torch import nn

    from isfl.models import AnyModel


class Results(ABC):
    """A directory that can be shown as tables, a picture, a report and figures.

    Parameters
    ----------
    directory
        What a call or a command wrote.
    """

    path: Path
    """The directory."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(directory)

    @property
    @abstractmethod
    def records(self) -> list[Record]:
        """One plain dictionary per round."""

    @property
    def metrics(self) -> pandas.DataFrame | list[Record]:
        """The `records` as a pandas DataFrame; the records themselves where pandas is not installed."""
        return table(self.records)

    def plot(self) -> Figure:
        """Draw accuracies and training loss over rounds.

        Returns
        -------
        matplotlib.figure.Figure
            A new figure; a notebook shows it. Save it with its method `savefig`.

        Raises
        ------
        UserError
            If no round is finished yet.
        """
        from isfl.report.notebook import plot_of

        return plot_of(self.path)

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write one self-contained HTML page that shows the results; return its path.

        Parameters
        ----------
        path
            The file to write (default: `report.html` in the directory).

        Returns
        -------
        Path
            The file.

        Raises
        ------
        UserError
            If the file cannot be written.
        """
        from isfl.report.page import write_report

        file = self.path / layout.REPORT if path is None else Path(path)
        write_report([self.path], file)
        return file

    def figures(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Draw the paper's figures that these results have data for, each as PDF and PNG.

        Parameters
        ----------
        directory
            Where the figures go; it is made where it does not exist.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        UserError
            If there is nothing to draw yet, or the files cannot be written.
        """
        from isfl.report.figures import KINDS, write_figures

        found, _ = find_runs([self.path])
        written, _ = write_figures(found, Path(directory))
        return [Path(directory) / f"{name}.{kind}" for name in written for kind in KINDS]


class Run(Results):
    """One run: its configuration, its tables, its final model. It may still be under way.

    Parameters
    ----------
    directory
        A run directory, from `isfl.run`, `isfl run` or a comparison.

    Raises
    ------
    UserError
        If the directory is not that of a run.

    Examples
    --------
    >>> import isfl
    >>> _ = isfl.run({"split": {"clients": 3, "shard_size": 20}, "training": {"rounds": 2}}, out="runs/a")
    >>> run = isfl.Run("runs/a")
    >>> run.finished, run.config.training.rounds, [record["round"] for record in run.records]
    (True, 2, [1, 2])
    >>> sorted({record["client"] for record in run.probabilities})
    [0, 1, 2]
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self._directory = RunDirectory.open(self.path)
        self._metrics, self._probabilities = (LineReader(self.path / name) for name in layout.GROWING)

    def __repr__(self) -> str:
        config, records = self.config, self.records
        known = [value for record in records if (value := record.get("accuracy_standard")) is not None]
        accuracy = f", D_S {100 * known[-1]:.1f} %" if known else ""
        rounds = f"{len(records)} of {config.training.rounds} rounds"
        return f"<Run {str(self.path)!r}: {config.scheme.name}, seed {config.seed}, {rounds}{accuracy}>"

    def _repr_html_(self) -> str:
        from isfl.report.notebook import html_of_run

        return html_of_run(repr(self), self.path)

    @property
    def config(self) -> Config:
        """The configuration with every default filled in."""
        return config_from(self._directory.config, str(self.path / layout.CONFIG))

    @property
    def finished(self) -> bool:
        """Whether all rounds are done and the final model is written."""
        return self._directory.finished

    @property
    def records(self) -> list[Record]:
        """One plain dictionary per round so far: accuracies (shares between 0 and 1), losses, `rho`, costs.

        A value inside a group has a key with a dot, such as `seconds.training`. Values per class or per client are
        lists; with more than 10,000 clients, values per client are dictionaries with the clients that were measured.
        `None` stands for what was not measured.
        """
        return [metrics_record(line) for line in _read(self._metrics)]

    @property
    def probabilities(self) -> list[Record]:
        """One record per round, client and class: what the client drew with, and the Lipschitz value measured after.

        The keys are `round`, `client`, `class`, `class_name`, `probability` and `lipschitz`. `None` stands for what
        was not measured.
        """
        names = self._directory.class_names
        try:
            return [record for line in _read(self._probabilities) for record in _probability_records(line, names)]
        except (LookupError, TypeError, AttributeError):
            file = self.path / layout.PROBABILITIES
            raise UserError(f"{file}: does not fit the {len(names)} classes of {layout.SPLIT}; restore it") from None

    def model(self, model: AnyModel | None = None) -> nn.Module:
        """Build the model of the configuration and load the final weights into it.

        Parameters
        ----------
        model
            What `isfl.run` was given as `model`, once more.

        Returns
        -------
        torch.nn.Module
            A new module, in evaluation mode.

        Raises
        ------
        UserError
            If the run is not finished, or its model can no longer be found.
        """
        from isfl.api.final_model import final_model

        return final_model(self._directory, self.config, model)

    def export(self, to: str | os.PathLike[str], model: AnyModel | None = None) -> list[Path]:
        """Write the finished run for other programs.

        Parameters
        ----------
        to
            A file, whose suffix says what is written: `.pt` (the weights, a plain `state_dict`), `.pt2` (the model as
            a program of `torch.export`, for batches of any size), `.csv` or `.parquet` (the metrics), `.md` (a model
            card). Or a directory for all of them.
        model
            What `isfl.run` was given as `model`, once more.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        UserError
            If the run is not finished, the format is unknown, its library is missing, or a file cannot be written.
        """
        from isfl.api.export import export

        return export(self, Path(to), model)


def _probability_records(line: Mapping[str, Any], class_names: list[str]) -> list[Record]:
    unknown = [None] * len(class_names)
    return [
        {
            "round": line["round"],
            "client": int(client),
            "class": index,
            "class_name": class_names[index],
            "probability": drawn,
            "lipschitz": line["lipschitz"].get(client, unknown)[index],
        }
        for client, probabilities in line["probabilities"].items()
        for index, drawn in enumerate(probabilities)
    ]


def _read(reader: LineReader) -> list[dict[str, Any]]:
    lines = reader.read()
    if reader.damaged is not None:
        raise UserError(f"{reader.file}: line {reader.damaged} is damaged; restore the file, or start a new run")
    return lines
