"""`isfl reproduce attacks`: its cells, its table and its figure."""

from __future__ import annotations

import json
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
