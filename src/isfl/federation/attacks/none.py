"""No attack."""

from __future__ import annotations

from typing import Literal

from isfl.federation.attacks.base import Attack


class NoAttack(Attack):
    """All clients are honest."""

    kind: Literal["none"] = "none"
