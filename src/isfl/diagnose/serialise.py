"""A diagnosis as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from isfl.diagnose.diagnosis import Diagnosis


def plain(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as dicts, lists, numbers and strings, without the counts it was made from."""
    question, federation = diagnosis.question, diagnosis.federation
    return _listed(
        {
            "clients": federation.clients,
            "classes": federation.classes,
            "notes": federation.notes,
            "target": question.target.model_dump(),
            "floor": question.rule.floor,
            "target_floor": question.rule.target_floor,
            "lipschitz": "flat" if question.lipschitz is None else "given",
            "card": asdict(diagnosis.card),
            "drivers": asdict(diagnosis.drivers),
            "draws": {name: asdict(draws) for name, draws in diagnosis.draws.items()},
            "floors": [asdict(effect) for effect in diagnosis.floors],
            "out_of_reach": diagnosis.out_of_reach,
            "extra_gradients": diagnosis.extra_gradients,
            "advice": {
                **asdict(diagnosis.advice),
                "first_line": diagnosis.advice.first_line,
                "isfl_line": diagnosis.advice.isfl_line,
            },
        }
    )


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value
