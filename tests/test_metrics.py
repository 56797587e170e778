"""A line of metrics from a round."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from isfl.experiment.metrics import metrics_of
from isfl.federation.evaluation import ClassScores, Score, class_scores, outcomes
from tests.worlds import blobs, federate, last_scores, network, settings_of


def test_top5_is_reported_for_more_than_ten_classes() -> None:
    _, (report,) = federate(settings_of("isfl", training={"rounds": 1}))
    assert "accuracy_standard_top5" not in metrics_of(report)
    many = ClassScores(Score(100, 40, 70), np.full(12, 0.4), np.ones(12))
    clients = {0: Score(10, 5, 6), 1: Score(30, 3, 18)}
    line = metrics_of(dataclasses.replace(report, standard=many, clients=clients))
    assert (line["accuracy_standard"], line["accuracy_standard_top5"]) == (0.4, 0.7)
    assert (line["accuracy_global"], line["accuracy_global_top5"]) == (8 / 40, 24 / 40)
    assert (line["worst_client"], line["worst_client_accuracy"]) == (1, 0.1)


def test_a_line_is_json_without_nan() -> None:
    _, reports = federate(settings_of("fedavg", training={"rounds": 1}))
    unknown = dataclasses.replace(last_scores(reports), recall=np.array([0.5, np.nan, 1.0, 0.0]))
    line = json.loads(json.dumps(metrics_of(dataclasses.replace(reports[0], standard=unknown)), allow_nan=False))
    assert line["recall"] == [0.5, None, 1.0, 0.0]
    assert line["rho_used"] is None and line["bound"] is None


def test_rounds_between_evaluations_have_no_accuracy_and_the_last_round_always_has_one() -> None:
    _, every = federate(settings_of("isfl", training={"rounds": 5}))
    _, some = federate(settings_of("isfl", training={"rounds": 5, "evaluate_every": 2}))
    lines = [metrics_of(report) for report in some]
    assert [line["accuracy_standard"] is not None for line in lines] == [False, True, False, True, True]
    assert lines[0].keys() == metrics_of(every[0]).keys()
    assert lines[-1]["recall"] == metrics_of(every[-1])["recall"]


def test_every_client_has_an_accuracy_and_the_worst_is_the_smallest() -> None:
    """None where a client was not measured, and no list at all in a round without evaluation."""
    _, reports = federate(settings_of("fedavg", training={"rounds": 2, "evaluate_every": 2}))
    unmeasured, line = (metrics_of(report) for report in reports)
    assert unmeasured["client_accuracy"] is None
    assert line["client_accuracy"] == [reports[1].clients[k].accuracy for k in range(3)]
    assert line["worst_client_accuracy"] == min(line["client_accuracy"])
    assert line["client_accuracy"][line["worst_client"]] == line["worst_client_accuracy"]
    some = dataclasses.replace(reports[1], clients={2: Score(10, 9, 10), 0: Score(10, 7, 10)})
    line = metrics_of(some)
    assert line["client_accuracy"] == [0.7, None, 0.9]
    assert (line["worst_client"], line["worst_client_accuracy"]) == (0, 0.7)
    line = metrics_of(dataclasses.replace(reports[1], clients={}))
    assert line["client_accuracy"] == [None] * 3 and line["worst_client_accuracy"] is None


def test_scores_by_class_add_up_to_the_total() -> None:
    data = blobs((30, 10, 5, 0), seed=0)
    scores = class_scores(outcomes(network(), data), data.labels.numpy(), 4)
    assert np.nansum(scores.recall * data.class_counts) == pytest.approx(scores.total.correct)
    assert np.isnan(scores.recall[3]) and scores.total.samples == 45
    assert scores.total.correct_top5 == 45  # four classes: the first five are all of them
