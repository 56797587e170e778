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

from isfl.report.content import content_of
from isfl.report.page import write_page
from isfl.report.reading import find_runs

WIDTH, HEIGHT = 1100, 820


def main(run: Path, out: Path) -> None:
    found, refused = find_runs([run])
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, started() as browser:
        page_file = write_page(content_of(found, refused), Path(scratch) / "report.html")
        with opened(browser, page_file.as_uri(), WIDTH) as (page, _):
            page.screenshot(path=out, clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
