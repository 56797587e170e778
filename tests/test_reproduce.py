"""`isfl reproduce` at smoke scale: every cell runs, and a part can be run first."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from isfl.cli import terminal
from isfl.experiment.paper import EXPERIMENTS
from isfl.experiment.reproduce import Result, plans_of
from isfl.report import reproduction
from tests.commands import exit_code
from tests.reproduction import INTERPRETATIONS, refused, setting


@pytest.mark.parametrize(
    ("name", "interpretation"),
    [*(("table2", i) for i in INTERPRETATIONS), *((name, "published") for name in EXPERIMENTS if name != "table2")],
)
@pytest.mark.filterwarnings("ignore:the public set has no sample of class")  # it is small at this scale
def test_smoke_fills_every_cell(
    name: str,
    interpretation: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminal, "console", Console(width=80, highlight=False))
    dots, draw = [], reproduction._against_published

    def noted(results: Sequence[Result]) -> Figure:
        dots.append(name)
        return draw(results)

    monkeypatch.setattr(reproduction, "_against_published", noted)
    out = tmp_path / "out"
    options = ("--scale", "smoke", "--as", interpretation, "--jobs", "1", "--out", str(out))
    assert exit_code("reproduce", name, *options) in (None, 0)
    shown = capsys.readouterr().out
    tables = [line for line in shown.splitlines() if line.startswith(("┏", "┃", "│", "└"))]
    assert tables and max(map(len, tables)) <= 80 and "…" not in shown
    content = json.loads((out / f"{name}.json").read_text())
    assert content["setting"] == {"scale": "smoke", "as": interpretation, "clients": None, "set": []}
    expected = [(p.group, p.label) for p in plans_of(name, setting("smoke", interpretation))]
    assert [(r["group"], r["label"]) for r in content["results"]] == expected
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert bool(dots) == (name in ("table2", "table3", "centralized")), "a figure is drawn as itself"
    assert (out / f"{name}-curves.png").exists() == name.startswith("table")
    text = (out / f"{name}.md").read_text()
    assert "have not been made" not in text and "not comparable" in text
    assert "chosen on the test set" in text and "chosen on the test set" in " ".join(shown.split())
    for row in content["results"]:
        assert row["best"]["standard"] >= row["standard"] and row["best"]["rounds"][0] in (1, 2)
        for key, value in row["published"].items():
            ours = {"standard": row["standard"], "global": row["global_"], "top5": row["top5"]}.get(key)
            if ours is not None:
                assert row["difference"][key] == pytest.approx(ours - value)
    if name == "table2":
        assert content["results"][0]["published"] == {"standard": 63.38, "global": 66.25}
        assert "q proportional to p^k p" in text and "scheme.sampling.unbiased = true" in text
    if name == "table3":
        assert "| rounds to FedAvg | speed-up | published speed-up | top-5 %: last / best | published top-5 |" in text
        assert content["results"][0]["speedup"] == 1.0  # FedAvg against itself
    if name == "centralized":
        assert "| 91.25 |" in text and "| 62.25 |" in text and "| 85.25 |" in text
        assert "91.2" in shown and "85.2" in shown
    if name == "fig-sr":
        assert "58.00 / 71.00" in text
    if name == "fig-rho":
        assert re.search(r"the rho in use (rose|fell) from [\d.]+ in round 1 to [\d.]+ in round 2", text)
    if name == "fig-personal":
        assert text.count("- local=") == 10 and re.search(r"- local=0\.25/pj-is: \d+ / \d+ / \d+ / \d+ %", text)
    if name == "fig-q":
        assert text.count("- nr-0.98/") == 2


def test_a_part_of_an_experiment_can_run_first_and_the_rest_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    smoke = ("reproduce", "table2", "--scale", "smoke", "--jobs", "1", "--out", str(out), "--only")
    assert exit_code(*smoke, "nr-0.98/*avg") in (None, 0)
    assert "46 runs of this experiment have not been made" in (out / "table2.md").read_text()
    model = out / "nr-0.98/fedavg/seed-0/model.safetensors"
    before = model.stat().st_mtime_ns
    capsys.readouterr()
    assert exit_code("resume", str(out)) in (None, 0)
    assert "[2/2]" in capsys.readouterr().out, "resumes the requested cells only, not all forty-eight"
    assert exit_code(*smoke, "nr-0.98/*") in (None, 0)
    assert len(json.loads((out / "table2.json").read_text())["results"]) == 12
    assert model.stat().st_mtime_ns == before
    for arguments, message in (
        (("table2", "--scale", "quick"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--as", "text"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--clients", "10"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--set", "training.augment=[]"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--seeds", "1"), "holds another experiment"),
        (("table2", "--scale", "smoke", "--seeds", "0,0"), "each once"),
        (("table2", "--scale", "smoke", "--seeds", ""), "at least one number"),
        (("table2", "--scale", "smoke", "--only", "nr-0.5/*"), "matches none of"),
        (("table9",), "is not an experiment"),
        (("table2", "--scale", "nonsense"), "--scale nonsense: choose one of smoke, quick, half, paper"),
        (("table2", "--as", "nonsense"), "--as nonsense: choose one of text, authors, published"),
    ):
        assert message in refused(capsys, *arguments, "--out", str(out))
