"""The diagnosis of class counts: drivers of the skew, expected gain, advice and picture."""

from __future__ import annotations

import json
import re
import time
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from isfl.diagnose import advice, evidence
from isfl.diagnose.advice import advise
from isfl.diagnose.diagnosis import Diagnosis, Question, diagnose
from isfl.diagnose.evidence import Measured, expected_gain, left_out_error
from isfl.diagnose.input import Options, question_from
from isfl.diagnose.picture import draw_diagnosis
from isfl.diagnose.serialise import plain
from isfl.diagnose.tables import tables
from isfl.diagnose.text import five_lines, next_step
from isfl.errors import UserError
from isfl.experiment.compare import comparison_cells, variant_from
from isfl.experiment.demo import demo_config
from isfl.federation.targets import EstimatedTarget, GlobalTarget, UniformTarget
from isfl.problem.config import config_from
from isfl.theory.arrays import Array
from isfl.theory.drivers import leading, skew_drivers
from tests.pages import ROOT
from tests.worlds import counted, module_at

tables_of_counts = st.tuples(st.integers(1, 6), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(0, 40).map(float))
)


def diagnosed(rows: object, lipschitz: Array | None = None) -> Diagnosis:
    return diagnose(counted(rows), Question(lipschitz=lipschitz))


def test_draws_per_round_decide_how_far_adaptive_is_from_the_target_and_what_isfl_costs() -> None:
    """A tenth of the samples per epoch: rare samples repeat less, and Lipschitz values cost ten times as much."""
    counts = counted([[90, 10], [10, 90]])
    full, tenth = (diagnose(counts, Question(passes=passes)) for passes in (5.0, 0.5))
    target, mix = full.draws["pj-is"].distance, full.draws["fedavg"].distance
    assert target <= tenth.draws["adaptive"].distance < full.draws["adaptive"].distance < mix
    assert tenth.draws["tempered"] == full.draws["tempered"]
    assert tenth.extra_gradients == pytest.approx(10 * full.extra_gradients)


def test_a_configuration_gives_the_diagnosis_its_draws_per_round(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[training]\nlocal_epochs = 4\nsampling_ratio = 0.25\n")
    assert question_from(file, Options())[1].passes == 1.0


def test_drivers_of_a_federation_worked_out_by_hand() -> None:
    """p = (1/2, 1/2); client 0 is (1, 0), weight 1/4; client 1 is (1/3, 2/3), weight 3/4."""
    drivers = skew_drivers([[4, 0], [4, 8]])
    parts = np.array([0.25 * 2 * (1 / 2) ** 2, 0.75 * 2 * (1 / 6) ** 2])
    assert drivers.total == pytest.approx(parts.sum())
    np.testing.assert_allclose(drivers.clients, parts / parts.sum())
    np.testing.assert_allclose(drivers.classes, [0.5, 0.5])
    assert drivers.chance == pytest.approx(0.5 * 1 / 15)


def test_chance_is_the_mean_skew_of_random_deals() -> None:
    sizes, rng = np.array([3, 5, 12, 20]), np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [8, 12, 20])
    found = []
    for _ in range(4000):
        clients = np.split(rng.permutation(labels), np.cumsum(sizes)[:-1])
        found.append(skew_drivers([np.bincount(client, minlength=3) for client in clients]))
    assert np.mean([drivers.total for drivers in found]) == pytest.approx(found[0].chance, rel=0.03)


@given(tables_of_counts)
def test_shares_of_the_skew_add_up_and_mixes_that_agree_have_none(counts: Array) -> None:
    counts = counts[counts.sum(axis=1) > 0]
    if not len(counts):
        return
    drivers = skew_drivers(counts)
    assert 0 <= drivers.total < 2
    for shares in (drivers.clients, drivers.classes):
        assert (shares >= 0).all() and shares.sum() == pytest.approx(1.0 if drivers.total else 0.0)
        chosen = leading(shares)
        assert shares[chosen].sum() >= 0.5 * shares.sum() - 1e-9
        assert len(chosen) == 0 or shares[chosen[:-1]].sum() < 0.5 * shares.sum()
    same = skew_drivers(np.arange(1, 4)[:, None] * np.array([1.0, 2.0, 6.0]))
    assert same.total == 0 and not same.clients.any()


