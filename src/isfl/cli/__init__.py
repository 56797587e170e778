"""The command line: one module per group of commands.

Every command imports what it needs when it runs, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import click
import typer

from isfl.cli import data, diagnose, flower, many, report, run
from isfl.errors import InterruptionError, UserError, plain_warnings

app = typer.Typer(
    help="Federated learning on label-skewed clients with local importance sampling.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.add_typer(flower.app, name="flower")
for command in (
    run.run,
    many.compare,
    many.demo,
    many.reproduce,
    run.resume,
    report.report,
    report.watch,
    report.figures,
    diagnose.diagnose,
):
    app.command()(command)

INTERRUPTED = 130
"""The exit code that shells use for a program ended by Ctrl-C."""


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False) -> None:
    if show:
        from isfl import __version__

        typer.echo(f"isfl {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: a user's mistake is one line and exit code 2; tracebacks are for our bugs."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a question mark for letters that the terminal cannot show
    plain_warnings()
    try:
        code = app(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except UserError as error:
        _fail(str(error), 2)
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
    if code == INTERRUPTED:
        _fail("interrupted", INTERRUPTED)
    sys.exit(code)


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
