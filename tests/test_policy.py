"""The comparison of sampling policies: its presets, its screen and its page say the same."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from isfl.data.splits.base import Pool
from isfl.experiment.compare import comparison_cells
from isfl.problem.config import Config, config_from, load_config
from tests.worlds import module_at

ROOT = Path(__file__).parent.parent
SCREEN = module_at(ROOT / "scripts/screen_policy.py")
PAGE = (ROOT / "docs/policy.md").read_text(encoding="utf-8")


def tiny(seed: int) -> Config:
    return config_from(
        {
            "seed": seed,
            "data": {"public": 40},
            "split": {"kind": "mixed", "clients": 3, "shard_size": 20, "nr": 0.8},
            "model": {"name": "mlp", "width": 0.25},
            "training": {"rounds": 3, "local_epochs": 1, "batch_size": 16},
        },
        "tiny",
    )


@pytest.mark.parametrize("preset", sorted((ROOT / "src/isfl/experiment/presets").glob("policy-*.toml")), ids=str)
def test_every_candidate_is_a_valid_variant_of_every_preset(preset: Path) -> None:
    rows = {**SCREEN.REFERENCES, **SCREEN.CANDIDATES}
    variants = [f"{label}: {'; '.join(overrides)}" for label, overrides in rows.items() if label != "fedavg"]
    cells = comparison_cells(load_config(preset, []), ["fedavg"], [0], Path("out"), variants)
    assert [cell.label for cell in cells] == list(rows)
    assert len({cell.config.model_dump_json() for cell in cells}) == len(rows)
    assert preset.name in PAGE


def test_the_page_names_every_row_of_the_screen() -> None:
    assert all(f"`{label}`" in PAGE for label in {**SCREEN.REFERENCES, **SCREEN.CANDIDATES})


def confirming() -> list[tuple[str, list[str]]]:
    """The presets and overrides of the page's table of confirming settings."""
    table = PAGE.split("To confirm on")[1].split("## Procedure")[0]
    rows = [re.findall(r"`([^`]+)`", line) for line in table.splitlines() if "`policy-" in line]
    return [(preset, overrides) for preset, *overrides in rows]


def test_the_confirming_settings_are_eight_others_whose_splits_can_be_made() -> None:
    """On as many labels as the data sets have."""
    chosen = [load_config(path, []) for path in SCREEN.SETTINGS.values()]
    configs = [load_config(SCREEN.PRESETS / preset, overrides) for preset, overrides in confirming()]
    assert len(configs) == 8 and not any(config in chosen for config in configs)
    sizes = {"cifar10": 50_000, "fashion-mnist": 60_000, "digits": 1_400}
    for config in [*chosen, *configs]:
        labels = np.random.default_rng(0).permutation(np.arange(sizes[config.data.name]) % 10)
        clients = config.split.assign(Pool(labels, len(labels), seed=0))
        assert len(clients) in (10, 20, 100) and all(len(own) for own in clients)


def test_the_better_half_is_kept_with_whatever_is_within_the_margin() -> None:
    labels = list(SCREEN.CANDIDATES)[:5]
    scores = dict(zip(labels, (50.0, 40.0, 45.0, 39.7, 30.0), strict=True)) | {"fedavg": 99.0}
    assert SCREEN.Scores(scores).kept() == [labels[i] for i in (0, 2, 1, 3)]


def test_a_screen_halves_the_candidates_and_continues_runs_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that were stopped after a stage and continued equal a run without a stop."""
    chosen = {label: SCREEN.CANDIDATES[label] for label in ("t-0.5", "shrunk-50", "bv-1", "decaying")}
    monkeypatch.setattr(SCREEN, "CANDIDATES", chosen)
    monkeypatch.setattr(SCREEN, "REFERENCES", {"fedavg": SCREEN.REFERENCES["fedavg"]})
    monkeypatch.setattr(SCREEN, "MARGIN", 0.0)
    monkeypatch.setattr(SCREEN, "WINDOW", 1)
    monkeypatch.setitem(sys.modules, "screen_policy", SCREEN)
    monkeypatch.setattr(SCREEN, "ProcessPoolExecutor", Here)
    bases = {"one": tiny(0), "two": tiny(1)}
    left = SCREEN.screen(bases, tmp_path, jobs=1, stages=(1, 2, 3))
    told = json.loads((tmp_path / "screen.json").read_text())
    assert [(stage["rounds"], len(stage["scores"])) for stage in told] == [(1, 5), (2, 3), (3, 2)]
    assert left == told[-1]["kept"] and len(left) == 1
    rounds = {cell.label: len(cell.lines) for cell in SCREEN.cells(bases, ["fedavg", *chosen], tmp_path)}
    assert sorted(rounds.values()) == [1, 1, 2, 3, 3] and rounds["fedavg"] == rounds[left[0]] == 3
    (whole,) = (cell for cell in SCREEN.cells(bases, left, tmp_path / "again") if cell.group == "one")
    SCREEN.advance(whole.config.model_dump_json(), str(whole.out), 3)
    models = [directory / "one" / left[0] / "model.safetensors" for directory in (tmp_path, tmp_path / "again")]
    assert models[0].read_bytes() == models[1].read_bytes()


class Here:
    """Runs in this process what would run in others."""

    def __init__(self, *arguments: object, **options: object) -> None:
        pass

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, function: object, *arguments: object) -> Done:
        assert callable(function)
        function(*arguments)
        return Done()


class Done:
    """Work that is done."""

    def result(self) -> None:
        pass
