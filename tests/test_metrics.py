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
    many = ClassScores(Score(100, 40, 70), np.full(12, 0.4), np.ones(12), np.zeros((12, 12)))
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


def test_a_line_has_both_sides_of_the_lemma_and_of_the_theorem() -> None:
    _, (report,) = federate(settings_of("isfl", training={"rounds": 1}, diagnostics={"bound": True}))
    line = metrics_of(report)
    assert report.drift is not None and report.bound is not None
    assert line["drift"] == {"measured": report.drift.measured, "bound": report.drift.bound}
    assert line["gradient_square"] == report.gradient_square and line["bound"]["total"] == report.bound.total


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


def test_the_confusion_matrix_counts_every_sample_by_label_and_prediction() -> None:
    data, model = blobs((30, 10, 5, 0), seed=0), network()
    scores = class_scores(outcomes(model, data), data.labels.numpy(), 4)
    inputs, labels = data.everything()
    predicted = model(inputs).argmax(1)
    expected = [[int(((labels == i) & (predicted == j)).sum()) for j in range(4)] for i in range(4)]
    assert scores.confusion.tolist() == expected and len({*predicted.tolist()}) > 1
    assert (scores.confusion.diagonal()[:3] / data.class_counts[:3]).tolist() == scores.recall[:3].tolist()


def test_predictions_outside_of_the_classes_are_wrong_and_not_in_the_matrix() -> None:
    data = blobs((3, 3, 3, 3), seed=0)
    narrow = dataclasses.replace(data, labels=data.labels % 2, num_classes=2)
    scores = class_scores(outcomes(network(), narrow), narrow.labels.numpy(), 2)
    assert scores.confusion.shape == (2, 2) and scores.confusion.trace() == scores.total.correct
    assert scores.confusion.sum() < 12


def test_a_line_has_a_confusion_matrix_of_up_to_twenty_classes() -> None:
    _, reports = federate(settings_of("fedavg", training={"rounds": 2, "evaluate_every": 2}))
    unmeasured, line = (metrics_of(report) for report in reports)
    assert unmeasured["confusion"] is None
    assert line["confusion"] == last_scores(reports).confusion.tolist() and json.dumps(line)
    for classes, recorded in ((20, True), (21, False)):
        scores = ClassScores(Score(10, 5, 5), np.ones(classes), np.ones(classes), np.eye(classes, dtype=int))
        assert (metrics_of(dataclasses.replace(reports[1], standard=scores))["confusion"] is not None) == recorded


def test_a_line_has_the_distances_of_every_client_that_took_part() -> None:
    _, (report,) = federate(settings_of("fedavg", training={"rounds": 1, "participation": 0.5}))
    line, took_part = metrics_of(report), set(report.participants)
    assert len(took_part) == 2
    for key, values in (("client_update_norm", report.update_norm), ("client_drift", report.client_drift)):
        assert line[key] == [values.get(k) for k in range(3)]
        assert {k for k in range(3) if line[key][k] is not None} == took_part
