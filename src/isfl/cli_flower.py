"""`isfl flower`, a federation of Flower nodes on this machine, and runs on Flower."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isfl.errors import UserError

if TYPE_CHECKING:
    from isfl.experiment.config import Config
    from isfl.experiment.run import OnRound

app = typer.Typer(help="A Flower federation on this machine.", no_args_is_help=True)

Directory = Annotated[
    Path, typer.Option("--dir", help="where certificates, keys, logs and states are", show_default=False)
]


@app.command()
def up(
    directory: Directory,
    clients: Annotated[int, typer.Option(min=1, help="SuperNodes, one a client")] = 3,
    secure: Annotated[bool, typer.Option("--secure", help="TLS, and only nodes with registered keys")] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="what a client trains on (FILE.npz, folder, module:function); once a client", show_default=False
        ),
    ] = None,
) -> None:
    """Start a SuperLink and SuperNodes on loopback; what is up already stays as it is."""
    require_flower()
    from isfl.flower import deployment
    from isfl.flower.keys import LOOPBACK
    from isfl.terminal import say

    made = deployment.up(directory, clients, secure, say, data or ())
    say(f"up: SuperLink on {LOOPBACK}:{made.port}, {clients} nodes{', secured' if secure else ''}")
    say(f"run:  isfl run CONFIG.toml --engine flower --connection {directory}")
    say(f"stop: isfl flower down --dir {directory}")


@app.command()
def down(directory: Directory) -> None:
    """Stop exactly the processes that `isfl flower up` started."""
    require_flower()
    from isfl.flower import deployment
    from isfl.terminal import say

    stopped = deployment.down(directory)
    say(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def run_on_flower(config: Config, out: Path, connection: str | None, on_round: OnRound, workers: int) -> Path:
    """`isfl run --engine flower`: the run directory, which a deployment may have put elsewhere."""
    require_flower()
    from isfl.terminal import say

    if connection is not None:
        from isfl.flower.submission import submit

        return submit(config, out, connection, on_round, say)
    from isfl.flower.simulation import simulate

    simulate(config, out, on_round, say, workers)
    return out


def resume_on_flower(
    out: Path, where: Mapping[str, Any], connection: str | None, on_round: OnRound, workers: int
) -> None:
    """`isfl resume` of a run that began on Flower; `where` is what it wrote down of that."""
    require_flower()
    from isfl.terminal import say

    if where["kind"] == "deployment":
        from isfl.flower.submission import submit_resume

        if not (connection := connection or where.get("connection")):
            raise UserError(f"{out}: a run on a Flower deployment; say which with --connection")
        submit_resume(out, connection, on_round, say)
    else:
        from isfl.flower.simulation import resume_simulation

        resume_simulation(out, on_round, say, workers)


def require_flower() -> None:
    """Flower is an extra: most users never leave their machine."""
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise UserError("this needs Flower; pip install 'isfl[flower]'")
