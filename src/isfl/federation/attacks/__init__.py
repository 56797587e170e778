"""Hostile clients that look healthy, as a simulated setting: one file per attack, with settings, function and citation.

To add an attack, write a file with a subclass of `HostileShare` and add its name to `FILES`.

A hostile client answers in time, with the right shapes, finite numbers and plausible costs: nothing that admission
refuses. It trains on other data (`poisoned`, at the client), or sends another model than it trained (`crafted`, after
all have trained, because hostile clients may confer). Only an aggregation can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from isfl.errors import UserError
from isfl.federation.attacks.base import Attack
from isfl.federation.attacks.none import NoAttack
from isfl.federation.values import ClientUpdate, Weights
from isfl.schema import choices_in, one_of

FILES = (
    "none",
    "sign_flip",
    "scale",
    "label_flip",
    "collude",
    "replace",
)
ATTACKS = choices_in(__name__, FILES, Attack)

if TYPE_CHECKING:
    AnyAttack = Attack
else:
    AnyAttack = one_of(ATTACKS, "kind")


def attacked(
    attack: Attack, seed: int, admitted: Sequence[ClientUpdate], current: Weights, parameters: frozenset[str]
) -> Mapping[int, ClientUpdate]:
    """Return what the hostile clients of a round send in place of their updates; nothing if there are none."""
    hostile = [update for update in admitted if attack.is_hostile(seed, update.client)]
    if not hostile:
        return {}
    theirs = {update.client for update in hostile}
    honest = [update for update in admitted if update.client not in theirs]
    return {update.client: update for update in attack.crafted(hostile, honest, current, parameters)}


def check_hostile(attack: Attack, seed: int, clients: int) -> None:
    """Refuse an attack that would make nobody or everybody hostile."""
    if isinstance(attack, NoAttack):
        return
    hostile = attack.hostile_among(seed, clients)
    if hostile in (0, clients):
        raise UserError(
            f"attack.kind = {attack.kind!r}: {hostile} of {clients} clients are hostile with seed {seed}; choose an "
            "attack.share for which some are and some are not"
        )


__all__ = ["ATTACKS", "AnyAttack", "Attack", "attacked", "check_hostile"]
