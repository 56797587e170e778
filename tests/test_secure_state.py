"""Secure aggregation over Flower: the secrets that nodes keep on disk from phase to phase, and no longer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from isfl.engines.flower.engine import FlowerEngine
from isfl.engines.flower.messages import Connection, StoppedError
from isfl.engines.flower.node import Node
from isfl.engines.flower.wire import NUMBERS
from isfl.federation import run_round, start
from isfl.federation.codec import from_bytes
from isfl.federation.secure.tables import Phase
from isfl.federation.values import ClientMemory, SecureTask
from isfl.problem.problem import prepare
from tests.grids import MEASURED_AT_CLIENT, RUN, Federation, engine_of, federation_of, rounds, secured
from tests.worlds import same_bits


def secrets_kept(state: Path, client: int) -> dict[int, str | None]:
    """Return the phase of the secret in each file of a client's states, by round."""
    files = sorted((state / f"client-{client}" / RUN).glob("round-*.safetensors"))
    memories = {int(file.stem.removeprefix("round-")): from_bytes(ClientMemory, file.read_bytes()) for file in files}
    return {round: memory.secret.phase for round, memory in memories.items()}


@pytest.mark.parametrize(("kind", "phase"), [("train", "upload"), ("train.secure", "keys")])
def test_a_node_has_the_secret_of_one_round_at_most_and_only_if_it_was_not_asked_to_the_end(
    kind: str, phase: str, tmp_path: Path
) -> None:
    """Client 2 is lost in round 2: its secret stays on disk until it begins another round."""

    def meddle(client: int, message: Message, reply: Message) -> Message | None:
        if client != 2 or message.metadata.message_type != kind:
            return reply
        numbers: Any = message.content[NUMBERS]
        return None if numbers["round"] == 2 else reply

    config, grid = secured(training={"rounds": 4}), federation_of(tmp_path, 4, meddle=meddle)
    engine = engine_of(config, grid, tmp_path)
    state, kept = start(config, engine), []
    for _ in range(4):
        state, _ = run_round(state, config, engine)
        kept.append(secrets_kept(tmp_path, 2))
        assert not any(secrets_kept(tmp_path, 1).values())
    assert kept[0] == {1: None} and kept[1] == {1: None, 2: phase}
    assert kept[2] == {1: None, 2: None, 3: None} and len(kept[3]) == 4 and not any(kept[3].values())


@pytest.mark.parametrize("scheme", [MEASURED_AT_CLIENT, "moon"], ids=["isfl", "moon"])
def test_a_server_that_stops_between_upload_and_unmask_resumes_with_the_same_bits(scheme: Any, tmp_path: Path) -> None:
    """Real nodes, which draw fresh secrets and remember their local models."""

    class Stopping(FlowerEngine):
        def exchange(self, tasks: Sequence[SecureTask]) -> Any:
            if (tasks[0].round, tasks[0].phase) == (2, Phase.UNMASK):
                raise StoppedError
            return super().exchange(tasks)

    config = secured(scheme)
    whole, _ = rounds(config, engine_of(config, federation_of(tmp_path / "whole", 4)))
    grid = Federation({10 + k: Node(k, tmp_path / "stopped") for k in range(4)})
    engine = Stopping(prepare(config), config, Connection(grid, RUN))
    state, _ = run_round(start(config, engine), config, engine)
    with pytest.raises(StoppedError):
        run_round(state, config, engine)
    assert secrets_kept(tmp_path / "stopped", 0)[2] == Phase.UPLOAD
    resumed = engine_of(config, grid)
    resumed.restore(state, {})
    for _ in range(2):
        state, report = run_round(state, config, resumed)
        assert report.refused == {}
    assert same_bits(state, whole) and not any(secrets_kept(tmp_path / "stopped", 0).values())
