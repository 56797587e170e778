"""The summary, the differences, the clients and the confusion matrix of the report, as a reader sees them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from isfl import layout
from isfl.report.content import content_of
from isfl.report.reading import find_runs
from tests.browser import CONTRAST, opened, report_at
from tests.directories import tiny_run, written_run

MINUS = "\N{MINUS SIGN}"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The report of a real run, and its content."""
    directory = tmp_path_factory.mktemp("one")
    path = tiny_run(directory / "run")
    (shown,) = content_of(find_runs([path])[0], [])["runs"]
    return report_at([path], directory / "report.html"), shown


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three schemes; ISFL ends 1, 2 and 3 points above FedAvg on its three seeds, Uniform-IS has one seed."""
    directory = tmp_path_factory.mktemp("several")
    ends: dict[str, list[float]] = {"fedavg": [70, 71, 72], "isfl": [71, 73, 75], "uniform-is": [69.5]}
    for scheme, values in ends.items():
        for seed, value in enumerate(values):
            path = written_run(directory / scheme / f"seed-{seed}", 5, 6, 3, scheme, seed)
            lines = [json.loads(line) for line in (path / layout.METRICS).read_text().splitlines()]
            lines[-1]["accuracy_standard"] = value / 100
            (path / layout.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


@pytest.fixture(scope="module")
def page_of_several(several: Path) -> str:
    return report_at([several], several / "report.html")


def picture(page: Any, canvas: str = "#confusion") -> str:
    return str(page.locator(canvas).evaluate("canvas => canvas.toDataURL()"))


def csv_of(page: Any, title: str) -> list[str]:
    page.locator(f'figure:has(h3:text-is("{title}")) button.csv').click()
    text = str(page.input_value("#csv textarea"))
    page.click("#csv [data-do=close]")
    return text.strip().split("\n")


def test_the_page_begins_with_its_summary(browser: Any, page_of_several: str, one: Any) -> None:
    with opened(browser, page_of_several) as (page, seen):
        first, second, *_ = page.locator("#summary li").all_inner_texts()
        assert first.startswith("isfl has the highest accuracy on the balanced test set (D_S): 73.0 %")
        assert second.startswith(
            f"fedavg is 2.0 points behind isfl on D_S, on 3 of 3 seeds (95 % interval {MINUS}0.5 to 4.5"
        )
        assert page.locator("#summary").bounding_box()["y"] < page.locator("#several").bounding_box()["y"]
    assert seen.complaints == []
    address, shown = one
    with opened(browser, address) as (page, seen):
        lines = page.locator("#run-summary li").all_inner_texts()
        assert lines == shown["summary"] and lines[0].startswith("After 3 of 3 rounds")
        assert page.locator("#summary").count() == 0
    assert seen.complaints == []


def test_differences_are_drawn_with_their_seeds_and_intervals(browser: Any, page_of_several: str) -> None:
    with opened(browser, page_of_several) as (page, seen):
        rows = "#differences tbody tr"
        assert page.input_value("#reference") == "fedavg"
        assert [row.split("\t") for row in page.locator(rows).all_inner_texts()] == [
            ["isfl", "+2.0", f"{MINUS}0.5 to +4.5", "3 of 3"],
            ["uniform-is", f"{MINUS}0.5", "one seed", "0 of 1"],
        ]
        assert page.locator("#differences .seed").count() == 4 and page.locator("#differences .mean").count() == 2
        assert page.locator("#differences .interval").count() == 1, "one seed has no interval"
        zero, bar = page.locator("#differences .zero"), page.locator("#differences .interval")
        left = bar.bounding_box()["x"]
        assert left < zero.bounding_box()["x"] < left + bar.bounding_box()["width"], "the interval includes 0"
        page.select_option("#reference", "isfl")
        assert page.locator(rows).nth(0).inner_text().startswith(f"uniform-is\t{MINUS}1.5")
        page.select_option("#compared", "accuracy_global")
        assert page.input_value("#reference") == "isfl"
        assert page.locator(rows).nth(0).inner_text() == "fedavg\t0.0\t0.0 to 0.0\t0 of 3"
        assert csv_of(page, "Differences, paired by seed")[1].startswith("fedavg,isfl,0,0,0,0,3,")
    assert seen.complaints == []


def test_one_seed_each_is_said_to_prove_nothing(browser: Any, several: Path) -> None:
    paths = [several / scheme / "seed-0" for scheme in ("fedavg", "isfl")]
    with opened(browser, report_at(paths, several / "single.html")) as (page, seen):
        text = page.inner_text('figure:has(h3:text-is("Differences, paired by seed"))')
        assert "There is one seed, so there is no interval" in text and "+1.0" in text
        assert "with one seed, which cannot tell a difference from chance" in page.inner_text("#summary")
        assert page.locator("#differences .interval").count() == 0
    assert seen.complaints == []


@pytest.mark.parametrize("clients", [20, 100])
def test_clients_are_dots_that_tell_their_label_mix(browser: Any, tmp_path: Path, clients: int) -> None:
    path = written_run(tmp_path / "run", clients, 6, 2)
    counts = json.loads((path / layout.SPLIT).read_text())["client_counts"]
    with opened(browser, report_at([path], tmp_path / "report.html")) as (page, seen):
        dots = page.locator(".swarm circle")
        assert dots.count() == clients
        assert "client 0, round 2: 9.0 %, lowest of" in page.inner_text("#client-told")
        boxes = [(box["x"], box["y"], box["width"]) for box in (dot.bounding_box() for dot in dots.all())]
        apart = [(a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 for i, a in enumerate(boxes) for b in boxes[:i]]
        assert min(apart) >= 0.9 * boxes[0][2] ** 2, "no two dots hide each other"
        page.locator(".swarm circle[data-client='7']").hover()
        told = page.inner_text("#client-told")
        largest = max(range(6), key=lambda i: counts[7][i])
        share = f"class {largest} {100 * counts[7][largest] / sum(counts[7]):.0f}"
        assert told.startswith("client 7, round 2: 16.0 %, number 8 of") and share in told.replace("\xa0", " ")
        assert page.locator(".swarm circle.chosen").get_attribute("data-client") == "7"
        assert page.locator("#client-mix rect").count() == 6
        page.locator(".swarm").focus()
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#client-told").startswith("client 8,")
        page.select_option("#measure", "client_drift")
        assert f"client {clients - 1}, round 2: " in page.inner_text("#client-told"), "begins with the furthest"
        assert "highest of" in page.inner_text("#client-told")
        assert csv_of(page, "Client by client")[0] == "name,value," + ",".join(f"class {i}" for i in range(6))
    assert seen.complaints == []


def test_private_label_mixes_are_not_shown(browser: Any, tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 4, 6, 2)
    described = json.loads((path / layout.SPLIT).read_text())
    (path / layout.SPLIT).write_text(json.dumps(described | {"client_counts": None}))
    with opened(browser, report_at([path], tmp_path / "report.html")) as (page, seen):
        assert "Its label mix is private" in page.inner_text("#client-told")
        assert page.locator("#client-mix rect").count() == 0
    assert seen.complaints == []


def test_the_confusion_matrix_has_a_slider_over_rounds(browser: Any, one: Any) -> None:
    address, shown = one
    rounds, names = shown["confusion"]["rounds"], shown["classes"]
    with opened(browser, address) as (page, seen):
        last = picture(page)
        assert page.inner_text("#confusion-shown") == "3"
        label, taken, share = rounds[-1]["most"][0]
        assert page.inner_text("#confusion-words").startswith(
            f"Most often confused: {names[label]} taken for {names[taken]} ({100 * share:.0f} %)"
        )
        box = page.locator("#confusion").bounding_box()
        page.locator("#confusion").hover(position={"x": box["width"] - 8, "y": box["height"] - 8})
        counts = rounds[-1]["counts"][9]
        assert page.inner_text("#confusion-readout").startswith(
            f"{names[9]} taken for {names[9]}: {counts[9]} of {sum(counts)} samples"
        )
        page.focus("#confusion-round")
        page.keyboard.press("Home")
        assert page.inner_text("#confusion-shown") == "1" and picture(page) != last
        assert page.evaluate("document.activeElement.id") == "confusion-round", "the keyboard can go on"
        header, *rows = csv_of(page, "Confusion matrix")
        assert header.startswith("round,label,") and [row.split(",")[0] for row in rows] == ["1"] * 10
        assert [int(number) for number in rows[0].split(",")[2:]] == rounds[0]["counts"][0]
        page.click("#theme")
        assert page.inner_text("#confusion-shown") == "1", "the theme keeps the round"
    assert seen.complaints == []


def test_how_far_clients_moved_names_the_furthest(browser: Any, one: Any) -> None:
    address, shown = one
    with opened(browser, address) as (page, seen):
        for title, key in (
            ("How far clients' models moved", "client_update_norm"),
            ("How far clients drifted apart", "client_drift"),
        ):
            cells = [row.split(",") for row in csv_of(page, title)[1:]]
            rows = {name: float(value) for name, at, value in cells if at == "3"}
            values = [value for _, value in shown["clients"][key]["last"]]
            assert rows["highest"] == pytest.approx(max(values)) and rows["lowest"] == pytest.approx(min(values))
            chart = page.locator(f'figure:has(h3:text-is("{title}")) svg.chart')
            chart.hover(position={"x": chart.bounding_box()["width"] - 14, "y": 40})
            told = page.inner_text(f'figure:has(h3:text-is("{title}")) .readout')
            furthest = shown["clients"][key]["ends"]["highest"][-1]
            assert re.match(rf"round 3: highest [\d.]+ \(client {furthest}\) · median", told), told
    assert seen.complaints == []


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
@pytest.mark.parametrize(("clients", "classes"), [(20, 20), (100, 10), (1, 3)])
def test_the_figures_fit_their_window_and_can_be_read(
    browser: Any, tmp_path: Path, clients: int, classes: int, width: int, dark: bool
) -> None:
    address = report_at([written_run(tmp_path / "run", clients, classes, 3)], tmp_path / "report.html")
    with opened(browser, address, width, dark) as (page, seen):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [found for found in page.evaluate(CONTRAST) if found[0] < 4.5] == []
        for figure in page.locator("figure:has(.swarm), figure:has(#confusion)").all():
            frame = figure.bounding_box()
            for part in figure.locator("svg.swarm, canvas, #client-mix svg").all():
                box = part.bounding_box()
                assert box["x"] >= frame["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
    assert seen.complaints == []


def test_an_old_run_has_no_empty_panels(browser: Any, tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 3, 4, 2)
    lines = [json.loads(line) for line in (path / layout.METRICS).read_text().splitlines()]
    for line in lines:
        for key in ("confusion", "client_update_norm", "client_drift"):
            del line[key]
    (path / layout.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with opened(browser, report_at([path], tmp_path / "report.html")) as (page, seen):
        titles = page.locator("figure h3").all_inner_texts()
        assert "Client by client" in titles and "Confusion matrix" not in titles
        assert not [title for title in titles if title.startswith("How far clients")]
        assert page.locator("#measure option").count() == 1
    assert seen.complaints == []
