"""Secure aggregation over Flower: the same bits, and every record that crosses the wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from scipy.stats import chisquare

from isfl.engines import LocalEngine
from isfl.engines.flower.node import Node, recall, simulated_node
from isfl.engines.flower.wire import decode
from isfl.federation import FederationState, run_round, start
from isfl.federation.introduction import introduce
from isfl.federation.round import training_task
from isfl.federation.secure import sharing
from isfl.federation.secure.ciphers import digest, mask
from isfl.federation.secure.quantise import quantised
from isfl.federation.secure.sharing import SHARE
from isfl.federation.secure.tables import FINGERPRINT, KEYS_ROW, SHARES_ROW, cut, rows_of
from isfl.federation.values import ClientUpdate, SecureAnswer
from isfl.problem.config import Config
from isfl.problem.problem import prepare
from tests.grids import (
    MEASURED_AT_CLIENT,
    RUN,
    Federation,
    config_of,
    engine_of,
    federation_of,
    own,
    rounds,
    run_locally,
    secured,
)
from tests.worlds import same_bits


@pytest.mark.parametrize("scheme", [MEASURED_AT_CLIENT, "moon"], ids=["isfl", "moon"])
def test_nodes_give_the_bits_of_the_local_engine(scheme: Any, tmp_path: Path) -> None:
    config = secured(scheme, training={"participation": 0.75})
    grid = federation_of(tmp_path, 4)
    state, reports = rounds(config, engine_of(config, grid, tmp_path))
    expected, others = run_locally(config)
    assert same_bits(state, expected)
    for ours, theirs in zip(reports, others, strict=True):
        assert ours.refused == theirs.refused == {} and ours.train_loss == theirs.train_loss
        assert (ours.bytes_up, ours.bytes_down) == (theirs.bytes_up, theirs.bytes_down)


def test_a_repeated_round_gives_the_same_bits(tmp_path: Path) -> None:
    config = secured()
    engine = engine_of(config, federation_of(tmp_path, 4), tmp_path)
    state = start(config, engine)
    state, _ = run_round(state, config, engine)
    once, _ = run_round(state, config, engine)
    again, report = run_round(state, config, engine)
    assert same_bits(once, again) and report.refused == {}


@pytest.mark.parametrize("kind", ["train.secure", "train"])
def test_a_node_that_leaves_in_the_middle_of_a_round_is_named_and_returns(kind: str, tmp_path: Path) -> None:
    asked = []

    def meddle(client: int, message: Message, reply: Message) -> Message | None:
        if client == 2 and message.metadata.message_type == kind:
            asked.append(client)
            return None if len(asked) == 1 else reply
        return reply

    config = secured(training={"rounds": 2})
    _, (first, second) = rounds(config, engine_of(config, federation_of(tmp_path, 4, meddle=meddle), tmp_path))
    assert first.refused.keys() == {2} and "did not answer within" in first.refused[2] and first.train_loss is not None
    assert second.refused == {}


def test_secrets_of_real_clients_are_fresh_and_change_no_result(tmp_path: Path) -> None:
    uploads, models = [], []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        config, grid = own(tmp_path / name, scheme=MEASURED_AT_CLIENT, target={"kind": "uniform"}, secure={})
        state, reports = rounds(config, engine_of(config, grid), 2)
        assert all(report.refused == {} for report in reports)
        models.append(state)
        assert not any("samples" in numbers for numbers in numbers_up(grid)), "real clients do not evaluate"
        uploads.append([vector for record in masked(grid) for vector in record])
    assert same_bits(*models)
    assert len(uploads[0]) == 6
    for one, two in zip(*uploads, strict=True):
        assert (one != two).mean() > 0.999, "the same update, other masks"


def test_an_operator_can_demand_masks_whatever_the_server_asks(tmp_path: Path) -> None:
    config = config_of(MEASURED_AT_CLIENT, target={"kind": "uniform"})
    nodes = {10 + k: Node(k, tmp_path, secure=k == 1) for k in range(3)}
    _, reports = rounds(config, engine_of(config, Federation(nodes)), 1)
    assert reports[0].refused == {1: "is not connected"}, "it does not introduce itself to a run without masks"
    config = config_of(MEASURED_AT_CLIENT, target={"kind": "uniform"}, secure={})
    _, reports = rounds(config, engine_of(config, Federation(nodes)), 1)
    assert reports[0].refused == {}


# ---------------------------------------------------------------- what crosses


class Watched:
    """A federation of four clients over two rounds: what crossed, and what the clients never sent."""

    def __init__(self, state: Path) -> None:
        self.config, self.grid = secured(training={"rounds": 2}), federation_of(state, 4)
        engine = engine_of(self.config, self.grid, state)
        self.before = start(self.config, engine)
        self.after, self.report = run_round(self.before, self.config, engine)
        first = len(self.grid.wire)
        self.first = self.grid.wire[:first]
        memories = [recall(simulated_node(k, state), RUN, 1) for k in range(4)]
        self.models = [memory.local_model or {} for memory in memories]
        self.probabilities = [memory.probabilities for memory in memories]
        self.lipschitz = engine.server.lipschitz(self.models, self.after.model).values
        self.losses = [update.train_loss or 0.0 for update in plain_updates(self.config, self.before)]
        self.counts = [data.class_counts for data in prepare(self.config).clients]
        run_round(self.after, self.config, engine)

    def up(self, kind: type) -> Iterator[Any]:
        """Yield the answers of this kind in the first round."""
        for way, records in self.first:
            if (
                way == "up"
                and (kind is ClientUpdate) == ("model" in records)
                and (kind is SecureAnswer) == ("table" in records)
            ):
                yield decode(kind, records)

    def phase(self, number: int) -> dict[int, SecureAnswer]:
        """Return the answers of one of the three exchanges, by client."""
        return {answer.client: answer for answer in list(self.up(SecureAnswer))[4 * number : 4 * number + 4]}


def plain_updates(config: Config, before: FederationState) -> Sequence[ClientUpdate]:
    """Return what the clients would upload in the first round without masks."""
    plain, problem = config.model_copy(update={"secure": None}), prepare(config)
    with LocalEngine(problem.model, problem.clients, problem.public, problem.test, plain) as engine:
        state, _ = introduce(before, range(before.num_clients), plain, engine)
        return engine.train([training_task(state, k, None) for k in state.clients.tolist()])


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return Watched(tmp_path_factory.mktemp("watched"))


def numbers_up(grid: Federation) -> list[ConfigRecord]:
    return [records.config_records["values"] for way, records in grid.wire if way == "up"]


def masked(grid: Federation) -> Iterator[list[np.ndarray]]:
    for way, records in grid.wire:
        if way == "up" and "model" in records:
            yield [array.numpy() for array in records.array_records["model"].values()]


UP = {
    frozenset({"client", "num_samples"}),
    frozenset({"client"}),
    frozenset({"client", "dropped", "evaluations", "seconds"}),
    frozenset({"samples", "correct", "correct_top5"}),  # evaluation, in a simulation only
    frozenset(
        {"client", "num_samples", "training_evaluations", "sampling_evaluations", "training_seconds"}
        | {"sampling_seconds", "diagnostic_seconds"}
    ),
}
DOWN = {
    frozenset({"round", "client", "phase"}),
    frozenset({"round", "client", "target", "masking.weight", "masking.largest"}),
    frozenset({"round", "client", "target"}),
    frozenset({"client"}),
}


def test_no_record_has_a_field_for_anything_of_a_single_client(watched: Watched) -> None:
    """Of all records, both ways, in all phases: masked integers, keys and sealed shares, sizes and costs."""
    arrays: dict[str, set[tuple[str, ...]]] = {"up": set(), "down": set()}
    numbers: dict[str, set[frozenset[str]]] = {"up": set(), "down": set()}
    for way, records in watched.grid.wire:
        for name, record in records.items():
            if isinstance(record, ArrayRecord):
                arrays[way].add((name, *(f"{key}:{array.dtype}" for key, array in sorted(record.items()))))
            elif name != "isfl":
                assert isinstance(record, ConfigRecord)
                numbers[way].add(frozenset(record))
                assert way == "down" or not any(isinstance(value, list) for value in record.values()), "no vector"
    rows = ("clients:int64", "rows:uint8")
    assert arrays["up"] == {("model", "masked:int32"), ("table", *rows)}
    assert {name for name, *_ in arrays["down"]} == {"model", "table", "masking.table"}
    assert {entry for entry in arrays["down"] if entry[0] != "model" and len(entry) > 1} == {
        ("table", *rows),
        ("masking.table", *rows),
    }
    assert numbers["up"] <= UP and numbers["down"] <= DOWN
    assert len(numbers["up"]) >= 4 and len(numbers["down"]) >= 3


def test_no_record_holds_a_value_of_a_single_client(watched: Watched) -> None:
    """Models, updates, losses, counts, probabilities and Lipschitz values are looked for as bytes and as numbers."""
    secrets: list[np.ndarray] = [np.array(watched.losses), *watched.counts, *watched.lipschitz]
    secrets += [probabilities for probabilities in watched.probabilities if probabilities is not None]
    for model in watched.models:
        for name, value in model.items():
            if value.is_floating_point():
                secrets += [value.numpy(), (value - watched.before.model[name]).numpy()]
    needles = {form.tobytes()[:16] for s in secrets for form in (s, s.astype(float), s.astype(np.float32)) if s.any()}
    needles = {needle for needle in needles if len(set(needle)) > 4}
    numbers = {float(number) for s in secrets[:13] for number in s.ravel() if number not in range(2000)}
    assert len(needles) > 20 and len(numbers) > 20
    for _, records in watched.grid.wire:
        content = _bytes(records)
        assert not any(needle in content for needle in needles)
        assert not numbers & set(_numbers(records)) - {0.1}, "the uniform target is public"


def _bytes(records: RecordDict) -> bytes:
    return b"".join(array.numpy().tobytes() for r in records.array_records.values() for array in r.values())


def _numbers(records: RecordDict) -> Iterator[float]:
    for record in records.config_records.values():
        for value in record.values():
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int | float):
                    yield float(number)


def test_uploads_and_sealed_shares_look_like_random_bytes(watched: Watched) -> None:
    uploads = [update.model["masked"].numpy() for update in watched.up(ClientUpdate)]
    assert len(uploads) == 4
    for upload in uploads:
        assert uniform(upload.tobytes()), "a masked upload"
    rows = [row for answer in watched.phase(1).values() for row in rows_of(answer.table, sum(SHARES_ROW)).values()]
    assert len(rows) == 16 and uniform(b"".join(rows))
    assert watched.config.secure is not None
    values = quantised(watched.models[0], watched.before.model, 1.0, 0.0, 1.0, watched.config.secure)
    assert not uniform(values.tobytes()), "without a mask the test would see it"


def uniform(content: bytes) -> bool:
    return bool(chisquare(np.bincount(np.frombuffer(content, dtype=np.uint8), minlength=256)).pvalue > 1e-6)


def test_what_the_server_saw_gives_it_the_sum_and_no_single_update(watched: Watched) -> None:
    """It can recover the own mask of every client, as it must, and no share of a key of masks of one that stayed."""
    sealed = {k: rows_of(answer.table, sum(SHARES_ROW)) for k, answer in watched.phase(1).items()}
    shares = {k: rows_of(answer.table, SHARE) for k, answer in watched.phase(2).items()}
    announced = {k: rows_of(a.table, sum(KEYS_ROW))[k] for k, a in watched.phase(0).items()}
    assert watched.config.secure is not None
    needed = watched.config.secure.needed(4)
    own_masks = {}
    for dealer in range(4):
        held = {holder: given[dealer] for holder, given in shares.items()}
        pairs = [h for h, share in held.items() if digest(share, FINGERPRINT) == _fingerprints(sealed, dealer, h)[1]]
        assert pairs == [] and len(held) == 4, "each holder reveals one share of each client, and not this one"
        own_masks[dealer] = sharing.combine(dict(list(held.items())[:needed]))
        assert digest(own_masks[dealer] or b"") == cut(announced[dealer], *KEYS_ROW)[2]
        assert sharing.combine(dict(list(held.items())[: needed - 1])) != own_masks[dealer]
    for update in watched.up(ClientUpdate):
        upload, seed = update.model["masked"].numpy().view(np.uint32), own_masks[update.client]
        assert seed is not None and uniform((upload - mask(seed, len(upload))).tobytes()), "masks of pairs remain"


def _fingerprints(sealed: dict[int, dict[int, bytes]], dealer: int, holder: int) -> list[bytes]:
    return cut(sealed[dealer][holder], *SHARES_ROW)[1:]
