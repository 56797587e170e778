"""The comparison of sampling policies: its steps, its screen and its page say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from isfl.data.splits.base import Pool
from isfl.engines.local.worker_pool import Handler
from isfl.experiment import screen as halving
from isfl.experiment.cells import Cell
from isfl.experiment.policy import CANDIDATES, EXPERIMENTS, PARTS, ROWS
from isfl.experiment.reproduce import plans_of, reproduction_cells
from isfl.experiment.screen import Stage
from isfl.problem.config import Config, config_from
from tests.commands import exit_code
from tests.reproduction import setting
from tests.worlds import module_at

ROOT = Path(__file__).parent.parent
SCREEN = module_at(ROOT / "scripts/screen_policy.py")
PAGE = (ROOT / "docs/policy.md").read_text(encoding="utf-8")


def configs(name: str, scale: str = "half") -> dict[tuple[str, str], Config]:
    return {(plan.group, plan.label): config_from(plan.config, name) for plan in plans_of(name, setting(scale))}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_step_has_every_row_on_every_setting_of_the_page(name: str) -> None:
    cells = configs(name)
    groups = {group for group, _ in cells}
    rows = PARTS if name == "policy-explain" else ROWS
    assert len({config.model_dump_json() for config in cells.values()}) == len(groups) * len(rows) == len(cells)
    section = PAGE.split("## Settings")[1].split("## Procedure")[0]
    to_choose, to_confirm, to_explain, by_skew = (
        {group for names in re.findall(r"^\| (`.+?`) \|", part, re.M) for group in names.strip("`").split("`, `")}
        for part in re.split("To confirm on|To explain|To see how", section)
    )
    steps = {"policy-confirm": to_confirm, "policy-explain": to_explain, "policy-skew": by_skew}
    assert groups == steps.get(name, to_choose)
    assert len(to_choose) == 3 and len(to_confirm) == 8 and not to_choose & to_confirm and not to_choose & by_skew
    assert all(config.training.initial_models == "shared" for config in cells.values())
    assert all(config.model_dump()["scheme"]["aggregation"]["weights"] == "size" for config in cells.values())


def test_the_page_names_every_row_of_the_screen() -> None:
    assert all(f"`{label}`" in PAGE for label in ROWS | PARTS)


def test_the_rows_differ_in_their_scheme_alone() -> None:
    """But for the last batch, which the released code drops in ISFL."""
    for name in EXPERIMENTS:
        for group in {group for group, _ in configs(name)}:
            rest = set()
            for (at, label), config in configs(name).items():
                if at == group:
                    raw = config.model_dump(mode="json")
                    assert raw["training"].pop("drop_last") == label.startswith("isfl")
                    rest.add(json.dumps({key: value for key, value in raw.items() if key != "scheme"}))
            assert len(rest) == 1


def test_every_setting_can_be_split() -> None:
    """On as many labels as the data sets have."""
    sizes = {"cifar10": 50_000, "fashion-mnist": 60_000, "fashion-mnist-mini": 6_000, "digits": 1_297}
    every = [config for name in EXPERIMENTS for (_, label), config in configs(name).items() if label == "fedavg"]
    for config in every:
        labels = np.random.default_rng(0).permutation(np.arange(sizes[config.data.name]) % 10)
        clients = config.split.assign(Pool(labels, len(labels), seed=0))
        assert len(clients) in (10, 20, 100) and all(len(own) for own in clients)


def test_a_step_runs_and_has_a_table(tmp_path: Path) -> None:
    out = tmp_path / "o"
    only = "--only=*/t-0.5-cal,digits/fedavg"
    assert not exit_code("reproduce", "policy-confirm", "--scale=smoke", only, f"--out={out}")
    text = (out / "policy-confirm.md").read_text(encoding="utf-8")
    assert text.count("| t-0.5-cal |") == 1 + 2 * 8 and "Published numbers" not in text
    assert "| setting | t-0.5-cal |\n| --- | --- |\n| digits | " in text and "rule chooses" not in text


def test_the_better_half_is_kept_with_whatever_is_within_the_margin() -> None:
    labels = list(CANDIDATES)[:5]
    means = dict(zip(labels, (50.0, 40.0, 45.0, 39.7, 30.0), strict=True)) | {"fedavg": 99.0}
    scores = {label: {"one": mean - 3, "two": mean + 3} for label, mean in means.items()}
    assert Stage(4, scores).kept == [labels[i] for i in (0, 2, 1, 3)]


def test_a_screen_halves_the_candidates_and_continues_runs_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that were stopped after a stage and continued equal a run without a stop."""
    monkeypatch.setattr(halving, "MARGIN", 0.0)
    monkeypatch.setattr(halving, "WINDOW", 1)
    monkeypatch.setattr(halving, "WorkerPool", Here)
    labels = ("fedavg", "t-0.5", "shrunk-50", "bv-3", "decaying")

    def cells(out: Path) -> list[Cell]:
        only = ",".join(f"*/{label}" for label in labels)
        return reproduction_cells("policy-screen", setting("smoke"), [0], out, only, ["training.rounds=3"])

    stages = list(halving.screen(cells(tmp_path / "o"), jobs=1, stages=(1, 2, 3)))
    assert [(stage.rounds, len(stage.scores)) for stage in stages] == [(1, 5), (2, 3), (3, 2)]
    left = stages[-1].kept
    assert len(left) == 1 and stages == halving.completed(cells(tmp_path / "o"), (1, 2, 3))
    rounds = {cell.label: len(cell.lines) for cell in cells(tmp_path / "o")}
    assert sorted(rounds.values()) == [1, 1, 2, 3, 3] and rounds["fedavg"] == rounds[left[0]] == 3
    whole = next(cell for cell in cells(tmp_path / "again") if cell.label == left[0])
    halving.advance(whole.config.model_dump_json(), str(whole.out), 3)
    models = [tmp_path / place / whole.group / left[0] / "seed-0/model.safetensors" for place in ("o", "again")]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_a_mistake_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        SCREEN.main([str(tmp_path), "--scale", "tiny"])
    assert capsys.readouterr().err == "error: --scale tiny: choose one of smoke, quick, half, paper\n"


def test_ctrl_c_is_one_line_and_not_the_end_of_a_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(halving, "run_or_resume", pressed)
    with pytest.raises(KeyboardInterrupt):
        halving.advance(Config().model_dump_json(), str(tmp_path), 4)
    monkeypatch.setattr(SCREEN, "screen", pressed)
    with pytest.raises(SystemExit, match="130"):
        SCREEN.main([str(tmp_path), "--scale", "smoke"])
    assert capsys.readouterr().err == "error: interrupted; the same command continues\n"


class Here:
    """Runs in this process what would run in others."""

    def __init__(self, size: int, build: Callable[[int], Handler]) -> None:
        self.handler = build(0)

    def run(self, jobs: Sequence[tuple[object, ...]]) -> Iterator[object]:
        for job in jobs:
            yield self.handler(*job)

    def close(self) -> None:
        pass
