"""The paper's figures from run directories: what is drawn is what the runs say, whatever state they are in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from isfl.errors import UserError
from isfl.experiment.columns import band_of
from isfl.experiment.run import run
from isfl.plotting import styles_of
from isfl.problem.config import config_from
from isfl.report import figures, pictures, sweeps
from isfl.report.reading import FoundRun, find_runs, told_apart
from isfl.report.split import convergence_and_split, federation

ROUNDS = 3


def config(scheme: str, seed: int, **training: Any) -> dict[str, Any]:
    return {
        "scheme": scheme,
        "seed": seed,
        "data": {"public": 40},
        "split": {"kind": "mixed", "clients": 3, "shard_size": 20, "nr": 0.8},
        "model": {"name": "mlp", "width": 0.25},
        "training": {"rounds": ROUNDS, "local_epochs": 1, "batch_size": 32, **training},
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedAvg and ISFL on two seeds, and ISFL once more with half of the samples."""
    out = tmp_path_factory.mktemp("runs")
    for scheme in ("fedavg", "isfl"):
        for seed in (0, 1):
            run(config_from(config(scheme, seed), "test"), out / "full" / scheme / f"seed-{seed}")
    run(config_from(config("isfl", 0, sampling_ratio=0.5), "test"), out / "half")
    return out


@pytest.fixture
def copied(made: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(made / "full", tmp_path / "full"))


def metrics(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def labelled(figure: Figure, panel: int) -> dict[str, np.ndarray]:
    """Label -> (points, 2) of the lines of a panel."""
    return {str(line.get_label()): np.array(line.get_xydata()) for line in figure.axes[panel].lines}


def isfl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isfl.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ, timeout=120)