def test_rho_of_fedavg_uniform_and_isfl_at_flat_values() -> None:
    """Independent numpy: with flat L, rho is 1 + ||p - q||^2, and ISFL draws by the target on what a client holds."""
    n = np.array([[90, 10, 0], [10, 70, 20], [5, 5, 40]], dtype=float)
    result = diagnosed(n)
    p, weights = n.sum(axis=0) / n.sum(), n.sum(axis=1) / n.sum()
    held = n > 0
    by_target = np.where(held, p, 0) / np.where(held, p, 0).sum(axis=1, keepdims=True)
    for name, q in {
        "fedavg": n / n.sum(axis=1, keepdims=True),
        "uniform-is": held / held.sum(axis=1, keepdims=True),
        "pj-is": by_target,
        "isfl": by_target,
    }.items():
        assert result.draws[name].rho == pytest.approx(weights @ (1 + ((p - q) ** 2).sum(axis=1))), name
        assert result.draws[name].distance == pytest.approx(result.draws[name].rho - 1), name
    effective = sum(n[k].sum() / sum(by_target[k, held[k]] ** 2 / (n[k, held[k]] / n[k].sum())) for k in range(3))
    assert result.draws["pj-is"].effective == pytest.approx(effective / n.sum())
    assert result.out_of_reach == pytest.approx(weights[0] * p[2])
    assert result.extra_gradients == pytest.approx(4 * 500 / (5 * 250))
    assert result.drivers.total == pytest.approx(result.draws["fedavg"].rho - 1)


