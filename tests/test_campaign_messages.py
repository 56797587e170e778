"""The messages that the fuzz campaign changes: every kind, each with the state its client had."""

from __future__ import annotations

from pathlib import Path

from campaigns import messages

from isfl.engines.flower.client import PROBLEM
from isfl.engines.flower.messages import read


def test_every_kind_of_message_and_every_phase_of_masks_is_recorded_and_read() -> None:
    record = messages.recorded()
    assert {message.metadata.message_type for message, _, _ in record.sent} == messages.KINDS.keys()
    phases = {message.content["values"].get("phase") for message, _, _ in record.sent if "values" in message.content}
    assert {"keys", "shares", "unmask"} <= phases
    for kind, content in record.replies:
        assert isinstance(read(messages.KINDS[kind], content), messages.KINDS[kind])


def test_a_client_with_the_state_it_had_answers_every_recorded_message_and_its_repetition(tmp_path: Path) -> None:
    for number, (message, client, files) in enumerate(messages.recorded().sent):
        node = messages.restored(client, files, tmp_path / str(number))
        first = messages.delivered(message, message.content, node)
        assert PROBLEM not in first, (message.metadata.message_type, first)
        assert len(messages.delivered(message, message.content, node)) > 0
