"""isfl as a library leaves the caller's process unchanged."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import isfl
from isfl.engines.threads import one_thread
from isfl.errors import UserError
from isfl.experiment.run import run
from isfl.federation import Settings
from isfl.federation.normalization import estimate_statistics, frozen_statistics
from isfl.federation.preparation import prepared
from isfl.models import ModelSettings, build_model
from tests.resumable import config
from tests.worlds import engine_of, federate, settings_of

SOURCE = Path(isfl.__file__).parent


def result_of(code: str, cwd: Path) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_module_changes_the_process_that_imports_it(tmp_path: Path) -> None:
    """Flower is imported first: what its own import changes is not ours."""
    code = """
        import importlib, logging, os, pkgutil, signal, warnings
        import matplotlib, torch
        import flwr.app, flwr.clientapp, flwr.serverapp, flwr.simulation, flwr.superlink.main
        import flwr.superlink.cli.flower_superlink, torch.utils.tensorboard
        matplotlib.use("svg")
        torch.set_num_threads(2)

        def state():
            handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
            levels = [logging.getLogger(name).level for name in (None, "flwr", "ray")]
            return [
                dict(matplotlib.rcParams), dict(os.environ), torch.get_num_threads(), warnings.showwarning,
                list(warnings.filters), handlers, levels,
            ]

        before = state()
        import isfl
        names = [m.name for m in pkgutil.walk_packages(isfl.__path__, "isfl.") if not m.name.endswith("__main__")]
        for name in names:
            importlib.import_module(name)
        print(len(names) > 100, state() == before, matplotlib.get_backend())
    """
    assert result_of(code, tmp_path) == "True True svg"


def test_drawing_a_figure_keeps_the_callers_backend(tmp_path: Path) -> None:
    code = """
        import matplotlib
        matplotlib.use("svg")
        import numpy as np
        from pathlib import Path
        from isfl.diagnose.heatmap import draw_split
        from isfl.plotting import in_print
        before = dict(matplotlib.rcParams)
        with in_print():
            draw_split(np.array([[3, 1], [0, 4]]), ("cat", "dog"), Path("split.png"))
            draw_split(np.array([[3, 1], [0, 4]]), ("cat", "dog"), Path("split.pdf"))
        print(matplotlib.get_backend(), dict(matplotlib.rcParams) == before)
    """
    assert result_of(code, tmp_path) == "svg True"
    assert (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "split.pdf").read_bytes().startswith(b"%PDF")


def test_threads_are_restored_also_after_an_error() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyError, match="1"), one_thread():
            raise KeyError(torch.get_num_threads())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_federation_in_this_process_leaves_threads_and_warnings_alone(workers: int) -> None:
    before, shown = torch.get_num_threads(), warnings.showwarning
    torch.set_num_threads(2)
    try:
        settings = settings_of("fedavg", training={"rounds": 1})
        with engine_of(settings, workers=workers) as engine:
            federate(settings, engine)
        assert torch.get_num_threads() == 2 and warnings.showwarning is shown
    finally:
        torch.set_num_threads(before)


def test_a_run_leaves_the_callers_threads_and_model_unchanged(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(config(), tmp_path / "run")
        assert torch.get_num_threads() == 2
        with pytest.raises(UserError):
            run(config(), tmp_path / "run")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    model = build_model(ModelSettings(name="resnet8", width=0.25), (1, 28, 28), 10, seed=0)
    kinds = [type(layer) for layer in model.modules()]
    prepared(model, Settings.model_validate({"training": {"batchnorm": "group"}}))
    assert [type(layer) for layer in model.modules()] == kinds


PROCESS_WIDE = {
    "plain_warnings": {"cli/__init__.py", "engines/local/worker_pool.py"},
    "limit_heap": {"engines/local/executor.py"},
    "set_num_threads": {"engines/local/executor.py", "engines/threads.py"},
}


@pytest.mark.parametrize("name", PROCESS_WIDE)
def test_only_the_command_line_and_workers_change_their_process(name: str) -> None:
    found = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name
    }
    assert found == PROCESS_WIDE[name]


class Failing(nn.Module):
    """A model with a frozen and a free BatchNorm layer that can be made to raise."""

    def __init__(self) -> None:
        super().__init__()
        self.free, self.frozen, self.fails = nn.BatchNorm1d(3, momentum=0.3), nn.BatchNorm1d(3), False
        self.frozen.eval()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.frozen(self.free(x))
        if self.fails:
            raise RuntimeError("no")
        return y

    def modes(self) -> list[tuple[bool, float | None]]:
        return [(layer.training, layer.momentum) for layer in (self.free, self.frozen)]


@pytest.mark.parametrize("fails", [False, True])
def test_normalisation_layers_get_their_modes_back(fails: bool) -> None:
    model = Failing()
    before = model.modes()
    model.fails = fails
    for work in (_estimated, _frozen):
        try:
            work(model)
        except RuntimeError:
            assert fails
        assert model.modes() == before and model.training


def _estimated(model: nn.Module) -> None:
    estimate_statistics(model, torch.randn(4, 3))


def _frozen(model: nn.Module) -> None:
    with frozen_statistics(model, frozen=True):
        model(torch.randn(1, 3))
