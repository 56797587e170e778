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

app = typer.Typer(
    help="Flower federations: on this machine (up, down) or on several (superlink, node, sign, account, login).",
    no_args_is_help=True,
)

Directory = Annotated[
    Path, typer.Option("--dir", help="directory of certificates, keys, logs and states", show_default=False)
]


@app.command()
def up(
    directory: Directory,
    clients: Annotated[int, typer.Option(min=1, help="number of SuperNodes, one per client")] = 3,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="use TLS; accept only known nodes, accounts with a token, and signed apps"),
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="data of a client (FILE.npz, folder, module:function); give it once per client", show_default=False
        ),
    ] = None,
    allow_code: Annotated[
        list[str] | None,
        typer.Option(
            help="module:name of code that CONFIG may name, with --secure or --data; repeatable", show_default=False
        ),
    ] = None,
) -> None:
    """Start a SuperLink and SuperNodes on loopback; those already running are kept."""
    require_flower()
    _require_linux()
    from isfl.cli.terminal import say
    from isfl.engines.flower import deployment
    from isfl.engines.flower.keys import LOOPBACK

    made = deployment.up(directory, clients, secure, say, data or (), allow_code or ())
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


@app.command()
def superlink(
    directory: Annotated[
        Path, typer.Option("--dir", help="ca.crt, server.crt, server.key, apps.json, accounts.json", show_default=False)
    ],
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on")] = 8000,
) -> None:
    """Serve a SuperLink that accepts only known nodes, accounts with a token, and signed apps."""
    require_flower()
    _require_linux()
    from isfl.engines.flower.superlink import serve_superlink

    serve_superlink(directory.absolute(), host, port)


@app.command()
def node(
    directory: Annotated[Path, typer.Option("--dir", help="ca.crt, key, trusted.yaml", show_default=False)],
    superlink: Annotated[str, typer.Option(help="HOST:PORT of the SuperLink", show_default=False)],
    node_config: Annotated[str, typer.Option(help="such as 'partition-id=0 data=\"FILE.npz\"'", show_default=False)],
) -> None:
    """Serve a SuperNode that runs only apps signed by a key in trusted.yaml."""
    require_flower()
    _require_linux()
    from isfl.engines.flower.supernode import security_in, serve_supernode

    serve_supernode(superlink, node_config, security_in(directory))


@app.command()
def sign(directory: Annotated[Path, typer.Option("--dir", help="directory of the key", show_default=False)]) -> None:
    """Sign the app of this version: apps.json is for the SuperLink, trusted.yaml for the nodes."""
    require_flower()
    from isfl.cli.terminal import say
    from isfl.engines.flower import apps

    directory.mkdir(parents=True, exist_ok=True)
    say(f"signed: SHA-256 {apps.sign(directory)}")
    say(f"copy {directory / apps.SIGNATURES} to the SuperLink, {directory / apps.TRUSTED} to every node")
    say(f"keep {directory / apps.SIGNING_KEY} secret, best on neither")


@app.command()
def account(
    name: Annotated[str, typer.Argument(help="name of the account")],
    directory: Annotated[Path, typer.Option("--dir", help="directory of the SuperLink", show_default=False)],
    remove: Annotated[bool, typer.Option("--remove", help="remove the account")] = False,
) -> None:
    """Give a person a token to start runs with, or remove it; a running SuperLink follows at once."""
    require_flower()
    from isfl.cli.terminal import say
    from isfl.engines.flower import access
    from isfl.engines.flower.keys import write_secret

    if remove:
        access.remove_account(directory, name)
        say(f"removed: {name}")
        return
    token, file = access.add_account(directory, name), directory / f"{name}.token"  # it refuses names of other places
    file.unlink(missing_ok=True)
    write_secret(file, token.encode())
    say(f"token of {name}: {file}; its owner runs isfl flower login CONNECTION {file.name}")


@app.command()
def login(
    connection: Annotated[str, typer.Argument(help="[superlink.NAME] of the Flower configuration")],
    token: Annotated[Path, typer.Argument(help="file of the token, from the SuperLink's operator")],
) -> None:
    """Store a token for a connection, where flwr and isfl find it."""
    require_flower()
    from isfl.cli.terminal import say
    from isfl.experiment.submission import store_token

    say(f"stored in {store_token(connection, token)}; delete {token}")


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
