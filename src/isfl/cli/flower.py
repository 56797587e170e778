"""`isfl flower` (a federation of Flower nodes on this machine), and runs on Flower."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isfl.errors import UserError

if TYPE_CHECKING:
    from isfl.experiment.run import OnRound
    from isfl.problem.config import Config

app = typer.Typer(help="A Flower federation on this machine.", no_args_is_help=True)

Directory = Annotated[
    Path, typer.Option("--dir", help="directory of certificates, keys, logs and states", show_default=False)
]


@app.command()
def up(
    directory: Directory,
    clients: Annotated[int, typer.Option(min=1, help="number of SuperNodes, one per client")] = 3,
    secure: Annotated[bool, typer.Option("--secure", help="use TLS; accept only nodes with registered keys")] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="data of a client (FILE.npz, folder, module:function); give it once per client", show_default=False
        ),
    ] = None,
) -> None:
    """Start a SuperLink and SuperNodes on loopback; those already running are kept."""
    require_flower()
    _require_linux()
    from isfl.cli.terminal import say
    from isfl.engines.flower import deployment
    from isfl.engines.flower.keys import LOOPBACK

    made = deployment.up(directory, clients, secure, say, data or ())
    say(f"up: SuperLink on {LOOPBACK}:{made.port}, {clients} nodes{', secured' if secure else ''}")
    say(f"run:  isfl run CONFIG.toml --engine flower --connection {directory}")
    say(f"stop: isfl flower down --dir {directory}")


@app.command()
def down(directory: Directory) -> None:
    """Stop exactly the processes that `isfl flower up` started."""
    require_flower()
    _require_linux()
    from isfl.cli.terminal import say
    from isfl.engines.flower import deployment

    stopped = deployment.down(directory)
    say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def run_on_flower(config: Config, out: Path, connection: str | None, on_round: OnRound, workers: int) -> Path:
    """Run on Flower and return the run directory, which a deployment may place elsewhere than `out`."""
    require_flower()
    from isfl.cli.terminal import say

    if connection is not None:
        from isfl.experiment.submission import submit

        return submit(config, out, connection, on_round, say)
    from isfl.experiment.flower_runs import simulate

    simulate(config, out, on_round, say, workers)
    return out


def resume_on_flower(
    out: Path, where: Mapping[str, Any], connection: str | None, on_round: OnRound, workers: int
) -> None:
    """Resume a run that began on Flower; `where` is the engine as recorded in the run directory."""
    require_flower()
    from isfl.cli.terminal import say

    if where["kind"] == "deployment":
        from isfl.experiment.submission import submit_resume

        if not (connection := connection or where.get("connection")):
            raise UserError(f"{out}: a run on a Flower deployment; name it with --connection")
        submit_resume(out, connection, on_round, say)
    else:
        from isfl.experiment.flower_runs import resume_simulation

        resume_simulation(out, on_round, say, workers)


def require_flower() -> None:
    """Raise a `UserError` if Flower, an optional extra, is not installed."""
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise UserError("this needs Flower; pip install 'isfl[flower]'")


def _require_linux() -> None:
    """Raise a `UserError` if the system has no /proc, from which we know our processes again."""
    if sys.platform != "linux":
        raise UserError("isfl flower up and down need Linux; elsewhere start Flower yourself (docs/deployment.md)")
