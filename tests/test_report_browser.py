"""The report in a real browser: it draws its figures, sends no requests, and reacts to clicks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import CONTRAST, opened, report_at
from tests.directories import tiny_run, written_run

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of a real run."""
    directory = tmp_path_factory.mktemp("one")
    return report_at([tiny_run(directory / "run")], directory / "report.html")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("several")
    for scheme in ("isfl", "fedavg"):
        for seed in (0, 1):
            written_run(directory / scheme / f"seed-{seed}", 5, 6, 4 if scheme == "isfl" else 8, scheme, seed)
    (directory / "empty").mkdir()
    return report_at([directory / "isfl", directory / "fedavg", directory / "empty"], directory / "report.html")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("large")
    return report_at([written_run(directory / "run", 20, 100, 25)], directory / "report.html")


def picture(page: Any) -> str:
    return str(page.locator("#heat").evaluate("canvas => canvas.toDataURL()"))


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("what", ["one", "several", "large"])
def test_the_page_loads_without_errors_or_requests_and_fits_its_window(
    browser: Any, request: pytest.FixtureRequest, what: str, width: int, dark: bool
) -> None:
    address = request.getfixturevalue(what)
    with opened(browser, address, width, dark) as (page, seen):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#run figure").count() >= 8
        low = [found for found in page.evaluate(CONTRAST) if found[0] < 4.5]
        assert low == [], "text below the contrast WCAG AA asks for"
    assert seen.complaints == [] and seen.requests == [address]


def test_the_theme_button_turns_light_into_dark(browser: Any, one: str) -> None:
    with opened(browser, one) as (page, seen):
        before = page.evaluate("getComputedStyle(document.body).backgroundColor"), picture(page)
        page.click("#theme")
        after = page.evaluate("getComputedStyle(document.body).backgroundColor"), picture(page)
        assert before[0] != after[0] and before[1] != after[1]
        assert min(found[0] for found in page.evaluate(CONTRAST)) >= 4.5
    assert seen.complaints == []


def test_the_slider_changes_the_heat_map_and_the_water_picture(browser: Any, one: str) -> None:
    with opened(browser, one) as (page, seen):
        assert page.inner_text("#round-shown") == "3"
        last, words = picture(page), page.inner_text("#water .words")
        assert "Γ = " in words and "round 2" in words
        page.focus("#round")
        page.keyboard.press("Home")
        assert page.inner_text("#round-shown") == "1" and picture(page) != last
        assert "No Lipschitz values yet" in page.inner_text("#water .words")
        assert page.evaluate("document.activeElement.id") == "round", "the keyboard can go on"
        page.keyboard.press("End")
        assert page.inner_text("#round-shown") == "3" and picture(page) == last
    assert seen.complaints == []


def test_layers_and_clients_can_be_chosen(browser: Any, one: str) -> None:
    with opened(browser, one) as (page, seen):
        pictures = set()
        for layer in ("probability", "local", "target", "change"):
            page.select_option("#layer", layer)
            pictures.add(picture(page))
        assert len(pictures) == 4
        page.select_option("#client", "2")
        assert "How client 2 draws in round 3" in page.inner_text("#mixes")
        box = page.locator("#heat").bounding_box()
        page.locator("#heat").click(position={"x": box["width"] / 2, "y": 25})
        assert "How client 0 draws" in page.inner_text("#mixes")
        page.locator("#heat").hover(position={"x": box["width"] - 8, "y": box["height"] - 5})
        assert page.inner_text("#heat-readout").startswith("client 3, ")
    assert seen.complaints == []


