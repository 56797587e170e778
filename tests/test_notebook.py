"""What a notebook shows of runs and comparisons, in a real kernel, and what happens when a cell is interrupted."""

from __future__ import annotations

import base64
import html.parser
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jupyter_client.manager import start_new_kernel
from matplotlib.figure import Figure

import isfl
from tests.directories import written_run
from tests.pages import ROOT
from tests.resumable import TINY, outcome
from tests.worlds import module_at

ROUNDS = 15


class Page(html.parser.HTMLParser):
    """The cells of a page's tables, and every address in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_data(self, data: str) -> None:
        if self.tags[-1] in ("td", "th"):
            self.cells.append(data)


def picture_in(page: Page) -> bytes:
    """Return the only thing that a page refers to: a PNG inside of it."""
    (address,) = page.addresses
    kind, _, content = address.partition(",")
    assert kind == "data:image/png;base64"
    return base64.b64decode(content)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> isfl.Run:
    return isfl.Run(written_run(tmp_path_factory.mktemp("runs") / "a<b>", clients=5, classes=4, rounds=6))


def test_a_run_is_a_small_table_and_a_picture_that_loads_nothing(run: isfl.Run) -> None:
    text = run._repr_html_()
    page = Page(text)
    assert "script" not in page.tags and "a&lt;b&gt;" in text and len(text) < 100_000
    assert picture_in(page).startswith(b"\x89PNG")
    shown = dict(zip(page.cells[:7], page.cells[7:], strict=True))
    assert (shown["rounds"], shown["extra %"], shown["seconds"]) == ("6 of 6", "10", "66.0")
    assert shown["D_S %"] == f"{100 * run.records[-1]['accuracy_standard']:.1f}"


def test_a_run_without_a_round_has_a_table_but_no_picture(tmp_path: Path) -> None:
    run = isfl.Run(written_run(tmp_path / "a", clients=2, classes=3, rounds=2))
    for name in ("metrics.jsonl", "probabilities.jsonl"):
        (run.path / name).write_text("")
    page = Page(run._repr_html_())
    assert page.addresses == [] and page.cells[7:9] == ["0 of 2", "-"]
    with pytest.raises(isfl.UserError, match="nothing to draw yet"):
        run.plot()


def test_a_plot_is_a_figure_of_accuracies_and_loss(run: isfl.Run) -> None:
    figure = run.plot()
    assert isinstance(figure, Figure)
    drawn = {axis.get_ylabel(): axis.lines[0].get_ydata() for axis in figure.axes}
    assert list(drawn) == ["accuracy on $D_S$ in %", "accuracy on $D_G$ in %", "training loss"]
    assert np.asarray(drawn["training loss"]) == pytest.approx([record["train_loss"] for record in run.records])


@pytest.fixture
def comparison(tmp_path: Path) -> isfl.Comparison:
    tiny = {"split": {"clients": 2, "shard_size": 20}, "data": {"public": 40}, "model": {"name": "mlp", "width": 0.1}}
    return isfl.compare(tiny, ["fedavg", "isfl"], [0], ["training.rounds=1"], out=tmp_path / "c", workers=1)


def test_a_comparison_is_its_table_and_a_picture(comparison: isfl.Comparison) -> None:
    page = Page(comparison._repr_html_())
    assert picture_in(page).startswith(b"\x89PNG")
    assert page.cells[0] == "scheme" and page.cells[6:8] == ["fedavg", f"{comparison.summary[0]['standard']:.1f}"]
    assert len(comparison.plot().axes[0].lines) == 2
    (comparison.path / "isfl/seed-0/model.safetensors").unlink()
    assert Page(comparison._repr_html_()).cells[2:] == ["fedavg · seed 0", "1 of 1", "isfl · seed 0", "1 of 1"]


# ---------------------------------------------------------------- in a kernel


class Kernel:
    """A real kernel with the code of this checkout."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager, self.client = manager, client

    def shown(self, code: str) -> dict[str, Any]:
        """Run a cell; return what it shows, by type."""
        results: list[dict[str, Any]] = []

        def take(message: dict[str, Any]) -> None:
            if message["msg_type"] == "execute_result":
                results.append(message["content"]["data"])

        reply = self.client.execute_interactive(code, timeout=120, output_hook=take)
        assert reply["content"]["status"] == "ok", reply["content"]
        return results[0] if results else {}

    def interrupted(self, code: str, file: Path) -> dict[str, Any]:
        """Run a cell and interrupt it once the file has a line; return how the cell ended."""
        # By default a kernel aborts whatever arrives shortly after a cell that raised; the next cell must run.
        cell = self.client.execute(code, stop_on_error=False)
        end = time.monotonic() + 120
        while time.monotonic() < end and not (file.exists() and file.read_bytes().count(b"\n")):
            time.sleep(0.02)
        self.manager.interrupt_kernel()
        while (reply := self.client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != cell:
            pass  # an answer to an earlier question
        content: dict[str, Any] = reply["content"]
        return content


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    manager, client = start_new_kernel(cwd=str(tmp_path))
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_after_an_interrupted_cell_the_next_resumes_the_run_to_the_last_bit(kernel: Kernel, tmp_path: Path) -> None:
    config = {**TINY, "training": {**TINY["training"], "rounds": ROUNDS}}
    cell = f"import isfl\nisfl.run({config!r}, out='a', workers=2)"
    assert kernel.interrupted(cell, tmp_path / "a/metrics.jsonl")["ename"] == "KeyboardInterrupt"
    assert 0 < len(isfl.Run(tmp_path / "a").records) < ROUNDS
    shown = kernel.shown("run = isfl.resume('a')\nrun")
    assert shown["text/html"].startswith("<div>") and f"{ROUNDS} of {ROUNDS}" in shown["text/plain"]
    assert outcome(isfl.run(config, out=tmp_path / "b", workers=1).path) == outcome(tmp_path / "a")
    assert base64.b64decode(kernel.shown("run.plot()")["image/png"]).startswith(b"\x89PNG")


# ---------------------------------------------------------------- the tour

TOUR = module_at(ROOT / "scripts/execute_tour.py")


def kinds_of_outputs(notebook: Any) -> list[list[str]]:
    """Return, for each cell with code, what it shows: `stdout`, or the types of its result."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [
        list(dict.fromkeys(out["name"] if "name" in out else "+".join(sorted(out["data"])) for out in cell["outputs"]))
        for cell in cells
    ]


def test_the_tour_is_ten_cells_with_small_outputs() -> None:
    text = TOUR.NOTEBOOK.read_text(encoding="utf-8")
    shown = kinds_of_outputs(json.loads(text))
    assert len(shown) == 10 and all(shown) and len(text) < 150_000
    assert not re.search(r"/(home|root|tmp)/", text), "paths of the machine that made it"


def test_the_tour_runs_in_a_real_kernel_and_shows_the_same_kinds_of_outputs(tmp_path: Path) -> None:
    notebook = TOUR.executed(tmp_path)
    assert kinds_of_outputs(notebook) == kinds_of_outputs(json.loads(TOUR.NOTEBOOK.read_text(encoding="utf-8")))
    assert isfl.Comparison(tmp_path / "runs/tour-comparison").finished
    assert (tmp_path / "runs/tour-export/MODEL_CARD.md").exists()