@given(tables_of_counts, st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_the_exact_minimum_is_below_every_rule_and_rises_with_the_floor(counts: Array, seed: int) -> None:
    if not counts.sum():
        return
    who = counted(counts)
    lipschitz = np.random.default_rng(seed).uniform(0.5, 3.0, who.counts.shape)
    result = diagnose(who, Question(lipschitz=lipschitz))
    for effect in result.floors:
        assert effect.exact.rho <= effect.paper.rho + 1e-9
    exact = [effect.exact.rho for effect in result.floors]
    assert all(low <= high + 1e-9 for low, high in pairwise(exact))
    assert result.floors[0].exact.rho <= min(draws.rho for draws in result.draws.values()) + 1e-9
    assert json.loads(json.dumps(plain(result), allow_nan=False))["advice"]["verdict"] == result.advice.verdict
    assert len(five_lines(result)) == 5 and all("nan" not in line for line in five_lines(result))


def test_the_scale_of_lipschitz_values_does_not_matter() -> None:
    n, lipschitz = [[90, 10], [10, 70]], np.array([[1.0, 3.0], [2.0, np.nan]])
    small, large = (diagnosed(n, lipschitz * scale).draws["isfl"].rho for scale in (1e-40, 1e40))
    assert small == pytest.approx(large)


def test_the_target_is_the_target_of_a_run() -> None:
    even = counted([[80, 20], [80, 20]])
    assert diagnose(even, Question()).advice.reason == "even"
    balanced = question_from(ROOT / "examples/counts.csv", Options(target="uniform"))[1].target
    assert diagnose(even, Question(target=balanced)).draws["fedavg"].distance == pytest.approx(2 * 0.3**2)


def test_a_target_estimated_from_the_clients_seen_is_that_of_all_clients() -> None:
    rows = counted([[80, 20], [5, 95]])
    estimated, known = (
        plain(diagnose(rows, Question(target=target))) for target in (EstimatedTarget(), GlobalTarget())
    )
    assert estimated.pop("target") == {"kind": "estimated", "cap": None} and known.pop("target")
    assert estimated == known


@pytest.mark.parametrize(
    ("distance", "chance", "reached", "verdict", "reason", "first"),
    [
        (0.0, 0.0, 0.0, "no", "even", "fedavg"),
        (0.3, 0.28, 0.0, "no", "even", "fedavg"),  # tiny clients: it is all chance
        (0.75, 0.01, 0.74, "no", "out of reach", "fedavg"),
        (0.1, 0.0, 0.0, "maybe", "some", "adaptive"),
        (0.3, 0.0, 0.0, "yes", "much", "adaptive"),
    ],
)
def test_advice(
    distance: float,
    chance: float,
    reached: float,
    verdict: str,
    reason: str,
    first: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = [
        Measured(f"s{skew}", skew, gain, 1, "here") for skew, gain in ((0.1, 0.5), (0.12, 0.9), (0.3, 8.0), (0.4, 9.0))
    ]
    monkeypatch.setattr(evidence, "measured", lambda: [*known, Measured("s", 0.08, 0.2, 1, "here")])
    given = advise(distance=distance, chance=chance, reached=reached, skew=distance - chance)
    assert (given.verdict, given.reason, given.first) == (verdict, reason, first)


def test_the_expected_gain_is_the_mean_over_the_settings_of_most_similar_skew() -> None:
    """Each is missed by its distance to the mean over the others: here all settings predict each other."""
    known = [
        Measured(name, skew, gain, 1, "x") for name, skew, gain in (("a", 0.1, 1.0), ("b", 0.2, 2.0), ("c", 0.3, 6.0))
    ]
    expected = expected_gain(0.21, [*known, Measured("d", 0.9, 99.0, 1, "x")])
    assert [one.setting for one in expected.settings] == ["b", "c", "a"]
    assert (expected.gain, expected.range) == (3.0, (1.0, 6.0))
    assert left_out_error(known) == pytest.approx(np.mean([3.0, 1.5, 4.5]))
    twice = [*known, Measured("c", 0.3, 7.0, 1, "with augmentation")]
    assert left_out_error(twice) == pytest.approx(np.mean([4.0, 4.667 - 2.0, 4.5, 5.5]), abs=1e-3), "not by its twin"


def test_the_expected_gain_follows_from_the_skew_between_clients_whatever_the_target() -> None:
    """Gains were measured at the skew of clients against each other; these have none, but are far from balance."""
    found = diagnose(counted([[900, 100]] * 3), Question(target=UniformTarget())).advice
    assert found.expected == expected_gain(0.0)
    assert found.reason != "even", "the distance to the target still decides whether a trial is worth it"


def test_the_measured_gains_are_those_of_the_results() -> None:
    script = module_at(ROOT / "scripts/write_measured_gains.py")
    assert script.text() == (ROOT / "src/isfl/diagnose/measured.json").read_text(encoding="utf-8")


def test_the_advised_target_floor_is_ahead_of_plain_isfl_on_every_seed() -> None:
    rows = {row["scheme"]: row for row in json.loads((ROOT / "results/variants/summary.json").read_text())}
    plain_isfl, advised = (rows[name]["standard_by_seed"] for name in ("isfl", f"isfl-floor-{advice.TARGET_FLOOR}"))
    assert all(ours > theirs for ours, theirs in zip(advised, plain_isfl, strict=True))
    best = max((row for name, row in rows.items() if name.startswith("isfl")), key=lambda row: row["standard"])
    assert best["scheme"] == f"isfl-floor-{advice.TARGET_FLOOR}"


def test_advice_is_valid_configuration() -> None:
    strong = advise(distance=0.36, chance=0.0, reached=0.0, skew=0.36)
    assert strong.first == "adaptive"
    for line in (strong.first_line, strong.isfl_line):
        config_from(tomllib.loads(line), "advice")
    command = next_step(diagnosed([[90, 10], [10, 90]]), "demo.toml")
    assert command is not None and command.startswith("isfl compare demo.toml ")
    variant = re.findall(r"--variant '(.*)'", command)[0]
    for base in (demo_config(), config_from({"scheme": "moon"}, "moon")):
        _, cell = comparison_cells(base, ["fedavg"], [0], Path("runs"), [variant_from(variant)])
        rule = cell.config.importance_sampling
        assert rule is not None and (rule.floor, rule.target_floor) == (advice.FLOOR, advice.TARGET_FLOOR)


@pytest.mark.parametrize(
    ("rows", "starts"),
    [
        ([[100, 100], [99, 101], [102, 98]], "Advice:  do not bother: the clients' label mixes"),
        ([[5, 6, 7]], "Advice:  do not bother: the clients' label mixes"),
        ([[5], [7]], "Advice:  do not bother: the clients' label mixes"),
        ([[100, 0], [0, 100]], "Advice:  do not bother with sampling: clients lack"),
        ([[90, 10], [10, 90]], "Advice:  bother."),
    ],
)
def test_the_last_of_five_lines_is_the_advice(rows: list[list[int]], starts: str) -> None:
    assert five_lines(diagnosed(rows))[-1].startswith(starts)


def test_where_similar_settings_gained_little_a_trial_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "measured", lambda: [Measured(f"s{i}", 0.1, i / 4, 1, "here") for i in range(4)])
    line = five_lines(diagnosed([[70, 30], [30, 70]]))[-1]
    assert line.startswith("Advice:  a trial is free") and "+0.0 to +0.5 points against FedAvg" in line


@pytest.mark.parametrize("rows", [[[5]], [[5, 6, 7]], [[5], [7]], np.eye(60) + 1, [[90, 10, 0], [10, 90, 0]]])
def test_any_counts_can_be_drawn(rows: object, tmp_path: Path) -> None:
    out = draw_diagnosis(diagnosed(rows), tmp_path / "d.png")
    assert out.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match=r"d\.what: the picture cannot be written"):
        draw_diagnosis(diagnosed(rows), tmp_path / "d.what")


def test_ten_thousand_clients_take_seconds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.2, 10.0, (10_000, 100)))
    path = tmp_path / "big.csv"
    np.savetxt(path, counts, fmt="%d", delimiter=",")
    started = time.process_time()
    who, question = question_from(path, Options(lipschitz=",".join(["1.5", "2.5"] * 50)))
    result = diagnose(who, question)
    draw_diagnosis(result, tmp_path / "big.png")
    assert time.process_time() - started < 30
    assert all(len(table.rows) <= 42 for table in tables(result))
    assert max(map(len, five_lines(result))) < 300