def test_the_table_of_schemes_sorts_and_holds_the_right_numbers(browser: Any, several: str) -> None:
    with opened(browser, several) as (page, seen):
        schemes = "#several > figure tbody td:first-child"
        assert page.locator(schemes).all_inner_texts() == ["fedavg", "isfl"], "highest accuracy first"
        page.click("#several > figure th:has-text('D_S %') >> nth=0")
        assert page.locator(schemes).all_inner_texts() == ["isfl", "fedavg"]
        page.click("#several > figure th:has-text('scheme')")
        assert page.locator(schemes).all_inner_texts() == ["fedavg", "isfl"]
        page.fill("#target", "19")  # accuracies are 1 - 0.9^round: 10, 19, 27.1, ...
        page.press("#target", "Enter")
        rows = [row.split("\t") for row in page.locator("#several > figure tbody tr").all_inner_texts()]
        fedavg, isfl = (
            dict(zip(page.locator("#several > figure th").all_inner_texts(), row, strict=True)) for row in rows
        )
        assert [cells["rounds to 19 %"] for cells in (fedavg, isfl)] == ["2.0", "2.0"]
        # Both spend 1100 gradients per round; the shorter run has four rounds.
        equal = f"{100 * (1 - 0.9**4):.1f} ± 0.0"
        assert [cells["D_S % at equal cost"] for cells in (fedavg, isfl)] == [equal, equal]
        assert fedavg["seeds"] == "2" and fedavg["seconds"] == "88.0" and isfl["extra gradients %"] == "10.0"
        assert "empty: not a run directory" in page.inner_text("main")
        page.select_option("#which", index=3)
        assert "fedavg" in page.inner_text("#run")
    assert seen.complaints == []


def test_every_figure_gives_its_numbers_as_csv(browser: Any, several: str) -> None:
    with opened(browser, several, 390) as (page, seen):
        buttons = page.locator("button.csv")
        assert (
            buttons.count() == page.locator("figure").count() - page.locator("figure:has-text('Not measured')").count()
        )
        for i in range(buttons.count()):
            if not buttons.nth(i).is_visible():  # inside the settings, which are folded
                continue
            buttons.nth(i).click()
            text = page.input_value("#csv textarea")
            header, *rows = text.strip().split("\n")
            assert rows and all(row.count(",") >= header.count(",") for row in rows), text[:300]
            page.click("#csv [data-do=close]")
        page.locator("figure:has(h3:text-is('D_S over rounds')) button.csv").click()
        assert "isfl,1,10" in page.input_value("#csv textarea")
    assert seen.complaints == []


def test_both_sides_of_the_theory_and_every_client_are_shown(browser: Any, several: str) -> None:
    with opened(browser, several, 1280) as (page, seen):
        for title, expected in (
            ("Drift: measured against its bound", "measured,1,0.1"),
            ("Theorem 1: measured against its bound", "measured,1,0.05"),
            ("Clients' own accuracy", "median,1,"),
            ("Client by client", "client 4,"),
        ):
            page.locator(f'#run figure:has(h3:text-is("{title}")) button.csv').click()
            assert expected in page.input_value("#csv textarea").replace('"', ""), title
            page.click("#csv [data-do=close]")
    assert seen.complaints == []


def test_on_paper_there_are_no_controls(browser: Any, one: str, tmp_path: Path) -> None:
    with opened(browser, one, dark=True) as (page, seen):
        page.pdf(path=tmp_path / "report.pdf", format="A4")
        page.emulate_media(media="print")
        assert not page.locator("button:visible").count() and not page.locator(".controls:visible").count()
        # Pictures were drawn for a window, which is wider than paper, and are not redrawn for print.
        limit = "node => [getComputedStyle(node).maxWidth, getComputedStyle(node).minWidth]"
        assert page.locator("#heat").evaluate(limit)[0] == "100%"
        assert page.locator("#water svg.chart").evaluate(limit)[1] == "0px"
        assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    assert seen.complaints == []


def test_names_from_a_run_directory_are_text_and_nothing_else(browser: Any, tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 2, 3, 2)
    text = (path / "split.json").read_text()
    (path / "split.json").write_text(text.replace("class 0", "</script><img src=x onerror=alert(1)>"))
    with opened(browser, report_at([path], tmp_path / "report.html")) as (page, seen):
        assert page.locator("img").count() == 0 and "</script><img" in page.inner_text("#run")
    assert seen.complaints == []


def test_a_run_without_rounds_is_shown(browser: Any, tmp_path: Path) -> None:
    path = written_run(tmp_path / "run", 2, 3, 2)
    for name in ("metrics.jsonl", "probabilities.jsonl"):
        (path / name).write_text("")
    (path / "model.safetensors").unlink()
    with opened(browser, report_at([path], tmp_path / "report.html")) as (page, seen):
        assert "0 / 2" in page.inner_text("main") and "stopped after 0 of 2 rounds" in page.inner_text("header")
    assert seen.complaints == []
