"""Personalisation: targets between each client's own mix and the global shares."""

from __future__ import annotations

import numpy as np
import pytest

from isfl.federation import start
from tests.worlds import COUNTS, engine_of, federate, settings_of

LOCAL = np.array(COUNTS) / np.sum(COUNTS, axis=1, keepdims=True)
GLOBAL = np.sum(COUNTS, axis=0) / np.sum(COUNTS)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_target_is_a_blend_of_the_local_and_the_global_mix(weight: float) -> None:
    settings = settings_of("pj-is", target={"kind": "local", "weight": weight})
    state = start(settings, engine_of(settings))
    np.testing.assert_allclose(state.target, weight * LOCAL + (1 - weight) * GLOBAL)


def test_a_local_target_is_each_clients_own_mix_and_a_blend_of_zero_the_global_one_to_the_bit() -> None:
    _, reports = federate(settings_of("pj-is", target={"kind": "local"}, training={"rounds": 1}))
    for k, row in enumerate(LOCAL):
        np.testing.assert_allclose(reports[0].probabilities[k], row)
    blended = federate(settings_of("isfl", target={"kind": "local", "weight": 0.0}))[1]
    plain = federate(settings_of("isfl"))[1]
    assert [r.standard.total for r in blended if r.standard] == [r.standard.total for r in plain if r.standard]


def test_towards_the_local_target_clients_do_better_on_their_own_data() -> None:
    own = []
    for weight in (0.0, 1.0):
        settings = settings_of(
            "pj-is",
            target={"kind": "local", "weight": weight},
            training={"rounds": 6, "optimizer": {"kind": "adam", "lr": 0.01}},
        )
        _, reports = federate(settings, engine_of(settings, counts=((38, 2, 0, 0), (0, 0, 38, 2), (2, 38, 0, 0))))
        scores = reports[-1].clients.values()
        own.append(np.mean([score.accuracy for score in scores]))
    assert own[1] > own[0]


def test_a_private_client_has_no_local_target_at_the_server() -> None:
    with pytest.raises(ValueError, match=r"target\.kind = 'local' cannot be computed"):
        settings_of({"name": "isfl", "sampling": {"where": "client"}}, target={"kind": "local"})
