"""Directories of runs and comparisons as objects. Nothing is stored here: every answer is read from the directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isfl import layout
from isfl.errors import UserError
from isfl.experiment.cells import planned_cells
from isfl.experiment.compare import summarise
from isfl.experiment.directory import RunDirectory
from isfl.lines import LineReader
from isfl.problem.config import Config, config_from
from isfl.report.reading import find_runs, flat

if TYPE_CHECKING:
    from torch import nn

Record = dict[str, Any]
"""One row of a table: plain values under plain keys, ready for `pandas.DataFrame`."""


class Results:
    """A directory that can be shown as a report and as figures.

    Parameters
    ----------
    directory
        What a call or a command wrote.
    """

    path: Path
    """The directory."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path = Path(directory)

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
    >>> run.finished, run.config.training.rounds, [record["round"] for record in run.metrics]
    (True, 2, [1, 2])
    >>> sorted({record["client"] for record in run.probabilities})
    [0, 1, 2]
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self._directory = RunDirectory.open(self.path)
        self._metrics, self._probabilities = (LineReader(self.path / name) for name in layout.GROWING)

    def __repr__(self) -> str:
        config, records = self.config, self.metrics
        known = [record["accuracy_standard"] for record in records if record["accuracy_standard"] is not None]
        accuracy = f", D_S {100 * known[-1]:.1f} %" if known else ""
        rounds = f"{len(records)} of {config.training.rounds} rounds"
        return f"<Run {str(self.path)!r}: {config.scheme.name}, seed {config.seed}, {rounds}{accuracy}>"

    @property
    def config(self) -> Config:
        """The configuration with every default filled in."""
        return config_from(self._directory.config, str(self.path / layout.CONFIG))

    @property
    def finished(self) -> bool:
        """Whether all rounds are done and the final model is written."""
        return self._directory.finished

    @property
    def metrics(self) -> list[Record]:
        """One record per round so far: accuracies (shares between 0 and 1), losses, `rho`, costs.

        A value inside a group has a key with a dot, such as `seconds.training`. Values per class or per client are
        lists. `None` stands for what was not measured.
        """
        return [metrics_record(line) for line in _read(self._metrics)]

    @property
    def probabilities(self) -> list[Record]:
        """One record per round, client and class: what the client drew with, and the Lipschitz value measured after.

        The keys are `round`, `client`, `class`, `class_name`, `probability` and `lipschitz`. `None` stands for what
        was not measured.
        """
        names = self._directory.split["class_names"]
        return [record for line in _read(self._probabilities) for record in _probability_records(line, names)]

    def model(self) -> nn.Module:
        """Build the model of the configuration and load the final weights into it.

        Returns
        -------
        torch.nn.Module
            A new module, in evaluation mode.

        Raises
        ------
        UserError
            If the run is not finished, or its data or model can no longer be found.
        """
        if not self.finished:
            raise UserError(
                f"{self.path}: the run is not finished, it has no final model yet; resume it with isfl.resume"
            )
        from safetensors.torch import load_file

        from isfl.data import load
        from isfl.federation.preparation import prepared
        from isfl.problem.problem import model_of

        # The layers of torch itself: a user's tools need not know the compiled ones, which are for training.
        plain = {"training": self.config.training.model_copy(update={"convolutions": "torch"})}
        config = self.config.model_copy(update=plain)
        model = prepared(model_of(config, load(config.data)), config)
        model.load_state_dict(load_file(self.path / layout.MODEL))
        return model.eval()


class Comparison(Results):
    """Several schemes over several seeds, one run each.

    Parameters
    ----------
    directory
        The directory that `isfl.compare` or `isfl compare` wrote.

    Raises
    ------
    UserError
        If the directory is not that of a comparison.

    Examples
    --------
    >>> import isfl
    >>> tiny = {"split": {"clients": 2, "shard_size": 20}, "training": {"rounds": 1}}
    >>> _ = isfl.compare(tiny, schemes=["fedavg", "isfl"], seeds=[0, 1], out="runs/b")
    >>> comparison = isfl.Comparison("runs/b")
    >>> {scheme: len(runs) for scheme, runs in comparison.runs.items()}
    {'fedavg': 2, 'isfl': 2}
    >>> [(row["scheme"], row["seeds"]) for row in comparison.summary]
    [('fedavg', 2), ('isfl', 2)]
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        if not (self.path / layout.PLAN).exists():
            raise UserError(f"{self.path}: not a comparison (it has no {layout.PLAN}); start with isfl.compare")
        plan, self._cells = planned_cells(self.path)
        if plan["command"] != "compare":
            raise UserError(f"{self.path}: holds the runs of isfl {plan['command']}, not a comparison")

    def __repr__(self) -> str:
        schemes = ", ".join(dict.fromkeys(cell.label for cell in self._cells))
        finished = sum(cell.finished for cell in self._cells)
        return f"<Comparison {str(self.path)!r}: {schemes}; {finished} of {len(self._cells)} runs are finished>"

    @property
    def finished(self) -> bool:
        """Whether all runs are finished."""
        return all(cell.finished for cell in self._cells)

    @property
    def runs(self) -> dict[str, list[Run]]:
        """The runs that have begun, by scheme, in the order of their seeds."""
        found: dict[str, list[Run]] = {}
        for cell in self._cells:
            found.setdefault(cell.label, [])
            if cell.out.exists():
                found[cell.label].append(Run(cell.out))
        return found

    @property
    def summary(self) -> list[Record]:
        """One record per scheme: means and sample standard deviations over seeds in the last round, in percent.

        Raises `UserError` while runs are unfinished.
        """
        if not self.finished:
            raise UserError(f"{self.path}: the comparison is not finished; resume it with isfl resume {self.path}")
        return [asdict(row) for row in summarise(self._cells)]


def metrics_record(line: Mapping[str, Any]) -> Record:
    """Return a line of `metrics.jsonl` without groups: `{"seconds": {"wall": 1}}` becomes `{"seconds.wall": 1}`."""
    return flat(line)


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
