"""What the server learns about a client: every cell of the table in docs/scaling.md, against what crosses the wire.

A federation whose clients hold their own data runs two rounds in each mode. What its clients have (counts,
probabilities, trained models, losses, Lipschitz values) is recorded at the clients, and looked for in all messages up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict

from isfl.engines.flower import client as node_side
from isfl.errors import UserError
from isfl.federation import FederationState, RoundReport
from isfl.federation.client import observe_client, renew_at_client, train_client
from isfl.problem.config import Config
from isfl.problem.problem import prepare
from tests.grids import MEASURED_AT_CLIENT, PRIVATE, Federation, engine_of, own, rounds

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN = "| what the server learns about a client |"
NOISE: dict[str, Any] = {"clip": 1.0, "noise": 1.0}
FAIR = {**PRIVATE, "aggregation": {"weights": "client"}}
MODES: dict[str, dict[str, Any]] = {
    '`where = "server"`': {"scheme": "isfl"},
    '`where = "client"`': {"scheme": PRIVATE},
    'and `lipschitz_at = "client"`': {"scheme": MEASURED_AT_CLIENT},
    'and `privacy.at = "server"`': {"scheme": FAIR, "privacy": {**NOISE, "at": "server"}},
    'and `privacy.at = "client"`': {"scheme": FAIR, "privacy": {**NOISE, "at": "client"}},
    "and `[secure]`": {"scheme": MEASURED_AT_CLIENT, "secure": {}},
}
"""The changes that each column of the table stands for."""


def table() -> list[tuple[str, str, str]]:
    """Return (row, column, cell) of the table."""
    lines = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].splitlines()
    columns, found = [part.strip() for part in lines[0].strip(" |").split("|")], []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        row, *cells = (part.strip() for part in line.strip("| ").split("|"))
        found += [(row, column, cell) for column, cell in zip(columns, cells, strict=True)]
    return found


@dataclasses.dataclass
class Watched:
    """Two rounds: what crossed the wire, what the server has afterwards, and what the clients have."""

    config: Config
    grid: Federation
    state: FederationState
    report: RoundReport
    counts: list[np.ndarray]
    kept: dict[str, list[np.ndarray]]
    """Of single clients: probabilities, Lipschitz values, tensors of trained models, losses, and gradient norms."""

    def sent(self, values: list[np.ndarray]) -> bool:
        """Whether a client sent one of these vectors, or numbers."""
        assert values, "something to look for"
        return any(
            vector.size == value.size and np.allclose(vector.ravel(), value.ravel(), rtol=1e-6, atol=0)
            for way, records in self.grid.wire
            if way == "up"
            for vector in vectors(records)
            for value in values
        )

    def fields(self) -> set[str]:
        """Return the names of all fields that clients sent."""
        return {
            field
            for way, records in self.grid.wire
            if way == "up"
            for record in records.config_records.values()
            for field in record
        }


def vectors(records: RecordDict) -> Iterator[np.ndarray]:
    for arrays in records.array_records.values():
        yield from (array.numpy() for array in arrays.values())
    for record in records.config_records.values():
        for value in record.values():
            numbers = value if isinstance(value, list) else [value]
            if all(isinstance(number, int | float) for number in numbers):
                yield np.array(numbers, dtype=float)


def watch(column: str, directory: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Watched:
    kept: dict[str, list[np.ndarray]] = {name: [] for name in ("probabilities", "lipschitz", "model", "loss", "norms")}
    train, renew = train_client, renew_at_client

    def training(model: Any, task: Any, data: Any, config: Config, memory: Any, **options: Any) -> Any:
        """Train twice: as in this mode, and without noise and masks, to see what the client has."""
        bare = config.model_copy(update={"privacy": None, "secure": None})
        update, _ = train(model, task, data, bare, memory, **options)
        kept["model"] += [value.numpy() for value in update.model.values() if value.is_floating_point()]
        kept["loss"].append(np.array([update.train_loss]))
        kept["norms"] += [value for value in (update.gradient_norm, update.gradient_variance) if value is not None]
        seen = observe_client(task, data.class_counts.astype(float), config, memory)
        kept["probabilities"].append(seen.probabilities)
        return train(model, task, data, config, memory, **options)

    def renewing(model: Any, task: Any, data: Any, public: Any, config: Config, memory: Any) -> Any:
        report, _ = renew(model, task, data, public, config.model_copy(update={"secure": None}), memory)
        kept["lipschitz"] += [values for values in (report.lipschitz,) if values is not None]
        return renew(model, task, data, public, config, memory)

    monkeypatch.setattr(node_side, "train_client", training)
    monkeypatch.setattr(node_side, "renew_at_client", renewing)
    small = {"model": {"name": "mlp", "width": 0.25}, "target": {"kind": "uniform"}}
    config, grid = own(directory, **{**small, **MODES[column], **changes})
    state, reports = rounds(config, engine_of(config, grid), 2)
    assert all(report.refused == {} for report in reports)
    counts = [data.class_counts.astype(float) for data in prepare(_central(config)).clients]
    return Watched(config, grid, state, reports[-1], counts, kept)


def _central(config: Config) -> Config:
    return config.model_copy(update={"flower": config.flower.model_copy(update={"own_data": False, "clients": None})})


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Watched]:
    """Return what was watched in the mode of a column, which runs once."""
    known: dict[str, Watched] = {}

    def find(column: str) -> Watched:
        if column not in known:
            with pytest.MonkeyPatch.context() as monkeypatch:
                known[column] = watch(column, tmp_path_factory.mktemp("mode"), monkeypatch)
        return known[column]

    return find


SENT: dict[str, Callable[[Watched], bool]] = {
    "number of samples": lambda run: "num_samples" in run.fields(),
    "class counts": lambda run: run.sent(run.counts) or "class_counts" in run.fields(),
    "sampling probabilities": lambda run: run.sent(run.kept["probabilities"]),
    "accuracy of the model on the client's data": lambda run: "correct" in run.fields(),
    "Lipschitz values": lambda run: (
        "lipschitz" in run.fields() or bool(run.kept["lipschitz"] and run.sent(run.kept["lipschitz"]))
    ),
    "`rho`": lambda run: "rho" in run.fields(),
    "trained model": lambda run: run.sent(run.kept["model"]),
    "training loss": lambda run: "train_loss" in run.fields() or run.sent(run.kept["loss"]),
    "gradient norms and variances": lambda run: bool({"gradient_norm", "gradient_variance"} & run.fields()),
}
"""Whether clients send it, for each row of the table."""
COMPUTED: dict[str, Callable[[Watched], bool]] = {
    "sampling probabilities": lambda run: run.state.probabilities is not None,
    "Lipschitz values": lambda run: len(run.report.lipschitz) > 0,
    "`rho`": lambda run: run.report.rho.used is not None,
}
"""Whether the server has it without having been sent it."""
BOUND = {"diagnostics": {"bound": True}}


def test_the_table_has_all_modes_and_all_rows() -> None:
    assert {column for _, column, _ in table()} == MODES.keys() and {row for row, _, _ in table()} == SENT.keys()


@pytest.mark.parametrize(("row", "column", "cell"), table())
def test_a_cell_of_the_table_is_what_crosses_the_wire(
    row: str,
    column: str,
    cell: str,
    seen: Callable[[str], Watched],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, words = seen(column), cell.replace(",", " ").replace(":", " ").split()
    sent, computed = SENT[row](run), row in COMPUTED and COMPUTED[row](run)
    match words[0]:
        case "yes" | "receives":
            assert sent
        case "computes":
            assert computed and not sent
        case "no":
            assert not sent and not computed
        case "with":
            assert not sent and SENT[row](watch(column, tmp_path, monkeypatch, **BOUND))
        case "refused":
            assert not sent
            with pytest.raises(UserError, match=r"diagnostics\.bound = true"):
                own(tmp_path, **{"target": {"kind": "uniform"}, **MODES[column], **BOUND})
        case _:
            raise AssertionError(f"{row}: {cell}")
    if "(noised counts" in cell:
        noised = watch(column, tmp_path, monkeypatch, target={"kind": "noised", "epsilon": 1.0})
        assert "class_counts" in noised.fields() and not noised.sent(noised.counts)
