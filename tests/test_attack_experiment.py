"""`isfl reproduce attacks`: its cells, its table and its figure."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from isfl.experiment.attacks import AGGREGATIONS, KINDS, SCHEMES
from isfl.experiment.reproduce import plans_of
from isfl.problem.config import config_from
from tests.commands import exit_code
from tests.reproduction import refused, setting

CELLS = "none/fedavg+mean,sign-flip/fedavg+mean,sign-flip/fedavg+multi-krum"


def test_every_attack_meets_every_aggregation_under_every_scheme() -> None:
    for scale in ("smoke", "quick", "paper"):
        plans = plans_of("attacks", setting(scale))
        configs = {(p.group, p.label): config_from({**p.config, "seed": 0}, "attacks") for p in plans}
        assert len(configs) == len(KINDS) * len(SCHEMES) * len(AGGREGATIONS) == 108
        assert len({config.model_dump_json() for config in configs.values()}) == 108
        for (attack, label), config in configs.items():
            assert (config.attack.kind, label) == (attack, f"{config.scheme.name}+{config.scheme.aggregation.rule}")
            hostile = [k for k in range(10) if config.attack.is_hostile(0, k)]
            assert len(hostile) == (0 if attack == "none" else 2)


def test_a_cell_cannot_be_given_another_attack_than_its_name_says(capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, "attacks", "--scale", "smoke", "--set", "attack.kind=scale")
    assert "the cell none/fedavg+mean fixes attack.kind" in message


def test_a_small_one_has_tables_by_scheme_a_figure_and_what_was_left_out(tmp_path: Path) -> None:
    out = tmp_path / "o"
    assert not exit_code("reproduce", "attacks", "--scale=smoke", f"--only={CELLS}", f"--out={out}", "--jobs=1")
    text = (out / "attacks.md").read_text(encoding="utf-8")
    results = {
        (r["group"], r["label"]): r["standard"] for r in json.loads((out / "attacks.json").read_text())["results"]
    }
    row = [f"{results[attack, 'fedavg+mean']:.0f}" for attack in ("none", "sign-flip")]
    assert (
        f"| aggregation | {' | '.join(KINDS)} |" in text and f"| mean | {row[0]} | {row[1]} | - | - | - | - |" in text
    )
    assert "## fedavg" in text and "## isfl" not in text and "105 runs of this experiment have not been made" in text
    assert "| multi-krum | - |" in text.split("## What was left out")[1]
    assert (out / "attacks.png").stat().st_size > 10_000


def test_the_recommendation_agrees_with_the_published_results() -> None:
    """What each rule loses against its own accuracy without an attack, in points, as the page quotes it."""
    root = Path(__file__).parents[1]
    page = (root / "docs" / "robustness.md").read_text(encoding="utf-8")
    results = json.loads((root / "results" / "attacks" / "attacks.json").read_text(encoding="utf-8"))["results"]
    found = {(r["group"], r["label"]): r["standard"] for r in results}
    lost = {
        (attack, scheme, rule): found["none", f"{scheme}+{rule}"] - value
        for (attack, label), value in found.items()
        for scheme, rule in [label.split("+")]
        if attack != "none"
    }
    worst = {rule: max(loss for (_, _, r), loss in lost.items() if r == rule) for rule in AGGREGATIONS}
    most, others = math.ceil(worst.pop("public-loss")), math.floor(min(worst.values()))
    assert f"it loses at most {most} points against its own unattacked accuracy" in page
    assert f"every other rule loses {others} points or more somewhere" in page
    assert f"other attacks cost up to {worst['clipped']:.0f} points" in page
    assert max(lost["scale", scheme, "clipped"] for scheme in SCHEMES) < 0
    fedavg = [f"{lost['scale', 'fedavg', rule]:.0f}" for rule in ("median", "trimmed-mean")]
    assert f"Under FedAvg `scale` costs them {' and '.join(fedavg)} points" in page
    drawn = [
        (attack, loss) for (attack, s, r), loss in lost.items() if s != "fedavg" and r in ("median", "trimmed-mean")
    ]
    rest = [loss for attack, loss in drawn if attack != "scale"]
    assert f"the other attacks cost both between {min(rest):.0f} and {max(rest):.0f}" in page
    assert f"the median up to {max(loss for attack, loss in drawn if attack == 'scale'):.0f} points" in page