def test_every_figure_is_a_pdf_with_real_fonts_and_a_png_in_print_resolution(made: Path, tmp_path: Path) -> None:
    result = isfl("figures", str(made / "full"), str(made / "half"), "-o", "drawn", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "not drawn: sizes (no finished runs differ in clients" in result.stdout
    names = {"split", "convergence", "rho", "q", "cost", "sampling-ratio"}
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {f"{n}.{k}" for n in names for k in ("pdf", "png")}
    for name in names:
        pdf = (tmp_path / f"drawn/{name}.pdf").read_bytes()
        assert pdf.startswith(b"%PDF-") and pdf.rstrip().endswith(b"%%EOF")
        assert b"/FontFile2" in pdf and b"/Type3" not in pdf
        with Image.open(tmp_path / f"drawn/{name}.png") as image:
            image.load()
            assert round(image.info["dpi"][0]) == 300
            assert image.width in (round(300 * 3.5), round(300 * 7.16))


def test_the_same_runs_give_the_same_bytes(made: Path, tmp_path: Path) -> None:
    runs, _ = find_runs([made / "half"])
    for name in ("one", "two"):
        figures.write_figures(runs, tmp_path / name)
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_convergence_is_the_mean_over_seeds_with_their_range(made: Path) -> None:
    runs, _ = find_runs([made / "full"])
    figure = pictures.convergence(runs)
    for panel, (metric, factor) in enumerate((("accuracy_standard", 100), ("accuracy_global", 100), ("train_loss", 1))):
        lines = labelled(figure, panel)
        assert set(lines) == {"fedavg", "isfl"}
        seeds = [metrics(made / f"full/isfl/seed-{seed}") for seed in (0, 1)]
        values = factor * np.array([[line[metric] for line in own] for own in seeds])
        np.testing.assert_allclose(lines["isfl"], np.column_stack([np.arange(1, ROUNDS + 1), values.mean(axis=0)]))
        corners = np.array(figure.axes[panel].collections[1].get_paths()[0].vertices)
        assert corners[:, 1].min() == pytest.approx(values.min()) and corners[:, 1].max() == pytest.approx(values.max())
    assert figure.legends[0].get_title().get_text() == "mean and range of 2 seeds"


def test_convergence_stands_beside_the_split_it_was_made_with(made: Path) -> None:
    from dataclasses import replace

    runs, _ = find_runs([made / "full"])
    groups = [replace(found, label=f"{group} · {found.label}") for group in ("a", "b") for found in runs]
    figure = convergence_and_split(groups)
    panels = [axis for axis in figure.axes if axis.get_xlabel()]  # the others are colour bars
    assert [axis.get_title() for axis in panels] == ["a, local data", "a", "a", "a", "b, local data", "b", "b", "b"]
    for first in (0, 4):
        np.testing.assert_array_equal(panels[first].images[0].get_array(), runs[0].counts)
        for axis, metric in zip(panels[first + 1 : first + 4], pictures.PANELS, strict=True):
            factor = 1 if metric == "train_loss" else 100
            seeds = [[line[metric] for line in metrics(made / f"full/isfl/seed-{seed}")] for seed in (0, 1)]
            [line] = [line for line in axis.lines if line.get_label() == "isfl"]
            np.testing.assert_allclose(np.array(line.get_xydata())[:, 1], factor * np.mean(seeds, axis=0))
    private = convergence_and_split([replace(found, counts=None) for found in groups])
    assert [text.get_text() for text in private.axes[0].texts] == ["private"]


def test_the_cross_figure_has_top_1_and_top_5_of_cifar_100(made: Path) -> None:
    from dataclasses import replace

    [found], _ = find_runs([made / "half"])
    lines = tuple({**line, "accuracy_standard_top5": 0.9 - 0.1 * i} for i, line in enumerate(found.lines))
    ten, hundred = (replace(found, label=f"{group} · isfl") for group in ("cifar10", "cifar100"))
    figure = pictures.cross([ten, replace(hundred, lines=lines)])
    top1 = [100 * line["accuracy_standard"] for line in found.lines]
    for panel, expected in enumerate((top1, top1, [90, 80, 70])):
        np.testing.assert_allclose(labelled(figure, panel)["isfl"][:, 1], expected)
    assert [axis.get_title() for axis in figure.axes] == ["CIFAR-10", "CIFAR-100", "CIFAR-100"]
    assert "top-5" in figure.axes[2].get_ylabel()
    alone = pictures.cross([ten])
    assert [len(axis.lines) for axis in alone.axes] == [1, 0, 0] and alone.axes[1].texts[0].get_text() == "not measured"
    with pytest.raises(pictures.NotDrawnError, match="no run has a round on CIFAR-10"):
        pictures.cross([found])


def test_lines_are_told_apart_without_colour(made: Path) -> None:
    lines = pictures.convergence(find_runs([made / "full"])[0]).axes[0].lines
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == len(lines) == 2
    styles = styles_of(map(str, range(70)))
    assert len({(str(style["marker"]), str(style["linestyle"])) for style in styles.values()}) == 70


def test_rho_shows_what_is_used_the_rule_and_the_minimum(made: Path) -> None:
    figure = pictures.rho(find_runs([made / "half"])[0])
    lines, written = labelled(figure, 0), metrics(made / "half")
    names = {"in use": "rho_used", "the paper's rule": "rho_paper", "theoretical minimum": "rho_minimum"}
    for name, key in names.items():
        np.testing.assert_allclose(lines[name][:, 1], [line[key] for line in written])
    assert figure.axes[0].get_yscale() == "log"


def test_probabilities_of_the_most_and_the_least_skewed_client(made: Path) -> None:
    [found], _ = find_runs([made / "half"])
    figure = pictures.probabilities([found])
    assert found.counts is not None
    mixes = found.counts / found.counts.sum(axis=1, keepdims=True)
    distance = np.abs(mixes - found.counts.sum(axis=0) / found.counts.sum()).sum(axis=1)
    for panel, client in enumerate((distance.argmax(), distance.argmin())):
        assert f"client {client} " in figure.axes[panel].get_title()
        q = np.array([line["probabilities"][str(client)] for line in found.probabilities])
        for i, name in enumerate(found.class_names):
            np.testing.assert_allclose(labelled(figure, panel)[name][:, 1], q[:, i])


def test_probabilities_that_never_move_are_not_drawn(made: Path) -> None:
    runs, _ = find_runs([made / "full/fedavg"])
    with pytest.raises(pictures.NotDrawnError, match="no run changes"):
        pictures.probabilities(runs)


def test_cost_is_cumulative_and_counts_both_kinds_of_gradients(made: Path) -> None:
    runs, _ = find_runs([made / "half"])
    figure = pictures.cost(runs)
    spent = [line["gradient_evaluations"] for line in metrics(made / "half")]
    points = labelled(figure, 0)["isfl"]
    np.testing.assert_allclose(points[:, 0], np.cumsum([g["training"] + g["sampling"] for g in spent]))
    [bar] = figure.axes[1].patches
    share = sum(g["sampling"] for g in spent) / sum(g["training"] for g in spent)
    assert isinstance(bar, Rectangle)
    assert bar.get_width() == pytest.approx(100 * share)


def test_the_sampling_ratio_is_an_axis_where_runs_differ_in_it_alone(made: Path) -> None:
    runs, _ = find_runs([made / "full", made / "half"])
    figure = sweeps.sampling_ratio(runs)
    ends = {0.5: metrics(made / "half")[-1:], 1.0: [metrics(made / f"full/isfl/seed-{s}")[-1] for s in (0, 1)]}
    for panel, metric in enumerate(("accuracy_standard", "accuracy_global")):
        [line] = [line for line in figure.axes[panel].lines if line.get_marker() == "o"]
        expected = np.array([(ratio, 100 * np.mean([end[metric] for end in own])) for ratio, own in ends.items()])
        np.testing.assert_allclose(np.array(line.get_xydata()), expected)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["isfl"]  # FedAvg has one ratio only


def sized(run_: FoundRun, clients: int, public: int, floor: float = 0.05) -> FoundRun:
    """A run of another size, on paper."""
    from dataclasses import replace

    settings = json.loads(json.dumps(run_.config))
    settings["split"]["clients"], settings["data"]["public"] = clients, public
    settings["scheme"]["sampling"]["floor"] = floor
    return replace(run_, config=settings)


def test_sizes_sweep_one_setting_at_a_time(made: Path) -> None:
    [found], _ = find_runs([made / "half"])
    shapes = [(3, 40), (6, 40), (9, 40), (3, 80)]
    runs = [sized(found, *shape) for shape in shapes]
    assert set(sweeps.sweeps_of(runs, sweeps.CLIENTS)["isfl"]) == {3, 6, 9}  # (3, 80) differs in another
    assert set(sweeps.sweeps_of(runs, sweeps.PUBLIC)["isfl"]) == {40, 80}
    assert sweeps.sweeps_of(runs, sweeps.SAMPLES) == {}
    assert len(sweeps.sizes(runs).axes) == 4  # two settings, accuracy and extra gradients
    other = [sized(found, *shape, floor=0.01) for shape in shapes]
    assert set(sweeps.sweeps_of([*runs, *other], sweeps.PUBLIC)) == {
        "isfl (scheme.sampling.floor=0.05)",
        "isfl (scheme.sampling.floor=0.01)",
    }


def test_the_split_shows_every_client_and_class(made: Path) -> None:
    runs, _ = find_runs([made / "full/isfl/seed-1"])
    axis = federation(runs).axes[0]
    np.testing.assert_array_equal(axis.images[0].get_array(), runs[0].counts)
    assert axis.get_title() == "seed 1" and len(axis.texts) == 30


def test_a_seed_that_is_not_as_far_counts_in_the_rounds_it_has() -> None:
    band = band_of([np.array([1.0, np.nan, 3.0]), np.array([3.0, np.nan])])
    np.testing.assert_array_equal(band.rounds, [1, 3])
    np.testing.assert_array_equal(band.mean, [2, 3])
    np.testing.assert_array_equal(band.low, [1, 3])


def test_unfinished_and_damaged_runs_show_what_they_have(copied: Path, tmp_path: Path) -> None:
    cut, torn, lost, words = (copied / f"{s}/seed-{n}" for s in ("fedavg", "isfl") for n in (0, 1))
    first = (cut / "metrics.jsonl").read_text().splitlines(keepends=True)[0]
    (cut / "metrics.jsonl").write_text(first)
    (cut / "model.safetensors").unlink()
    (torn / "metrics.jsonl").write_text(first + '{"round": 2, "accur')
    (torn / "probabilities.jsonl").write_bytes(b"\xff\xfe\x00")
    (lost / "split.json").write_text('{"client_counts": [[1, "x"]], "class_names": 5}')
    (lost / "probabilities.jsonl").write_text('{"round": 1, "probabilities": {"0": [0.5, 0.5], "1": "all"}}\n')
    (words / "metrics.jsonl").write_text('{"round": 1, "accuracy_standard": "good", "gradient_evaluations": 3}\n')
    result = isfl("figures", "full", "-o", "drawn", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "note: full/fedavg/seed-0: unfinished: 1 of 3 rounds are done" in result.stdout
    assert "note: full/isfl/seed-0: split.json: client_counts is not a table of numbers" in result.stdout
    assert (tmp_path / "drawn/convergence.pdf").exists() and (tmp_path / "drawn/split.pdf").exists()
    assert not result.stderr


def test_unfinished_runs_are_no_point_of_a_sweep(made: Path) -> None:
    from dataclasses import replace

    runs, _ = find_runs([made / "full/isfl", made / "half"])
    runs = [replace(found, finished=found.path != made / "half") for found in runs]
    with pytest.raises(pictures.NotDrawnError, match="no finished runs differ"):
        sweeps.sampling_ratio(runs)


@pytest.mark.parametrize("content", ["{}", "[1, 2]", '{"scheme": "isfl", "training": 7, "seed": []}', "no JSON"])
def test_foreign_directories_are_told_in_a_line(content: str, made: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/config.json").write_text(content)
    (tmp_path / "empty").mkdir()
    alone = isfl("figures", "foreign", "empty", cwd=tmp_path)
    assert alone.returncode == 2 and alone.stderr.startswith("error: ") and alone.stderr.count("\n") == 1
    assert not (tmp_path / "figures").exists()
    runs, _ = find_runs([tmp_path / "foreign", tmp_path / "empty", made / "half"])
    assert made / "half" in [found.path for found in runs]


@pytest.mark.parametrize("given", ["missing", "file"])
def test_what_is_no_directory_is_a_mistake_in_one_line(given: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    result = isfl("figures", given, cwd=tmp_path)
    assert result.returncode == 2 and result.stderr == f"error: {given}: no such directory\n"


def test_figures_that_cannot_be_written(made: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    runs, _ = find_runs([made / "half"])
    with pytest.raises(UserError, match="taken: figures cannot be written there"):
        figures.write_figures(runs, tmp_path / "taken")


def test_names_are_never_read_as_formulas(made: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    [found], _ = find_runs([made / "half"])
    odd = replace(found, label=r"$\frac$", class_names=tuple(f"${i}$\\oops" for i in range(10)))
    assert "q" in figures.write_figures([odd, replace(odd, label="$2 $3")], tmp_path)[0]


def test_a_run_that_is_given_twice_is_one_seed(made: Path) -> None:
    runs, _ = find_runs([made / "full", made / "full/isfl", made / "full/isfl/seed-0"])
    assert len(runs) == 4


def test_more_than_fits_on_a_page_is_refused_not_cut(made: Path) -> None:
    from dataclasses import replace

    [found], _ = find_runs([made / "half"])
    crowd = [replace(found, label=f"group {i} · isfl") for i in range(pictures.MOST_PANELS + 1)]
    for draw in (
        pictures.convergence,
        convergence_and_split,
        pictures.rho,
        pictures.probabilities,
        pictures.cost,
        federation,
    ):
        with pytest.raises(pictures.NotDrawnError, match="too many"):
            draw(crowd)


def test_settings_nobody_knows_do_not_tell_others_apart() -> None:
    settings: Sequence[dict[str, Any]] = [{"a": 1}, {}, {"a": 1}]
    assert told_apart(["x", "x", "x"], settings) == ["x", "x", "x"]
    assert told_apart(["x", "x"], [{"a": 1}, {"a": 2}]) == ["x (a=1)", "x (a=2)"]


def test_a_picture_is_bytes_of_the_kind_asked_for(made: Path) -> None:
    from isfl.plotting import picture_of

    figure = federation(find_runs([made / "half"])[0])
    with Image.open(BytesIO(picture_of(figure, "png", resolution=50))) as image:
        assert image.width == 175
