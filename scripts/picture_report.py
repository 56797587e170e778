"""Take the picture of the report that the documentation shows.

    isfl demo --out runs/demo
    PYTHONPATH=. python scripts/picture_report.py runs/demo docs/pictures/report.png

Needs Chromium (see `tests/browser.py`).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browser import opened, started

from isfl import layout
from isfl.report.page import write_report

WIDTH, HEIGHT = 1100, 820


def main(run: Path, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, started() as browser:
        report = Path(scratch) / layout.REPORT
        write_report([run], report)
        with opened(browser, report.as_uri(), WIDTH) as (page, _):
            page.screenshot(path=out, clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
