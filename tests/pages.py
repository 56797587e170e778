"""Parse the documents for tests: headings, links, code blocks and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOPS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = [*TOPS, *sorted((ROOT / "docs").glob("*.md"))]

SHELLS = ("sh", "console", "bash")
INDENTED = "indented"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"#\s*([\w-]+\.(?:py|toml))\b")
_HEREDOC = re.compile(r"^python - <<'END'\n(.*?)^END$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A piece of code in a page."""

    language: str
    text: str
    not_run: str | None = None
    """The stated reason why a block of Python is not run."""

    @property
    def file(self) -> str | None:
        """The file name in the first line, or None."""
        found = _NAMED.match(self.text)
        return found[1] if found else None


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", read(page))


def blocks(page: Path) -> Iterator[Block]:
    """Yield fenced blocks, then indented blocks."""
    text = read(page)
    for match in _FENCE.finditer(text):
        said = re.search(r"<!-- not run: (.+) -->\n\Z", text[: match.start()])
        yield Block(match[1], match[2], said[1] if said else None)
    for lines in re.findall(r"(?:^|\n\n)((?: {4}[^\n]*\n)+)", prose(page)):
        yield Block(INDENTED, re.sub(r"^ {4}", "", lines, flags=re.MULTILINE))


def programs(page: Path) -> Iterator[Block]:
    """Yield blocks of Python, including those passed to `python -` in a shell."""
    for block in blocks(page):
        if block.language == "python":
            yield block
        elif block.language in SHELLS:
            yield from (Block("python", text) for text in _HEREDOC.findall(block.text))


def commands(page: Path, program: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of a program in a page's blocks."""
    for block in blocks(page):
        if block.language in (*SHELLS, INDENTED):
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.removeprefix("$ ").startswith(f"{program} "):
                    yield shlex.split(line.removeprefix("$ "), comments=True)[1:]


def mentioned(page: Path, program: str) -> Iterator[list[str]]:
    """Yield the arguments of each call in inline code, which often leaves arguments out."""
    for code in re.findall(rf"`{program} ([^`]+)`", prose(page)):
        yield shlex.split(code)


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Yield link targets inside the repository, each with its anchor or an empty string."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not target.startswith(("http:", "https:")):
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings, and the names whose docstrings the site inserts."""
    text = prose(page)
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {slug(heading) for heading in headings} | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


def slug(heading: str) -> str:
    """Return the anchor of a heading: lower-case letters and digits, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
