"""Hooks of mkdocs: add files outside `docs/` to the site, without a second copy in the repository.

README, CONTRIBUTING, CHANGELOG and SECURITY become pages. Files outside `docs/` that a page links to (pictures of
results, examples) are copied. Links are written as they work in the repository; the hooks convert them for the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security_policy.md",
}
"""Pages at the top of the repository -> their place on the site."""

LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages at the top of the repository, and every file that a page links to."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    for file in list(files.documentation_pages()):
        for _, link, _ in LINK.findall(file.content_string):
            place = place_of(link, repository_path(file.src_uri))
            if outside(link) or place is None or files.get_file_from_path(place) or not (ROOT / place).is_file():
                continue
            files.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Convert the repository's links to those of the site, outside code blocks."""
    origin = repository_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def turned(match: re.Match[str]) -> str:
        place = None if outside(match[2]) else place_of(match[2], origin)
        if place is None:
            return match[0]
        anchor = "#" + match[2].partition("#")[2] if "#" in match[2] else ""
        return f"{match[1]}{posixpath.relpath(place, here or '.')}{anchor}{match[3]}"

    pieces, end = [], 0
    for block in FENCE.finditer(markdown):
        pieces += [LINK.sub(turned, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*pieces, LINK.sub(turned, markdown[end:])])


def outside(link: str) -> bool:
    """Return whether a link leaves the repository or stays on its page."""
    return link.startswith(("http:", "https:", "mailto:", "#"))


def repository_path(page: str) -> str:
    """Return the path in the repository of a page of the site."""
    tops = {place: name for name, place in PAGES.items()}
    return tops.get(page, f"docs/{page}")


def place_of(link: str, origin: str) -> str | None:
    """Return the place on the site of the target of a link in the file `origin`; None outside the repository."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link.partition("#")[0]))
    if target.startswith(".."):
        return None
    return PAGES.get(target, target.removeprefix("docs/"))
