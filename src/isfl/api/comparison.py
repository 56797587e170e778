"""The directory of a comparison as an object, with its runs and statistics over seeds."""

from __future__ import annotations

import os
from dataclasses import asdict

from isfl import layout
from isfl.api.records import Record
from isfl.api.results import Results, Run
from isfl.errors import UserError
from isfl.experiment.cells import planned_cells
from isfl.experiment.compare import Metric, paired_rows, summarise


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
    >>> [(row["scheme"], len(row["by_seed"])) for row in comparison.paired(against="fedavg")]
    [('isfl', 2)]
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

    def _repr_html_(self) -> str:
        from isfl.report.notebook import html_of_comparison

        return html_of_comparison(repr(self), self.path, self._cells)

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
    def records(self) -> list[Record]:
        """One plain dictionary per scheme, seed and round so far: `scheme`, `seed`, and what `Run.records` has."""
        return [
            {"scheme": scheme, "seed": run.config.seed, **record}
            for scheme, runs in self.runs.items()
            for run in runs
            for record in run.records
        ]

    @property
    def summary(self) -> list[Record]:
        """One record per scheme: means and sample standard deviations over seeds in the last round, in percent.

        Raises `UserError` while runs are unfinished.
        """
        self._refuse_unfinished()
        return [asdict(row) for row in summarise(self._cells)]

    def paired(self, against: str, metric: Metric = "accuracy_standard") -> list[Record]:
        """Compare every other scheme with one of them, seed by seed, in the last round.

        A seed decides the split and the initial model, so two runs of one seed differ in the scheme alone.

        Parameters
        ----------
        against
            The scheme that is subtracted.
        metric
            What is compared: `accuracy_standard` (D_S), `accuracy_global` (D_G) or `worst_client_accuracy`.

        Returns
        -------
        list of dict
            One record per scheme, in percentage points: `difference` (mean over `seeds`), `spread` (sample standard
            deviation), `low` and `high` (95 % interval of Student's t; `None` for one seed), `by_seed` (seed to
            difference), and how many seeds are `better`, `equal` and `worse`.

        Raises
        ------
        UserError
            If the comparison is unfinished or does not have the scheme or the metric.
        """
        self._refuse_unfinished()
        return [asdict(row) for row in paired_rows(self._cells, against, metric)]

    def _refuse_unfinished(self) -> None:
        if not self.finished:
            raise UserError(f"{self.path}: the comparison is not finished; resume it with isfl.resume")
