"""What a round is, as plain functions on plain values. Where it runs is the business of `isfl.engines`.

Read in this order: `values.py` (what travels), `scheme.py` and `settings.py` (what is chosen), `client.py`
(what a client does), `aggregations/` and `measuring.py` (what the server does), `round.py` (all of it).
"""

from isfl.federation.interface import Engine, ModelFacts
from isfl.federation.round import run_round, start
from isfl.federation.round_report import RoundReport
from isfl.federation.scheme import SHORTHANDS, Scheme
from isfl.federation.settings import Settings, Training
from isfl.federation.values import FederationState

__all__ = [
    "SHORTHANDS",
    "Engine",
    "FederationState",
    "ModelFacts",
    "RoundReport",
    "Scheme",
    "Settings",
    "Training",
    "run_round",
    "start",
]
