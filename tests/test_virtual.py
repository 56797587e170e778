"""A million virtual clients: views into shared data, computed when asked for, and nothing that grows with them."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isfl import layout
from isfl.data import Dataset
from isfl.data.sources import Source
from isfl.data.splits import Pool, partition
from isfl.data.splits.virtual import VirtualPopulation, VirtualSplit
from isfl.errors import UserError
from isfl.experiment.run import LocalHost, run
from isfl.federation.participation import evaluators, participants
from isfl.lines import read_lines
from isfl.problem.config import Config, config_from
from isfl.problem.given import Given
from isfl.problem.problem import prepare, shared_out
from isfl.report.clients import by_client
from isfl.report.reading import read_run
from isfl.theory.skew import skew_card

MILLION = 1_000_000
AT_CLIENT = {"name": "isfl", "sampling": {"where": "client", "estimator": "last-layer"}}


def config_of(clients: int, scheme: Any = "tempered", **changes: Any) -> Config:
    raw: dict[str, Any] = {
        "scheme": scheme,
        "target": {"kind": "uniform"},
        "data": {"name": "digits", "public": 20},
        "split": {"kind": "virtual", "clients": clients, "samples_per_client": 8},
        "model": {"name": "mlp", "width": 0.25},
        "training": {"rounds": 2, "local_epochs": 1, "participation": 6 / clients},
    }
    return config_from({**raw, **changes, "training": {**raw["training"], **changes.get("training", {})}}, "test")


# ------------------------------------------------------------ clients


def test_a_virtual_client_is_a_function_of_the_seed_and_its_number() -> None:
    few, many, other = (
        prepare(config_of(clients, seed=seed)).clients for clients, seed in ((10, 1), (MILLION, 1), (10, 2))
    )
    for client in (3, 0, 9):
        np.testing.assert_array_equal(few.indices(client), many.indices(client))
        assert not np.array_equal(few.indices(client), other.indices(client))
    far = many[MILLION - 1]
    assert len(many) == MILLION and len(far) == many.size(MILLION - 1) == 8
    np.testing.assert_array_equal(many.class_counts(MILLION - 1), far.class_counts)
    with pytest.raises(IndexError, match="client 1000000 of 1000000"):
        many[MILLION]


def test_a_virtual_client_holds_no_sample_twice_and_none_of_the_public_set() -> None:
    labels = np.arange(2000) % 10
    parts = partition(VirtualSplit(clients=500, samples_per_client=15), labels, public=100, seed=0)
    assert all(len(set(own.tolist())) == 15 and not set(own) & set(parts.public) for own in parts.clients)
    assert len(set(np.concatenate(parts.clients).tolist())) < 500 * 15, "clients share samples"


def test_alpha_decides_how_skewed_virtual_clients_are() -> None:
    labels = np.arange(2000) % 10

    def skew(alpha: float) -> float:
        parts = partition(VirtualSplit(clients=200, samples_per_client=50, alpha=alpha), labels, 100, seed=0)
        counts = np.stack([np.bincount(labels[own], minlength=10) for own in parts.clients])
        assert abs(counts.sum(axis=0) / counts.sum() - 0.1).max() < 0.03, "on the whole, classes are alike"
        return float(skew_card(counts).hellinger.mean())

    assert skew(0.05) > skew(0.5) > skew(100.0)


@pytest.mark.parametrize(
    ("labels", "classes", "each", "named"),
    [
        (np.arange(300) % 3, 4, 5, "class 3 has 0 samples beside the public set"),
        (np.array([0] * 90 + [1] * 4), 2, 5, "class 1 has 4 samples beside the public set"),
    ],
)
def test_a_class_without_enough_samples_is_named(labels: Any, classes: int, each: int, named: str) -> None:
    with pytest.raises(UserError, match=r"\Asplit\.samples_per_client = 5: [^\n]*\Z") as refused:
        VirtualSplit(clients=3, samples_per_client=each).assign(Pool(labels, len(labels), 0, classes))
    assert named in str(refused.value) and "lower split.samples_per_client" in str(refused.value)


def test_a_diagnosis_and_a_run_refuse_data_without_its_last_class_alike() -> None:
    train = Dataset(torch.zeros(300, 4), torch.arange(300) % 3, num_classes=4)
    source, config = Source(train, train, ("a", "b", "c", "d")), config_of(10)
    with pytest.raises(UserError, match="class 3 has 0 samples beside the public set"):
        prepare(config, Given(source, read_from=config.data))
    with pytest.raises(UserError, match="class 3 has 0 samples beside the public set"):
        shared_out(config, source)


def test_more_clients_in_a_round_than_there_are_is_refused() -> None:
    with pytest.raises(UserError, match=r"training\.participation: found 1\.5; input should be less than"):
        config_of(10, training={"participation": 1.5})


# ------------------------------------------------------------ a million


@pytest.mark.parametrize("scheme", ["tempered", AT_CLIENT])
def test_files_and_checkpoint_depend_on_the_clients_seen_not_on_all(scheme: Any, tmp_path: Path) -> None:
    sizes = {}
    for clients in (1000, MILLION):
        out = tmp_path / str(clients)
        run(config_of(clients, scheme, training={"evaluate_clients": 6 / clients}), out)
        (*_, state) = sorted((out / layout.CHECKPOINTS).glob("*.safetensors"))
        sizes[clients] = state.stat().st_size
        seen = {k for line in read_lines(out / layout.METRICS) for k in line["participants"]}
        assert len(seen) in (11, 12)
    assert abs(sizes[MILLION] - sizes[1000]) < 300, "one more client seen has a row of numbers"
    whole = tmp_path / str(MILLION)
    assert sum(file.stat().st_size for file in whole.rglob("*") if file.is_file()) < 200_000


def test_memory_does_not_depend_on_the_number_of_clients(tmp_path: Path) -> None:
    """Allocations of Python and NumPy; one number per client would be eight million bytes."""
    peaks: dict[int, int] = {}
    for clients in (1000, 1000, MILLION):  # the first run also imports what it needs
        tracemalloc.start()
        run(config_of(clients, training={"evaluate_clients": 6 / clients}), tmp_path / f"{clients}-{len(peaks)}")
        peaks[clients] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[MILLION] - peaks[1000] < 500_000


def test_above_the_documented_number_only_participants_and_evaluators_are_recorded(tmp_path: Path) -> None:
    run(config_of(MILLION, AT_CLIENT), tmp_path / "run")
    for line in read_lines(tmp_path / "run" / layout.METRICS):
        assert {int(k) for k in line["client_drift"]} == {int(k) for k in line["client_update_norm"]}
        assert {int(k) for k in line["client_drift"]} == set(line["participants"])
        assert len(line["client_accuracy"]) == 6 and line["accuracy_global"] is not None
        assert by_client(line, "client_drift").keys() == set(line["participants"])
        assert str(line["worst_client"]) in line["client_accuracy"]
    for line in read_lines(tmp_path / "run" / layout.PROBABILITIES):
        assert len(line["probabilities"]) == len(line["lipschitz"]) == 6
    described = json.loads((tmp_path / "run" / layout.SPLIT).read_text())
    assert described["client_counts"] is None and described["target"] is None
    assert read_run(tmp_path / "run").problems == ()


def test_up_to_the_documented_number_every_client_has_its_place(tmp_path: Path) -> None:
    run(config_of(20), tmp_path / "run")
    (*_, line) = read_lines(tmp_path / "run" / layout.METRICS)
    assert len(line["client_accuracy"]) == len(line["client_drift"]) == 20 and None not in line["client_accuracy"]
    described = json.loads((tmp_path / "run" / layout.SPLIT).read_text())
    assert np.shape(described["client_counts"]) == np.shape(described["target"]) == (20, 10)


@pytest.mark.parametrize("scheme", ["tempered", AT_CLIENT])
def test_workers_train_virtual_clients_to_the_same_bits(scheme: Any, tmp_path: Path) -> None:
    for workers in (1, 2):
        run(config_of(MILLION, scheme), tmp_path / str(workers), host=LocalHost(workers))
    one, two = ((tmp_path / str(workers) / layout.MODEL).read_bytes() for workers in (1, 2))
    assert one == two


def test_the_score_of_an_evaluated_client_does_not_depend_on_who_else_evaluates() -> None:
    config = config_of(50)
    problem = prepare(config)
    assert isinstance(problem.population, VirtualPopulation)
    with LocalHost().engine(problem, config, Path()) as engine:
        model = engine.server.initial_model()
        everyone, some = engine.evaluate(model)[1], engine.evaluate(model, [7, 31])[1]
        assert some == {k: everyone[k] for k in (7, 31)} and len(everyone) == 50
        assert engine.evaluate(model, [])[1] == {}


def test_a_list_of_a_million_clients_is_refused_with_a_number_that_works() -> None:
    with pytest.raises(UserError, match=r"split\.clients = 1000000: [^\n]* choose 100000 or fewer\Z"):
        partition(VirtualSplit(clients=MILLION), np.arange(2000) % 10, public=100, seed=0)


def test_the_old_key_for_the_share_of_evaluating_clients_still_works() -> None:
    old = config_from({"flower": {"evaluate_share": 0.25}}, "test")
    assert old.training.evaluate_clients == 0.25 and "evaluate_share" not in old.flower.model_dump()
    resolved = config_from({}, "test").model_dump(mode="json")  # every default is written out there
    changed = config_from({**resolved, "flower": {**resolved["flower"], "evaluate_share": 0}}, "test")
    assert changed.training.evaluate_clients == 0
    assert config_from({"flower": {"evaluate_share": 1.0}, "training": {"evaluate_clients": 1.0}}, "test") is not None
    assert config_from({"flower": {"evaluate_share": 1.0}}, "test") == config_from({}, "test"), "both are defaults"
    for raw in (
        {"flower": {"evaluate_share": 0.5}, "training": {"evaluate_clients": 1.0}},
        {"flower": {"evaluate_share": 2}},
        {"flower": {"evaluate_share": "all"}},
    ):
        with pytest.raises(UserError, match=r"\Atest: flower\.evaluate_share = .* is now training\.evaluate_clients"):
            config_from(raw, "test")


def test_a_share_of_the_clients_evaluates_the_same_ones_on_every_engine() -> None:
    settings = config_of(40, training={"evaluate_clients": 0.25})
    chosen = [evaluators(settings, 40, round) for round in (1, 2)]
    assert all(len(some) == 10 and list(some) == sorted(set(some)) for some in chosen) and chosen[0] != chosen[1]
    assert list(evaluators(config_of(40), 40, 1)) == list(range(40))
    assert len(evaluators(config_of(MILLION), MILLION, 1)) == 6, "as many as take part"


@pytest.mark.parametrize(("share", "clients", "count"), [(0.5, 5, 3), (0.001, 100, 1), (0.34, 6, 2), (0.0, 100, 0)])
def test_the_same_share_of_the_clients_trains_and_evaluates(share: float, clients: int, count: int) -> None:
    settings = config_of(clients, training={"evaluate_clients": share, "participation": share or 1.0})
    assert len(evaluators(settings, clients, 1)) == count
    assert share == 0 or len(participants(settings, clients, 1)) == count
