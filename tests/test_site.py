"""Generated documents: the site, the configuration reference, the pictures, the citation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

import isfl
from tests.pages import ROOT, read
from tests.worlds import module_at


def test_the_site_builds_strictly_and_requests_nothing_from_the_network(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="mkdocs is not installed: pip install 'isfl[docs]'")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="?(?:https?:)?//', text), page
        assert not re.findall(r'<link[^>]+rel="?stylesheet"?[^>]+href="?(?:https?:)?//', text), page
    picture, curves = "pictures/overview.png", "results/table2-half-published/table2-curves.png"
    assert f'src="{picture}"' in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert (tmp_path / picture).exists() and (tmp_path / curves).exists(), "pictures come along"
    assert "sampling_probabilities" in (tmp_path / "api.html").read_text(encoding="utf-8")


def test_links_of_the_repository_become_links_of_the_site() -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'isfl[docs]'")
    place_of = module_at(ROOT / "scripts/site_hooks.py").place_of
    assert place_of("docs/method.md#privacy", "README.md") == "method.md"
    assert place_of("../README.md", "docs/results.md") == "index.md"
    assert place_of("../results/demo/comparison.png", "docs/results.md") == "results/demo/comparison.png"
    assert place_of("theory.md", "docs/method.md") == "theory.md"
    assert place_of("../../elsewhere.md", "docs/method.md") is None


def test_the_configuration_reference_is_what_its_script_writes() -> None:
    writer = module_at(ROOT / "scripts/write_configuration.py")
    assert writer.page() == read(writer.PAGE), "run: python scripts/write_configuration.py"


def test_the_picture_of_the_front_page_is_drawn_from_published_runs() -> None:
    drawer = module_at(ROOT / "scripts/draw_overview.py")
    assert drawer.picture().startswith(b"\x89PNG") and len(drawer.cells()) == len(drawer.ROWS)
    assert str(drawer.PICTURE.relative_to(ROOT)) in read(ROOT / "README.md")


def test_the_pictures_are_those_that_the_script_draws(tmp_path: Path) -> None:
    """Byte-identical with the matplotlib that drew them; other versions may draw differently."""
    drawer = module_at(ROOT / "scripts/draw_method.py")
    drawer.draw(tmp_path)
    assert {file.name for file in drawer.PICTURES.glob("*.svg")} == {*drawer.DRAWINGS, "rooms.svg"}
    for name in drawer.DRAWINGS:
        committed = read(drawer.PICTURES / name)
        if f"Matplotlib v{matplotlib.__version__}," in committed:
            assert read(tmp_path / name) == committed, f"{name}: run python scripts/draw_method.py"


def test_the_citation_has_the_required_fields() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs: pip install 'isfl[docs]'")
    citation = yaml.safe_load(read(ROOT / "CITATION.cff"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert str(citation["version"]) == isfl.__version__
    paper = citation["preferred-citation"]
    assert {"type", "title", "authors", "journal", "year"} <= paper.keys()
    stated = re.sub(r"\s+", " ", read(ROOT / "docs/method.md"))
    assert paper["title"] in stated and paper["journal"] in stated and str(paper["year"]) in stated
    assert all(author["family-names"] in stated for author in paper["authors"])


def test_the_changelog_has_this_version() -> None:
    assert f"\n## {isfl.__version__} " in read(ROOT / "CHANGELOG.md")
