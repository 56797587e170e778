"""Exports of a run are read back by the programs they are for; the model card is computed from the run directory."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import isfl
from isfl.errors import UserCodeError
from isfl.models import ModelSettings, build_model
from isfl.problem.problem import prepare
from isfl.report.card import model_card
from tests.commands import exit_code
from tests.commands import isfl as command
from tests.directories import written_run

TINY = {
    "data": {"public": 40},
    "split": {"clients": 3, "shard_size": 20},
    "model": {"width": 0.25},
    "training": {"rounds": 2, "local_epochs": 1, "batch_size": 16},
}
ALL = ["model.pt", "model.pt2", "metrics.csv", "metrics.parquet", "MODEL_CARD.md"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> isfl.Run:
    return isfl.run(TINY, out=tmp_path_factory.mktemp("runs") / "a", workers=1)


@pytest.fixture(scope="module")
def exported(run: isfl.Run) -> Path:
    out = run.path.parent / "exported"
    assert run.export(out) == [out / name for name in ALL]
    return out


def test_the_state_dict_loads_without_pickle_into_the_plain_model(run: isfl.Run, exported: Path) -> None:
    weights = torch.load(exported / "model.pt", weights_only=True)
    model = build_model(ModelSettings(width=0.25), (1, 28, 28), 10, seed=99)
    model.load_state_dict(weights)
    inputs, labels = prepare(run.config).test.everything()
    with torch.no_grad():
        accuracy = (model.eval()(inputs).argmax(1) == labels).float().mean().item()
    assert accuracy == pytest.approx(run.records[-1]["accuracy_standard"])


def test_the_exported_program_gives_equal_outputs_for_other_batch_sizes(run: isfl.Run, exported: Path) -> None:
    """Without isfl: another program has torch alone."""
    inputs = prepare(run.config).test.everything()[0][:9]
    with torch.no_grad():
        expected = [run.model()(inputs[:size]) for size in (1, 3, 9)]
    torch.save(inputs, exported.parent / "inputs.pt")
    script = (
        "import sys, torch; x = torch.load(sys.argv[2]); model = torch.export.load(sys.argv[1]).module();"
        "torch.save([model(x[:size]).detach() for size in (1, 3, 9)], sys.argv[3]); assert 'isfl' not in sys.modules"
    )
    files = [str(exported / "model.pt2"), *(str(exported.parent / name) for name in ("inputs.pt", "outputs.pt"))]
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, *files], check=True, timeout=200)
    found = torch.load(files[2])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_metrics_as_csv_and_parquet_are_the_records(run: isfl.Run, exported: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(exported / "metrics.parquet").to_pylist()
    assert rows == run.records
    with (exported / "metrics.csv").open(newline="") as stream:
        texts = list(csv.DictReader(stream))
    assert [int(row["round"]) for row in texts] == [1, 2]
    for text, record in zip(texts, run.records, strict=True):
        assert float(text["seconds.wall"]) == record["seconds.wall"]
        assert json.loads(text["recall"]) == record["recall"] and text["drift"] == ""


def test_lists_in_csv_are_json_also_with_values_that_were_not_measured(tmp_path: Path) -> None:
    run = isfl.Run(written_run(tmp_path / "a", clients=2, classes=2, rounds=1))
    line = json.loads((run.path / "metrics.jsonl").read_text())
    (run.path / "metrics.jsonl").write_text(json.dumps({**line, "recall": [None, 0.5]}) + "\n")
    (row,) = csv.DictReader(run.export(tmp_path / "m.csv")[0].read_text().splitlines())
    assert json.loads(row["recall"]) == [None, 0.5]


def test_rounds_with_other_keys_share_one_table(tmp_path: Path) -> None:
    run = isfl.Run(written_run(tmp_path / "a", clients=3, classes=4, rounds=3))  # a client is refused in round 2
    rows = list(csv.DictReader(run.export(tmp_path / "m.csv")[0].read_text().splitlines()))
    assert [row["refused.1"] for row in rows] == ["", "did not answer", ""]
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(run.export(tmp_path / "m.parquet")[0])
    assert table["refused.1"].to_pylist() == [None, "did not answer", None]


def test_a_model_given_from_python_is_given_once_more(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    run = isfl.run(TINY, ["training.rounds=1"], model=net, out=tmp_path / "a", workers=1)
    weights = torch.load(run.export(tmp_path / "m.pt", model=net)[0], weights_only=True)
    assert weights["1.weight"].shape == (10, 784) and not torch.equal(weights["1.weight"], net.state_dict()["1.weight"])


# ---------------------------------------------------------------- the model card


def test_the_model_card_has_data_skew_scheme_results_and_limits(run: isfl.Run, exported: Path) -> None:
    card = (exported / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", card, re.M) == ["Model", "Data and skew", "Training", "Results", "Limits"]
    assert card.startswith("# Model card: small-cnn trained with isfl on fashion-mnist-mini\n")
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", card, re.M))
    last = run.records[-1]
    assert rows["accuracy on the balanced test set (D\\_S)"] == f"{100 * last['accuracy_standard']:.1f} %"
    assert rows["the worst client, on its own data"] == f"{100 * last['worst_client_accuracy']:.1f} %"
    assert rows["SHA-256 of the weights"] == hashlib.sha256((run.path / "model.safetensors").read_bytes()).hexdigest()
    assert rows["values in the state dictionary"] == f"{sum(t.numel() for t in run.model().state_dict().values()):,}"
    assert rows["data.name"] == "fashion-mnist-mini" and rows["scheme.sampling.rule"] == "isfl"
    assert "| samples | 40 | 40 | 40 |" in card and "over 3 clients" in card
    lowest = min(range(10), key=lambda i: last["recall"][i])
    assert f"recall is {100 * last['recall'][lowest]:.1f} %" in card and "One run with one seed" in card


def made_up_run(path: Path, rounds: int) -> Path:
    """Write a run of three clients and four classes, with weights."""
    written_run(path, clients=3, classes=4, rounds=rounds)
    save_file({"weight": torch.zeros(2, 3)}, path / "model.safetensors")
    return path


def test_the_card_says_when_the_last_round_is_not_the_best_and_clients_were_refused(tmp_path: Path) -> None:
    path = made_up_run(tmp_path / "a", rounds=3)
    text = (path / "metrics.jsonl").read_text().splitlines()
    better = {**json.loads(text[0]), "accuracy_standard": 0.9}
    (path / "metrics.jsonl").write_text("\n".join([json.dumps(better), *text[1:]]) + "\n")
    limits = model_card(path).partition("## Limits")[2]
    assert "round 1 was better on D_S" in limits and "refused 1 times" in limits


def test_names_cannot_break_the_card(tmp_path: Path) -> None:
    path = made_up_run(tmp_path / "a", rounds=1)
    split = json.loads((path / "split.json").read_text())
    split["class_names"] = ["a|b", "<script>", "line\nbreak", "*bold*"]
    (path / "split.json").write_text(json.dumps(split))
    card = model_card(path)
    assert "a\\|b" in card and "\\<script\\>" in card and "line break" in card and "\\*bold\\*" in card


def test_private_counts_stay_unknown(tmp_path: Path) -> None:
    path = made_up_run(tmp_path / "a", rounds=1)
    split = json.loads((path / "split.json").read_text())
    (path / "split.json").write_text(json.dumps({**split, "client_counts": None}))
    assert "class counts of the clients are private" in model_card(path)


# ---------------------------------------------------------------- mistakes


def test_the_command_writes_what_the_suffix_says(run: isfl.Run, tmp_path: Path) -> None:
    done = command("export", str(run.path), "--to", "deep/card.md", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "written: deep/card.md\n", "")
    assert (tmp_path / "deep/card.md").read_text(encoding="utf-8") == model_card(run.path)


def test_mistakes_are_one_line(run: isfl.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unfinished = shutil.copytree(run.path, tmp_path / "unfinished")
    (unfinished / "model.safetensors").unlink()
    (tmp_path / "file").write_text("")
    cases = {
        (str(unfinished), str(tmp_path / "m.csv")): "unfinished: the run is not finished, there is nothing to export",
        (
            str(run.path),
            "model.onnx",
        ): "model.onnx: unknown format '.onnx'; choose one of .pt (weights",
        (str(tmp_path), "model.pt"): "not a run directory",
        (str(run.path), str(tmp_path / "file/card.md")): "cannot be written",
    }
    for (given, to), message in cases.items():
        assert exit_code("export", given, "--to", to) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and message in line


def test_without_pyarrow_parquet_is_refused_and_a_directory_lacks_it(
    run: isfl.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert exit_code("export", str(run.path), "--to", str(tmp_path / "m.parquet")) == 2
    assert capsys.readouterr().err == "error: Parquet needs pyarrow; pip install 'isfl[tables]'\n"
    with pytest.warns(UserWarning, match=r"metrics\.parquet is not written: Parquet needs pyarrow"):
        files = run.export(tmp_path / "all")
    assert [file.name for file in files] == [name for name in ALL if name != "metrics.parquet"]


def test_a_model_that_torch_cannot_export_shows_the_users_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = (
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, shape, classes):\n"
        "        super().__init__()\n        self.last = nn.Linear(784, classes)\n\n    def forward(self, x):\n"
        "        if x.sum() > 0:  # depends on the data\n            x = -x\n        return self.last(x.flatten(1))\n"
    )
    Path("stubborn.py").write_text(source, encoding="utf-8")
    run = isfl.run({**TINY, "model": {"name": "stubborn:Net"}}, ["training.rounds=1"], out="a", workers=1)
    with pytest.raises(UserCodeError, match=r"torch\.export of the model: it raised") as raised:
        run.export("model.pt2")
    assert "stubborn.py" in str(raised.value.traceback) + str(raised.value)
    assert [file.name for file in run.export("weights.pt")] == ["weights.pt"] and not Path("model.pt2").exists()


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: b"nothing"])
def test_a_damaged_model_is_one_line(run: isfl.Run, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    copy = Path(shutil.copytree(run.path, tmp_path / "copy"))
    file = copy / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(isfl.UserError, match=r"model\.safetensors: damaged; isfl resume \S+ writes it again"):
        isfl.Run(copy).model()
