"""The documents as tests read them: headings, links, code blocks and the commands in them."""

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
    """Why a block of Python is not run, where it says so."""

    @property
    def file(self) -> str | None:
        """The file it is meant to be, which its first line tells."""
        found = _NAMED.match(self.text)
        return found[1] if found else None


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", read(page))


def blocks(page: Path) -> Iterator[Block]:
    """Fenced and indented blocks, in order of their kind."""
    text = read(page)
    for match in _FENCE.finditer(text):
        said = re.search(r"<!-- not run: (.+) -->\n\Z", text[: match.start()])
        yield Block(match[1], match[2], said[1] if said else None)
    for lines in re.findall(r"(?:^|\n\n)((?: {4}[^\n]*\n)+)", prose(page)):
        yield Block(INDENTED, re.sub(r"^ {4}", "", lines, flags=re.MULTILINE))


def programs(page: Path) -> Iterator[Block]:
    """Blocks of Python, also those handed to `python -` in a shell."""
    for block in blocks(page):
        if block.language == "python":
            yield block
        elif block.language in SHELLS:
            yield from (Block("python", text) for text in _HEREDOC.findall(block.text))


def commands(page: Path, program: str) -> Iterator[list[str]]:
    """The arguments with which blocks of a page call a program, comments and continued lines resolved."""
    for block in blocks(page):
        if block.language in (*SHELLS, INDENTED):
            for line in block.text.replace("\\\n", " ").splitlines():
                if line.removeprefix("$ ").startswith(f"{program} "):
                    yield shlex.split(line.removeprefix("$ "), comments=True)[1:]


def mentioned(page: Path, program: str) -> Iterator[list[str]]:
    """The same for code inside sentences, which often leaves arguments out."""
    for code in re.findall(rf"`{program} ([^`]+)`", prose(page)):
        yield shlex.split(code)


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Targets inside the repository, each with its anchor or an empty word."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not target.startswith(("http:", "https:")):
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(page: Path) -> set[str]:
    """What can be linked to in a page: its headings, and what the site fills in from docstrings."""
    text = prose(page)
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {slug(heading) for heading in headings} | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


def slug(heading: str) -> str:
    """The anchor of a heading: small letters and digits, a hyphen for a space."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
