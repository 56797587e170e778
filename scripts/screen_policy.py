"""Screen sampling policies by successive halving, as docs/policy.md describes it.

    python scripts/screen_policy.py OUT --jobs 2

The cells are those of `isfl reproduce policy-screen`. A run that goes on continues its own run directory, so that
nothing is computed twice. Started again with the same OUT, the screen continues. After every stage, OUT gets the table
and the picture of what is known.

A copy of `results/policy-screen-half-published` as OUT continues the published screen: its runs count for their stage,
and those that go on start again from their first round, because checkpoints are not published.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from isfl.cli import INTERRUPTED
from isfl.errors import UserError
from isfl.experiment.cells import planned_cells
from isfl.experiment.paper_setting import setting_named
from isfl.experiment.reproduce import reproduction_cells
from isfl.experiment.screen import screen
from isfl.report.reproduction import write_reproduction


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and run the screen."""
    parser = argparse.ArgumentParser(description="Screen sampling policies (docs/policy.md)")
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--scale", default="half", help="as of isfl reproduce")
    options = parser.parse_args(arguments)
    try:
        setting = setting_named(options.scale, "published")
        cells = reproduction_cells("policy-screen", setting, [0], options.out, None)
        for stage in screen(cells, options.jobs):
            kept = ", ".join(f"{label} {stage.mean(label):.1f}" for label in stage.kept)
            print(f"after {stage.rounds} rounds: {kept}", flush=True)
            write_reproduction(*planned_cells(options.out), options.out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("error: interrupted; the same command continues", file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
