"""`isfl run` and what all commands share: real processes, real files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from isfl.cli import main
from tests.commands import isfl


def test_run_writes_a_complete_run_directory(tiny: Path) -> None:
    result = isfl("run", "tiny.toml", "--set", "seed=5", "--out", "out", cwd=tiny.parent)
    assert result.returncode == 0, result.stderr
    assert "round   1/2  D_S" in result.stdout and "run directory: out" in result.stdout
    out = tiny.parent / "out"
    assert {p.name for p in out.iterdir()} == {
        "config.json",
        "run.json",
        "split.json",
        "checksums.json",
        "metrics.jsonl",
        "probabilities.jsonl",
        "model.safetensors",
        "checkpoints",
        ".lock",
    }
    config = json.loads((out / "config.json").read_text())
    assert config["seed"] == 5 and config["training"]["optimizer"]["lr"] == 1e-3
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2]
    assert {
        "accuracy_standard",
        "accuracy_global",
        "recall",
        "worst_client_accuracy",
        "train_loss",
        "rho_used",
        "rho_paper",
        "rho_minimum",
        "bound",
        "gradient_evaluations",
        "bytes_up",
        "bytes_down",
        "seconds",
    } <= lines[0].keys()
    assert {"training", "sampling"} <= lines[0]["gradient_evaluations"].keys()
    assert {"training", "sampling"} <= lines[0]["seconds"].keys()
    assert "accuracy_standard_top5" not in lines[0]  # only with more than ten classes
    assert len(lines[0]["recall"]) == 10
    rows = [json.loads(line) for line in (out / "probabilities.jsonl").read_text().splitlines()]
    for row in rows:
        assert list(row["probabilities"]) == ["0", "1", "2"]
        np.testing.assert_allclose([sum(q) for q in row["probabilities"].values()], 1.0)
    counts = np.array(json.loads((out / "split.json").read_text())["client_counts"])
    np.testing.assert_allclose(rows[0]["probabilities"]["0"], counts[0] / 60)
    assert all(np.isfinite(value).all() for value in load_file(out / "model.safetensors").values())


def test_an_empty_file_runs_on_the_embedded_data(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("", encoding="utf-8")
    short = ("--set", "training.rounds=1", "--set", "training.local_epochs=1")
    result = isfl("run", "empty.toml", *short, "--out", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    counts = json.loads((tmp_path / "out/split.json").read_text())["client_counts"]
    assert [sum(client) for client in counts] == [500] * 10


def test_the_same_run_twice_writes_the_same_model_and_probabilities(tiny: Path) -> None:
    for name in ("one", "two"):
        assert isfl("run", "tiny.toml", "--out", name, cwd=tiny.parent).returncode == 0
    for file in ("model.safetensors", "probabilities.jsonl"):
        assert (tiny.parent / "one" / file).read_bytes() == (tiny.parent / "two" / file).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "missing.toml"), "missing.toml: no such file"),
        (("run", "tiny.toml", "--set", "training.round=3"), "training.round: unknown key; did you mean 'rounds'?"),
        (("run", "tiny.toml", "--set", "split.clients=1000"), "lower split.clients"),
        (("run", "tiny.toml", "--set", "data.name=mnist"), "data.name is 'mnist'"),
        (("run", "tiny.toml", "--set", "model.name=resnet1000"), "model.name is 'resnet1000'; choose one of small-cnn"),
        (("run", "tiny.toml", "--set", "model.name=resnet9"), "model.name = 'resnet9' needs images"),
        (("run", "tiny.toml", "--out", "x" * 300), "cannot be used as a run directory"),
        (("run", "tiny.toml", "--nonsense"), "No such option"),
        (("compare", "tiny.toml", "--jobs", "0"), "--jobs"),
        (
            (
                "compare",
                "tiny.toml",
                "--schemes",
                "fedavg,centralized",
                "--set",
                "target.kind=given",
                "--set",
                "target.shares=[[0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1],[0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1],"
                "[0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1]]",
            ),
            "target.shares has shape (3, 10)",
        ),
        (("run", "tiny.toml", "--set", "target={kind='given',shares=[0.5,0.5]}"), "target.shares has shape (2,)"),
        (("run", "tiny.toml", "--set", "data.public=100000"), "data.public asks for 100000 samples, the data has 6000"),
        (("run", "tiny.toml", "--out", "tiny.toml"), "tiny.toml: exists and is not empty"),
        (("compare", "tiny.toml", "--seeds", "a"), "--seeds a: write whole numbers"),
        (("compare", "tiny.toml", "--variant", "just words"), "write NAME: key=value"),
        (("compare", "tiny.toml", "--variant", "../up: seed=1"), "write NAME: key=value"),
        (("compare", "tiny.toml", "--variant", "fast: training.speed=1"), "fast: training.speed: unknown key"),
        (("compare", "tiny.toml", "--variant", "isfl: seed=1"), "names something twice"),
        (("compare", "tiny.toml", "--schemes", "fedavg,fedmagic"), "unknown scheme 'fedmagic'"),
        (("compare", "tiny.toml", "--schemes", "isfl,isfl"), "names something twice"),
    ],
)
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(
    tiny: Path, arguments: tuple[str, ...], message: str
) -> None:
    before = sorted(tiny.parent.rglob("*"))
    result = isfl(*arguments, cwd=tiny.parent)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert sorted(tiny.parent.rglob("*")) == before


def test_a_run_directory_is_never_written_over(tiny: Path) -> None:
    assert isfl("run", "tiny.toml", "--out", "out", cwd=tiny.parent).returncode == 0
    before = (tiny.parent / "out/metrics.jsonl").read_bytes()
    result = isfl("run", "tiny.toml", "--out", "out", cwd=tiny.parent)
    assert result.returncode == 2 and "exists and is not empty" in result.stderr
    assert (tiny.parent / "out/metrics.jsonl").read_bytes() == before


def test_help_and_version(tmp_path: Path) -> None:
    result = isfl("--help", cwd=tmp_path)
    assert result.returncode == 0
    assert all(command in result.stdout for command in ("run", "compare", "demo"))
    assert isfl("--version", cwd=tmp_path).stdout.startswith("isfl 0.")


def test_refused_clients_are_printed(tiny: Path) -> None:
    broken = ("--set", "scheme.objective={kind='fedprox', mu=1e38}", "--set", "training.optimizer.kind=sgd")
    result = isfl("run", "tiny.toml", *broken, "--out", "out", cwd=tiny.parent)
    assert result.returncode == 0
    assert "round 2: refused client 0: " in result.stdout


def test_output_to_an_ascii_pipe_keeps_long_paths_on_one_line(tiny: Path) -> None:
    deep = Path(*["a-long-name-for-a-directory"] * 4)
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        [sys.executable, "-m", "isfl.cli", "run", "tiny.toml", "--out", str(deep)],
        capture_output=True,
        text=True,
        cwd=tiny.parent,
        env=environment,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert f"run directory: {deep}\n" in result.stdout


def test_the_demo_is_ten_clients_on_real_data() -> None:
    from importlib import resources

    from isfl.problem.config import parse_config
    from isfl.problem.problem import prepare
    from isfl.theory import skew_card

    text = resources.files("isfl.experiment").joinpath("presets/demo.toml").read_text(encoding="utf-8")
    config = parse_config(text, "demo.toml")
    problem = prepare(config)
    assert config.data.name == "fashion-mnist-mini" and len(problem.clients) == 10
    card = skew_card(np.stack([data.class_counts for data in problem.clients]))
    assert card.total_variation.mean() > 0.6  # severe: most samples would have to change class


@pytest.mark.parametrize(("scheme", "what"), [("isfl", "Lipschitz values"), ("bias-variance", "gradients")])
def test_a_class_missing_from_the_public_set_is_warned_of_once(scheme: str, what: str, tiny: Path) -> None:
    changes = ("--set", "data.public=3", "--set", f"scheme={scheme}")
    result = isfl("run", "tiny.toml", *changes, "--out", "out", cwd=tiny.parent)
    assert result.returncode == 0
    assert result.stderr.startswith("warning: the public set has no sample of class ")
    assert f"{what} there count as average" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "report", "watch", "figures", "diagnose", "resume"])
def test_help_explains_every_argument(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    (arguments,) = re.findall(r"Arguments ─+╮\n(.*?)╰", capsys.readouterr().out, re.DOTALL)
    assert len(re.findall(r"[a-z]{3,}", arguments)) > 4, arguments
