"""Rounds of a deployment that an interruption repeats: with differential privacy, each is one more use of data.

The interrupted round may have asked clients already, and its repetition releases their data with fresh noise. Nobody
knows whom it had asked, so that every resume counts as one more use of every client.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from isfl import layout
from isfl.experiment.growing import GrowingFile
from isfl.federation.participation import planned_use
from isfl.federation.privacy import check_budget
from isfl.federation.values import FederationState
from isfl.problem.config import Config


def counting_repeat(run: Path, config: Config, state: FederationState) -> FederationState:
    """Return the state with one more repeated round, on disk before a client is asked; refuse to exceed the budget."""
    file = run / layout.REPEATS
    file.touch()
    repeated = len(file.read_bytes().splitlines()) + 1
    assert config.privacy is not None
    check_budget(config.privacy, state.num_clients, planned_use(config, state.num_clients, repeated))
    GrowingFile(file).append({"round": state.round + 1})
    return replace(state, repeated=repeated)
