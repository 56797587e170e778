"""`isfl doctor`."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(as_json: Annotated[bool, typer.Option("--json", help="print JSON instead")] = False) -> None:
    """Show what isfl finds on this machine (versions, cores, compiler, caches, Flower) and what that means."""
    import json
    from dataclasses import asdict

    from isfl.cli.facts import collect, described
    from isfl.cli.terminal import say

    facts = collect()
    if as_json:
        typer.echo(json.dumps(asdict(facts), indent=2))
        return
    for name, value, meaning in described(facts):
        say(f"{name:<13} {value}: {meaning}")
