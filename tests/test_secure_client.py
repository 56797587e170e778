"""A client with secure aggregation does not trust the server: each phase once, one of two shares, known keys only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isfl.engines.flower.engine import FlowerEngine
from isfl.engines.flower.messages import Connection
from isfl.engines.flower.wire import decode, encode
from isfl.errors import UserError
from isfl.federation import run_round, start
from isfl.federation.introduction import introduce
from isfl.federation.secure.ciphers import public_key
from isfl.federation.secure.client import Keys, answer_phase, masked_update
from isfl.federation.secure.sharing import SHARE
from isfl.federation.secure.tables import KEYS_ROW, SHARES_ROW, UNMASK_ROW, Phase, cut, rows_of, table
from isfl.federation.values import ClientMemory, ClientUpdate, Masking, SecureTask, TrainTask
from isfl.problem.config import Config
from isfl.problem.problem import prepare
from tests.grids import RUN, engine_of, federation_of, secured

UNKNOWN = "names clients that hold no shares of this one, or other keys than before"


@dataclass
class Exchanged:
    """Client 0 of four after the exchange of shares, and what the server has of all."""

    config: Config
    memory: ClientMemory
    announced: dict[int, list[bytes]]
    """By client: its keys of masks and for sealed messages, and a digest."""
    shares: dict[int, dict[int, bytes]]
    """By sender, then by holder."""

    def peers(self, *clients: int) -> dict[int, bytes]:
        """Return the rows of the task `shares`: two keys of each client."""
        return {peer: self.announced[peer][0] + self.announced[peer][1] for peer in clients}

    def train(self, peers: dict[int, bytes], config: Config | None = None) -> tuple[ClientUpdate, ClientMemory]:
        """Return the answer to a training task that names these keys of masks."""
        model = {"w": torch.zeros(4)}
        task = TrainTask(1, 0, model, np.ones(1), masking=Masking(table(peers), 1.0, 10))
        update = ClientUpdate(0, 10, {"w": torch.ones(4)}, 1.0, 0, 0, 0.0, 0.0)
        masked, secret = masked_update(update, task, config or self.config, self.memory.secret)
        return masked, replace(self.memory, secret=secret)

    @property
    def masks(self) -> dict[int, bytes]:
        """The rows of the honest training task."""
        return {peer: self.announced[peer][0] for peer in (1, 2, 3)}

    @property
    def last(self) -> SecureTask:
        """The honest last task."""
        return self.unmask({p: b"\1" + self.announced[p][1] + self.shares[p][0] for p in range(4)})

    @staticmethod
    def unmask(rows: dict[int, bytes]) -> SecureTask:
        return SecureTask(1, 0, Phase.UNMASK, table(rows))


def exchanged(**secure: float) -> Exchanged:
    config, memories = secured(secure=secure), [ClientMemory() for _ in range(4)]
    world = Exchanged(config, memories[0], {}, {})
    for k in range(4):
        answer, memories[k] = answer_phase(SecureTask(1, k, Phase.KEYS, {}), config, memories[k])
        world.announced[k] = cut(rows_of(answer.table, sum(KEYS_ROW))[k], *KEYS_ROW)
    for k in range(4):
        peers = table(world.peers(*({0, 1, 2, 3} - {k})))
        answer, memories[k] = answer_phase(SecureTask(1, k, Phase.SHARES, peers), config, memories[k])
        world.shares[k] = rows_of(answer.table, sum(SHARES_ROW))
    return replace(world, memory=memories[0])


def prepared_client(phase: str) -> tuple[Config, ClientMemory, SecureTask]:
    """Return client 0 of four after the exchange of shares or after its upload, and the honest last task."""
    world = exchanged()
    memory = world.train(world.masks)[1] if phase == Phase.UPLOAD else world.memory
    return world.config, memory, world.last


def _flags(task: SecureTask, *stayed: int) -> SecureTask:
    rows = task.table["rows"].clone()
    rows[:, 0] = torch.tensor([k in stayed for k in range(4)], dtype=torch.uint8)
    return SecureTask(task.round, task.client, task.phase, {**task.table, "rows": rows})


def test_a_client_answers_each_phase_once_and_in_order() -> None:
    config, memory, task = prepared_client(Phase.SHARES)
    with pytest.raises(UserError, match="out of order"):
        answer_phase(task, config, memory)
    world = exchanged()
    for peers in (world.peers(1, 2, 3), world.peers(1, 2)):  # a second answer would seal with the same keys
        with pytest.raises(UserError, match="out of order"):
            answer_phase(SecureTask(1, 0, Phase.SHARES, table(peers)), config, memory)
    config, memory, task = prepared_client(Phase.UPLOAD)
    with pytest.raises(UserError, match="out of order"):
        answer_phase(SecureTask(2, 0, task.phase, task.table), config, memory)
    answer, memory = answer_phase(task, config, memory)
    assert len(rows_of(answer.table, SHARE)) == 4 and memory == ClientMemory()
    with pytest.raises(UserError, match="out of order"):
        answer_phase(task, config, memory)


def test_a_client_uploads_once_per_key_generation(tmp_path: Path) -> None:
    """Two uploads with the same masks would reveal the difference of two updates."""
    world = exchanged()
    _, memory = world.train(world.masks)
    with pytest.raises(UserError, match="out of order; each is answered once, after 'shares'"):
        replace(world, memory=memory).train(world.masks)

    class Twice(FlowerEngine):
        """A server that sends every training task twice, before the last phase."""

        again: Sequence[Any] = ()

        def train(self, tasks: Sequence[TrainTask]) -> Sequence[Any]:
            answers = super().train(tasks)
            self.again = super().train(tasks)
            return answers

    config, grid = secured(), federation_of(tmp_path, 4)
    engine = Twice(prepare(config), config, Connection(grid, RUN, simulated=tmp_path))
    _, report = run_round(start(config, engine), config, engine)
    assert report.refused == {} and len(engine.again) == 4
    for answer in engine.again:
        assert answer.reason == "secure: a task of round 1 is out of order; each is answered once, after 'shares'"


def test_a_client_reveals_one_of_two_shares_and_never_both() -> None:
    config, memory, task = prepared_client(Phase.UPLOAD)
    all_stayed = rows_of(answer_phase(task, config, memory)[0].table, SHARE)
    one_lost = rows_of(answer_phase(_flags(task, 0, 1, 2), config, memory)[0].table, SHARE)
    assert all(all_stayed[k] == one_lost[k] for k in (0, 1, 2)) and all_stayed[3] != one_lost[3]
    assert all_stayed.keys() == one_lost.keys() == {0, 1, 2, 3}


@pytest.mark.parametrize("stayed", [(0, 1), (0,), (1, 2, 3), ()])
def test_a_client_reveals_nothing_for_fewer_survivors_than_the_threshold(stayed: tuple[int, ...]) -> None:
    config, memory, task = prepared_client(Phase.UPLOAD)
    with pytest.raises(UserError, match="reveals nothing for"):
        answer_phase(_flags(task, *stayed), config, memory)


def test_survivors_that_the_server_invents_do_not_count() -> None:
    """One client stayed; with nine invented ones, the keys of masks of all real neighbours would be revealed."""
    world = exchanged()
    rows = {p: bytes([p == 0]) + world.announced[p][1] + world.shares[p][0] for p in range(4)}
    invented = {100 + k: b"\1" + world.announced[1][1] + world.shares[1][0] for k in range(9)}
    _, memory = world.train(world.masks)
    with pytest.raises(UserError, match="reveals nothing for 1 clients; at least 3"):
        answer_phase(world.unmask(rows), world.config, memory)
    with pytest.raises(UserError, match=UNKNOWN):
        answer_phase(world.unmask(rows | invented), world.config, memory)


def test_a_threshold_that_is_lowered_after_the_exchange_of_shares_has_no_effect() -> None:
    world, lower = exchanged(threshold=1.0), secured(secure={"threshold": 0.51})
    with pytest.raises(UserError, match="2 neighbours are left, too few"):
        world.train({peer: world.masks[peer] for peer in (1, 2)}, lower)
    _, memory = world.train(world.masks, lower)
    with pytest.raises(UserError, match="reveals nothing for 3 clients; at least 4"):
        answer_phase(_flags(world.last, 0, 1, 2), lower, memory)


def test_a_client_masks_its_update_with_the_neighbours_and_keys_of_the_exchange_only() -> None:
    world, key = exchanged(), public_key(b"\7" * 32)
    for peers in ({3: key}, {5: key}, {0: key}, {3: world.masks[2]}):
        with pytest.raises(UserError, match=UNKNOWN):
            world.train(world.masks | peers)
    assert world.train(world.masks)[0].model.keys() == {"masked"}
    assert world.train({peer: world.masks[peer] for peer in (1, 3)})[0].model, "neighbours may be lost"


@pytest.mark.parametrize("client", [0, 3])
def test_a_client_reveals_nothing_for_other_keys_of_sealed_messages_than_those_of_the_exchange(client: int) -> None:
    world = exchanged()
    rows = rows_of(world.last.table, sum(UNMASK_ROW))
    rows[client] = b"\1" + public_key(b"\7" * 32) + rows[client][33:]
    with pytest.raises(UserError, match=UNKNOWN):
        answer_phase(world.unmask(rows), world.config, world.train(world.masks)[1])


@pytest.mark.parametrize("masking", [(0.0, 10), (1.5, 10), (float("nan"), 10), (1.0, 9)])
def test_a_client_refuses_weights_that_would_change_its_share_of_the_sum(masking: tuple[float, int]) -> None:
    world = exchanged()
    update = ClientUpdate(0, 10, {"w": torch.ones(4)}, 1.0, 0, 0, 0.0, 0.0)
    task = TrainTask(1, 0, {"w": torch.zeros(4)}, np.ones(1), masking=Masking(table(world.masks), *masking))
    with pytest.raises(UserError, match="a weight is above 0 and at most 1, and this client has 10 samples"):
        masked_update(update, task, world.config, world.memory.secret)


def test_a_client_seals_no_shares_for_a_single_neighbour() -> None:
    config = secured()
    _, memory = answer_phase(SecureTask(1, 0, "keys", {}), config, ClientMemory())
    keys = Keys.of(bytes(32))
    single = table({1: public_key(keys.masks) + public_key(keys.seals)})
    with pytest.raises(UserError, match="1 neighbours are too few"):
        answer_phase(SecureTask(1, 0, "shares", single), config, memory)


def test_without_keys_for_masks_a_client_trains_and_sends_nothing(tmp_path: Path) -> None:
    config, grid = secured(), federation_of(tmp_path, 4)
    engine = engine_of(config, grid, tmp_path)
    state, _ = introduce(start(config, engine), range(4), config, engine)
    before = len(grid.wire)
    (answer,) = engine.train([TrainTask(1, 0, state.model, state.target[0])])
    assert getattr(answer, "reason", "") == "secure: the task brings no keys, and without masks no update is sent"
    assert not any("model" in records for way, records in grid.wire[before:] if way == "up")


def test_tables_survive_the_wire() -> None:
    task = SecureTask(1, 2, "shares", table({5: b"ab", 3: b"cd"}))
    arrived = decode(SecureTask, encode(task))
    assert rows_of(arrived.table, 2) == {3: b"cd", 5: b"ab"}
    assert decode(SecureTask, encode(SecureTask(1, 2, "keys", {}))).table == {}
