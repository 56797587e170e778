"""The paper's figures from run directories: every line and bar equals the values in the runs."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from isfl.experiment.columns import band_of
from isfl.plotting import picture_of, styles_of
from isfl.report import figures, pictures, sweeps
from isfl.report.reading import FoundRun, find_runs
from isfl.report.split import convergence_and_split, federation
from tests.commands import isfl


def metrics(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def labelled(figure: Figure, panel: int) -> dict[str, np.ndarray]:
    """Label -> (points, 2) of the lines of a panel."""
    return {str(line.get_label()): np.array(line.get_xydata()) for line in figure.axes[panel].lines}


def test_every_figure_is_a_pdf_with_real_fonts_and_a_png_in_print_resolution(scheme_runs: Path, tmp_path: Path) -> None:
    result = isfl("figures", str(scheme_runs / "full"), str(scheme_runs / "half"), "-o", "drawn", cwd=tmp_path)
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


def test_the_same_runs_give_the_same_bytes(scheme_runs: Path, tmp_path: Path) -> None:
    runs, _ = find_runs([scheme_runs / "half"])
    for name in ("one", "two"):
        figures.write_figures(runs, tmp_path / name)
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_convergence_is_the_mean_over_seeds_with_their_range(scheme_runs: Path) -> None:
    runs, _ = find_runs([scheme_runs / "full"])
    figure = pictures.convergence(runs)
    for panel, (metric, factor) in enumerate((("accuracy_standard", 100), ("accuracy_global", 100), ("train_loss", 1))):
        lines = labelled(figure, panel)
        assert set(lines) == {"fedavg", "isfl"}
        seeds = [metrics(scheme_runs / f"full/isfl/seed-{seed}") for seed in (0, 1)]
        values = factor * np.array([[line[metric] for line in own] for own in seeds])
        np.testing.assert_allclose(lines["isfl"], np.column_stack([[1, 2, 3], values.mean(axis=0)]))
        corners = np.array(figure.axes[panel].collections[1].get_paths()[0].vertices)
        assert corners[:, 1].min() == pytest.approx(values.min()) and corners[:, 1].max() == pytest.approx(values.max())
    assert figure.legends[0].get_title().get_text() == "mean and range of 2 seeds"


def test_convergence_is_drawn_beside_the_split_of_its_run(scheme_runs: Path) -> None:
    runs, _ = find_runs([scheme_runs / "full"])
    groups = [replace(found, label=f"{group} · {found.label}") for group in ("a", "b") for found in runs]
    figure = convergence_and_split(groups)
    panels = [axis for axis in figure.axes if axis.get_xlabel()]  # the others are colour bars
    assert [axis.get_title() for axis in panels] == ["a, local data", "a", "a", "a", "b, local data", "b", "b", "b"]
    for first in (0, 4):
        np.testing.assert_array_equal(panels[first].images[0].get_array(), runs[0].counts)
        assert {tick.get_horizontalalignment() for tick in panels[first].get_xticklabels()} == {"center"}, (
            "a number below its column"
        )
        for axis, metric in zip(panels[first + 1 : first + 4], pictures.PANELS, strict=True):
            factor = 1 if metric == "train_loss" else 100
            seeds = [[line[metric] for line in metrics(scheme_runs / f"full/isfl/seed-{seed}")] for seed in (0, 1)]
            [line] = [line for line in axis.lines if line.get_label() == "isfl"]
            np.testing.assert_allclose(np.array(line.get_xydata())[:, 1], factor * np.mean(seeds, axis=0))
    private = convergence_and_split([replace(found, counts=None) for found in groups])
    assert [text.get_text() for text in private.axes[0].texts] == ["private"]


def test_the_cross_figure_has_top_1_and_top_5_of_cifar_100(scheme_runs: Path) -> None:
    [found], _ = find_runs([scheme_runs / "half"])
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


def test_lines_differ_without_colour(scheme_runs: Path) -> None:
    lines = pictures.convergence(find_runs([scheme_runs / "full"])[0]).axes[0].lines
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines}) == len(lines) == 2
    styles = styles_of(map(str, range(70)))
    assert len({(str(style["marker"]), str(style["linestyle"])) for style in styles.values()}) == 70


def test_rho_shows_what_is_used_the_rule_and_the_minimum(scheme_runs: Path) -> None:
    figure = pictures.rho(find_runs([scheme_runs / "half"])[0])
    lines, written = labelled(figure, 0), metrics(scheme_runs / "half")
    names = {"in use": "rho_used", "the paper's rule": "rho_paper", "theoretical minimum": "rho_minimum"}
    for name, key in names.items():
        np.testing.assert_allclose(lines[name][:, 1], [line[key] for line in written])
    assert figure.axes[0].get_yscale() == "log"


def test_probabilities_of_the_most_and_the_least_skewed_client(scheme_runs: Path) -> None:
    [found], _ = find_runs([scheme_runs / "half"])
    figure = pictures.probabilities([found])
    assert found.counts is not None
    mixes = found.counts / found.counts.sum(axis=1, keepdims=True)
    distance = np.abs(mixes - found.counts.sum(axis=0) / found.counts.sum()).sum(axis=1)
    for panel, client in enumerate((distance.argmax(), distance.argmin())):
        assert f"client {client} " in figure.axes[panel].get_title()
        q = np.array([line["probabilities"][str(client)] for line in found.probabilities])
        for i, name in enumerate(found.class_names):
            np.testing.assert_allclose(labelled(figure, panel)[name][:, 1], q[:, i])


def test_probabilities_that_never_move_are_not_drawn(scheme_runs: Path) -> None:
    runs, _ = find_runs([scheme_runs / "full/fedavg"])
    with pytest.raises(pictures.NotDrawnError, match="no run changes"):
        pictures.probabilities(runs)


def test_cost_is_cumulative_and_counts_both_kinds_of_gradients(scheme_runs: Path) -> None:
    runs, _ = find_runs([scheme_runs / "half"])
    figure = pictures.cost(runs)
    spent = [line["gradient_evaluations"] for line in metrics(scheme_runs / "half")]
    points = labelled(figure, 0)["isfl"]
    np.testing.assert_allclose(points[:, 0], np.cumsum([g["training"] + g["sampling"] for g in spent]))
    [bar] = figure.axes[1].patches
    share = sum(g["sampling"] for g in spent) / sum(g["training"] for g in spent)
    assert isinstance(bar, Rectangle)
    assert bar.get_width() == pytest.approx(100 * share)


def test_the_sampling_ratio_is_an_axis_where_runs_differ_in_it_alone(scheme_runs: Path) -> None:
    runs, _ = find_runs([scheme_runs / "full", scheme_runs / "half"])
    figure = sweeps.sampling_ratio(runs)
    ends = {
        0.5: metrics(scheme_runs / "half")[-1:],
        1.0: [metrics(scheme_runs / f"full/isfl/seed-{s}")[-1] for s in (0, 1)],
    }
    for panel, metric in enumerate(("accuracy_standard", "accuracy_global")):
        [line] = [line for line in figure.axes[panel].lines if line.get_marker() == "o"]
        expected = np.array([(ratio, 100 * np.mean([end[metric] for end in own])) for ratio, own in ends.items()])
        np.testing.assert_allclose(np.array(line.get_xydata()), expected)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["isfl"]  # FedAvg has one ratio only


def test_personalisation_shows_d_s_and_the_spread_of_clients_as_the_target_becomes_local(scheme_runs: Path) -> None:
    [found], _ = find_runs([scheme_runs / "half"])

    def pulled(weight: float, accuracies: list[float]) -> FoundRun:
        settings = {**json.loads(json.dumps(found.config)), "target": {"kind": "local", "weight": weight}}
        return replace(found, config=settings, lines=({**found.lines[-1], "client_accuracy": accuracies},))

    figure = sweeps.personalisation([pulled(0.0, [0.1, 0.5, 0.9]), pulled(1.0, [0.4, 0.6, 0.8])])
    expected = {"mean of clients": (50, 60), "lower quartile": (30, 50), "lowest": (10, 40)}
    for name, heights in expected.items():
        np.testing.assert_allclose(labelled(figure, 1)[f"isfl, {name}"], [(0, heights[0]), (1, heights[1])])
    [line] = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    np.testing.assert_allclose(np.array(line.get_ydata()), 100 * found.lines[-1]["accuracy_standard"])


def sized(run_: FoundRun, clients: int, public: int, floor: float = 0.05) -> FoundRun:
    """Return a run with other sizes in its configuration."""
    settings = json.loads(json.dumps(run_.config))
    settings["split"]["clients"], settings["data"]["public"] = clients, public
    settings["scheme"]["sampling"]["floor"] = floor
    return replace(run_, config=settings)


def test_sizes_sweep_one_setting_at_a_time(scheme_runs: Path) -> None:
    [found], _ = find_runs([scheme_runs / "half"])
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


def test_the_split_shows_every_client_and_class(scheme_runs: Path) -> None:
    runs, _ = find_runs([scheme_runs / "full/isfl/seed-1"])
    axis = federation(runs).axes[0]
    np.testing.assert_array_equal(axis.images[0].get_array(), runs[0].counts)
    assert axis.get_title() == "seed 1" and len(axis.texts) == 30


def test_a_seed_counts_only_in_the_rounds_it_has() -> None:
    band = band_of([np.array([1.0, np.nan, 3.0]), np.array([3.0, np.nan])])
    np.testing.assert_array_equal(band.rounds, [1, 3])
    np.testing.assert_array_equal(band.mean, [2, 3])
    np.testing.assert_array_equal(band.low, [1, 3])


def test_a_picture_has_the_requested_format_and_resolution(scheme_runs: Path) -> None:
    figure = federation(find_runs([scheme_runs / "half"])[0])
    with Image.open(BytesIO(picture_of(figure, "png", resolution=50))) as image:
        assert image.width == 175
