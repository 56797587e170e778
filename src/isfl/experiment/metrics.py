"""The lines of `metrics.jsonl` and `probabilities.jsonl` from the report of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from isfl.federation.evaluation import Score
from isfl.federation.round_report import RoundReport
from isfl.federation.settings import MOST_LISTED
from isfl.theory.arrays import Array

MOST_CLASSES = 20
"""Confusion matrices are recorded up to this size: 1 kB per evaluated round; with 100 classes it would be 25 kB."""


def metrics_of(report: RoundReport) -> dict[str, Any]:
    """Return a line of metrics: plain numbers, None for what was not measured, accuracies between 0 and 1."""
    line: dict[str, Any] = {"round": report.round, **_accuracy(report)}
    line |= {
        "train_loss": report.train_loss,
        "rho_used": report.rho.used,
        "rho_paper": report.rho.paper,
        "rho_minimum": report.rho.minimum,
        "client_update_norm": _by_client(report.update_norm, report.num_clients),
        "client_drift": _by_client(report.client_drift, report.num_clients),
        "drift": None if report.drift is None else asdict(report.drift),
        "gradient_square": report.gradient_square,
        "bound": None,
        "gradient_evaluations": asdict(report.gradient_evaluations),
        "seconds": {
            **asdict(report.seconds),
            "evaluation": report.evaluation_seconds,
            "wall": report.wall_seconds,
        },
        "bytes_up": report.bytes_up,
        "bytes_down": report.bytes_down,
        "epsilon": report.epsilon,
        "target_error": None,
        "participants": list(report.participants),
        "late": list(report.late),
        "simulated_seconds": report.simulated_seconds,
        "refused": {str(client): reason for client, reason in report.refused.items()},
        "dropped_samples": report.dropped_samples,
        "clipped_values": report.clipped_values,
    }
    if (error := report.target_error) is not None:
        line["target_error"] = {"clients": error.clients, "bound": error.bound, "standard": _numbers(error.standard)}
    if report.bound is not None:
        line["bound"] = {
            "initial": report.bound.initial,
            "psi": report.bound.psi,
            "sampling": report.bound.sampling,
            "total": report.bound.total,
            "phi": _numbers(report.bound.phi),
            "step_condition": report.bound.step_condition,
        }
    return line


def _accuracy(report: RoundReport) -> dict[str, Any]:
    """Return the accuracies; the same keys with None in a round that was not evaluated."""
    if report.standard is None:
        accuracies = ("accuracy_standard", "accuracy_global", "recall", "confusion", "client_accuracy")
        return dict.fromkeys((*accuracies, "worst_client", "worst_client_accuracy"))
    everyone = sum(report.clients.values(), Score(0, 0, 0))
    worst = min(sorted(report.clients), key=lambda k: report.clients[k].accuracy, default=None)
    found: dict[str, Any] = {
        "accuracy_standard": report.standard.total.accuracy,
        "accuracy_global": everyone.accuracy if everyone.samples else None,
    }
    if len(report.standard.recall) > 10:
        found["accuracy_standard_top5"] = report.standard.total.accuracy_top5
        found["accuracy_global_top5"] = everyone.accuracy_top5 if everyone.samples else None
    return found | {
        "recall": _numbers(report.standard.recall),
        "confusion": _small(report.standard.confusion),
        "client_accuracy": _by_client({k: own.accuracy for k, own in report.clients.items()}, report.num_clients),
        "worst_client": worst,
        "worst_client_accuracy": None if worst is None else report.clients[worst].accuracy,
    }


def _small(confusion: np.ndarray) -> list[list[int]] | None:
    """Return the confusion matrix; None if it would make up most of the file."""
    return confusion.tolist() if len(confusion) <= MOST_CLASSES else None


def _by_client(values: Mapping[int, float], clients: int) -> list[float | None] | dict[str, float | None]:
    """Return one number per client; None where it was not measured or is not finite.

    With more than `MOST_LISTED` clients: the numbers of those that have one, by client.
    """
    if clients > MOST_LISTED:
        return {str(k): float(v) if np.isfinite(v) else None for k, v in sorted(values.items())}
    return _numbers(np.array([values.get(client, np.nan) for client in range(clients)]))


def probabilities_of(report: RoundReport) -> dict[str, Any]:
    """Return a line of probabilities: what every client seen drew with, or would have drawn with if it was absent.

    With more than `MOST_LISTED` clients: those that took part. And the Lipschitz values measured at the end of the
    round, from which the next probabilities follow.
    """
    return {
        "round": report.round,
        "probabilities": {str(k): _numbers(q) for k, q in sorted(report.probabilities.items())},
        "lipschitz": {str(k): _numbers(values) for k, values in sorted(report.lipschitz.items())},
    }


def _numbers(values: Array) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]
