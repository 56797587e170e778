"""The command line: one module per group of commands.

Every command imports what it needs when it runs, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NoReturn

import click
import typer

from isfl.cli import data, diagnose, doctor, export, flower, init, many, report, run
from isfl.errors import InterruptionError, UserCodeError, UserError, as_user_error, plain_warnings

app = typer.Typer(
    help="Federated learning on label-skewed clients with local importance sampling.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.add_typer(flower.app, name="flower")
for command in (
    init.init,
    run.run,
    many.compare,
    many.demo,
    many.reproduce,
    run.resume,
    report.report,
    report.watch,
    report.figures,
    export.export,
    diagnose.diagnose,
    doctor.doctor,
):
    app.command()(command)

INTERRUPTED = 130
"""The exit code that shells use for a program ended by Ctrl-C."""


@dataclass
class Invocation:
    """What the options before the command's name ask for."""

    debug: bool = False


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="show the full traceback of every error")] = False,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    context.ensure_object(Invocation).debug = debug
    if version:
        from isfl import __version__

        typer.echo(f"isfl {__version__}")
        raise typer.Exit
    if sys.platform == "win32":
        raise UserError("isfl runs on Linux and macOS; on Windows, run it in WSL (docs/dependencies.md says why)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    A user's mistake is one line and exit code 2, below the user's part of the traceback if the user's code raised.
    Full tracebacks are for our bugs and for `--debug`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a question mark for letters that the terminal cannot show
    plain_warnings()
    invocation = Invocation()
    try:
        code = app(args=list(arguments) if arguments is not None else None, standalone_mode=False, obj=invocation)
    except InterruptionError as error:
        _fail(str(error), INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except SystemExit as ending:
        code = ending.code
    except Exception as error:
        if (mistake := as_user_error(error)) is None:
            raise
        _print_traceback(mistake, whole=invocation.debug)
        _fail(str(mistake), 2)
    if code == INTERRUPTED:
        _fail("interrupted", INTERRUPTED)
    sys.exit(code)


def _print_traceback(mistake: UserError, whole: bool) -> None:
    """Print the user's part of the traceback, if there is one, or all of it."""
    if whole:
        mistake.__suppress_context__ = False
        traceback.print_exception(mistake)
    elif isinstance(mistake, UserCodeError):
        print(mistake.traceback, end="", file=sys.stderr)


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {' '.join(message.splitlines())}", file=sys.stderr)  # one line, even if an argument has several
    sys.exit(code)
