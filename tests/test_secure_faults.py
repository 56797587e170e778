"""Clients that are lost or lie in any phase of secure aggregation never stop a round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from isfl.engines import LocalEngine
from isfl.federation import run_round
from isfl.federation.secure.quantise import restored
from isfl.federation.secure.server import neighbour_graph
from isfl.federation.values import ClientUpdate, SecureAnswer
from tests.masking import (
    COUNTS,
    PRIVATE_ISFL,
    SIZES,
    Answers,
    changing,
    one_round,
    plain_updates,
    quantised_sum,
    secured,
)
from tests.worlds import engine_of, same_bits

# ---------------------------------------------------------------- clients that are lost


@pytest.mark.parametrize("secure", [{}, {"neighbours": 2, "threshold": 0.51}], ids=["complete", "regular"])
@pytest.mark.parametrize("phase", ["keys", "shares", "train", "unmask"])
def test_a_client_that_is_lost_in_any_phase_is_named_and_the_round_goes_on(phase: str, secure: dict[str, Any]) -> None:
    settings = secured(PRIVATE_ISFL, secure)
    engine = changing(settings)
    engine.lost = (phase, {3})
    before, after, report = one_round(settings, engine)
    reason = "did not answer" if phase == "train" else f"{phase}: did not answer"
    assert report.refused == {3: reason} and report.participants == (0, 1, 2, 3, 4)
    stayed = [0, 1, 2, 3, 4] if phase == "unmask" else [0, 1, 2, 4]
    updates = [update for update in plain_updates(settings) if update.client in stayed]
    raw = np.array([SIZES[k] for k in stayed]) / max(SIZES)
    total = quantised_sum(settings, updates, before.model, raw.tolist(), max(SIZES))
    assert settings.secure is not None
    summed = restored(total, before.model, raw.sum(), sum(SIZES[k] for k in stayed) / max(SIZES), settings.secure)
    assert all(torch.equal(after.model[name], summed.model[name]) for name in after.model)
    engine.lost = ("", set())
    assert run_round(after, settings, engine)[1].refused == {}, "it takes part again"


@pytest.mark.parametrize(
    ("phase", "lost", "reason"),
    [
        ("keys", {0, 1, 2}, "secure: 2 clients share masks; at least 3 are needed"),
        ("shares", {0, 1, 2}, "shares: too few of its neighbours are left"),
        ("train", {0, 1, 2}, "secure: 2 uploads are too few: a sum hides single updates among at least 3"),
        ("unmask", {0, 1, 2}, "secure: too few holders of shares of client 0 answered"),
        ("unmask", {1, 2, 3}, "secure: too few holders of shares of client 0 answered"),
        ("train", {0, 1, 2, 3, 4}, "did not answer"),
    ],
)
def test_if_too_few_stay_nothing_is_aggregated_all_are_named_and_the_run_goes_on(
    phase: str, lost: set[int], reason: str
) -> None:
    settings = secured()
    engine = changing(settings)
    engine.lost = (phase, lost)
    before, after, report = one_round(settings, engine)
    assert same_bits(before, after) and after.round == 1
    assert report.refused.keys() == {0, 1, 2, 3, 4} and report.refused[4] == reason
    assert report.train_loss is None
    engine.lost = ("", set())
    new, report = run_round(after, settings, engine)
    assert report.refused == {} and not same_bits(new, after)


def test_a_client_that_lost_too_many_neighbours_cannot_be_unmasked_and_nothing_is_aggregated() -> None:
    """Nine clients on a circle: both neighbours of one are lost, and its own share alone is not enough."""
    settings = secured(secure={"neighbours": 2, "threshold": 0.6})
    circle = neighbour_graph(list(range(9)), 2, settings.seed, 1)
    engine = changing(settings, counts=(*COUNTS, *COUNTS[:4]))
    engine.lost = ("train", set(circle[4]))
    before, after, report = one_round(settings, engine)
    assert same_bits(before, after)
    assert report.refused[4] == "secure: of the holders of shares of client 4, 1 uploaded; 2 are needed"


def test_a_sum_of_two_is_not_read() -> None:
    settings = secured()
    engine = changing(settings, counts=COUNTS[:3])
    engine.lost = ("train", {1})
    before, after, report = one_round(settings, engine)
    assert same_bits(before, after) and report.refused.keys() == {0, 1, 2}
    assert not any(phase == "unmask" for phase, _ in engine.answers), "no share is revealed"


def test_clients_that_share_no_masks_with_each_other_are_not_summed_apart() -> None:
    """A circle of eight that lost two opposite clients is two groups, whose sums the server could read."""
    settings = secured(secure={"neighbours": 2, "threshold": 0.51})
    circle = neighbour_graph(list(range(8)), 2, settings.seed, 1)
    one = sorted(circle[0])[0]
    lost = {0, next(k for k in range(1, 8) if not circle[k] & {0, *circle[0]})}
    engine = changing(settings, counts=(*COUNTS, *COUNTS[:3]))
    engine.lost = ("train", lost)
    before, after, report = one_round(settings, engine)
    assert same_bits(before, after) and report.refused.keys() == set(range(8))
    assert (
        report.refused[one] == "secure: the 6 clients that uploaded do not all share masks; use more secure.neighbours"
    )
    assert not any(phase == "unmask" for phase, _ in engine.answers), "no share is revealed"


# ---------------------------------------------------------------- hostile clients


def swapped(answer: Any, **table: Any) -> SecureAnswer:
    return replace(answer, table={**answer.table, **table})


def wrong_width(answer: Any) -> list[Any]:
    return [swapped(answer, rows=answer.table["rows"][:, :-1])]


def wrong_type(answer: Any) -> list[Any]:
    return [swapped(answer, rows=answer.table["rows"].float())]


def flat(answer: Any) -> list[Any]:
    return [swapped(answer, clients=answer.table["clients"].reshape(1, -1))]


def rows_of_nobody(answer: Any) -> list[Any]:
    return [swapped(answer, clients=answer.table["clients"][:0])]


def a_number_of_nobody(answer: Any) -> list[Any]:
    return [swapped(answer, clients=answer.table["clients"][:0], rows=torch.tensor(0, dtype=torch.uint8))]


def unknown_table(answer: Any) -> list[Any]:
    return [replace(answer, table={"model": torch.zeros(3)})]


def nothing_in_it(answer: Any) -> list[Any]:
    return [replace(answer, table={})]


def other_client(answer: Any) -> list[Any]:
    return [swapped(answer, clients=answer.table["clients"] + 100)]


def negative_client(answer: Any) -> list[Any]:
    return [swapped(answer, clients=-1 - answer.table["clients"])]


def twice(answer: Any) -> list[Any]:
    return [answer, answer]


def noise(answer: Any) -> list[Any]:
    random = np.random.default_rng(0).integers(0, 256, answer.table["rows"].shape, dtype=np.uint8)
    return [swapped(answer, rows=torch.from_numpy(random))]


def low_order(answer: Any) -> list[Any]:
    return [swapped(answer, rows=torch.zeros_like(answer.table["rows"]))]


FORMS = [
    wrong_width,
    wrong_type,
    flat,
    rows_of_nobody,
    a_number_of_nobody,
    unknown_table,
    nothing_in_it,
    other_client,
    negative_client,
    twice,
]


@pytest.mark.parametrize(
    ("phase", "lie"),
    [(phase, lie) for phase in ("keys", "shares", "unmask") for lie in FORMS]
    + [("keys", low_order), ("unmask", low_order), ("unmask", noise)],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_an_answer_that_cannot_be_right_is_refused_by_name(phase: str, lie: Any) -> None:
    settings = secured()
    engine = changing(settings)
    engine.change = lambda at, answers: _with_lie(answers, lie) if at == phase else answers
    before, after, report = one_round(settings, engine)
    assert report.refused.keys() == {3} and report.refused[3].startswith(f"{phase}: ")
    assert not same_bits(before, after)


def _with_lie(answers: Answers, lie: Any) -> Answers:
    return [said for answer in answers for said in (lie(answer) if answer.client == 3 else [answer])]


@pytest.mark.parametrize(("column", "lost"), [(-1, ""), (0, "train")], ids=["own mask", "key of masks"])
def test_shares_that_do_not_combine_cost_the_round_and_name_their_client(column: int, lost: str) -> None:
    """Client 3 announces another seed, or another key, than it seals shares of; the key matters if it is lost."""

    def announce(answer: Any) -> list[Any]:
        rows = answer.table["rows"].clone()
        rows[:, column] ^= 1
        return [swapped(answer, rows=rows)]

    settings = secured()
    engine = changing(settings)
    engine.change = lambda phase, answers: _with_lie(answers, announce) if phase == "keys" else answers
    engine.lost = (lost, {3})
    before, after, report = one_round(settings, engine)
    assert same_bits(before, after)
    assert report.refused[3] == "unmask: its shares do not combine"
    assert report.refused[0] == "secure: the shares of client 3 do not combine"


def _without_share(answers: Answers, holders: set[int]) -> Answers:
    """Return the answers in which these holders leave out their share of client 3."""

    def rest(answer: Any) -> SecureAnswer:
        kept = answer.table["clients"] != 3
        return swapped(answer, clients=answer.table["clients"][kept], rows=answer.table["rows"][kept])

    return [rest(answer) if answer.client in holders else answer for answer in answers]


@pytest.mark.parametrize(
    ("phase", "lie", "returned"),
    [
        ("shares", lambda answers: _with_lie(answers, noise), 0),
        ("shares", lambda answers: _with_lie(answers, low_order), 0),
        ("unmask", lambda answers: _without_share(answers, {0, 1, 2}), 2),
    ],
    ids=["noise", "low order", "left out"],
)
def test_shares_that_do_not_come_back_cost_the_round_and_the_server_does_not_know_why(
    phase: str, lie: Any, returned: int
) -> None:
    settings = secured()
    engine = changing(settings)
    engine.change = lambda at, answers: lie(answers) if at == phase else answers
    before, after, report = one_round(settings, engine)
    found = f"{returned} of 5 holders that answered returned a share of"
    assert same_bits(before, after)
    assert report.refused == {
        **dict.fromkeys([0, 1, 2, 4], f"secure: {found} client 3; 3 are needed"),
        3: f"unmask: {found} it, 3 are needed: it sealed no more, or holders left some out",
    }


def test_a_share_that_a_holder_leaves_out_is_made_up_for_by_others() -> None:
    settings = secured()
    engine, honest = changing(settings), changing(settings)
    engine.change = lambda at, answers: _without_share(answers, {0, 1}) if at == "unmask" else answers
    _, after, report = one_round(settings, engine)
    assert report.refused == {} and same_bits(after, one_round(settings, honest)[1])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model": {"masked": torch.zeros(3, dtype=torch.int32)}}, "'masked' has shape (3,)"),
        ({"model": {"masked": torch.zeros(94)}}, "has type torch.float32"),
        ({"model": {"weight": torch.zeros(94, dtype=torch.int32)}}, "lacks 'masked'"),
        ({"model": {}}, "withdrew its update"),
        ({"train_loss": 1.0}, "reports a training loss of 1.0"),
        ({"num_samples": 7}, "claims 7 samples"),
        ({"training_seconds": float("nan")}, "reports costs"),
    ],
)
def test_an_upload_that_cannot_be_right_is_refused_by_name(changed: dict[str, Any], reason: str) -> None:
    class Uploading(LocalEngine):
        def train(self, tasks: Any) -> list[ClientUpdate]:
            return [replace(u, **changed) if u.client == 3 else u for u in super().train(tasks)]

    settings = secured()
    before, after, report = one_round(settings, engine_of(settings, COUNTS, kind=Uploading))
    assert report.refused.keys() == {3} and reason in report.refused[3]
    assert not same_bits(before, after)
