"""docs/api.md lists exactly what is public, and documents and examples teach nothing else."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import isfl
from tests import pages
from tests.pages import PAGES, ROOT

API = ROOT / "docs/api.md"
INSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "architecture.md")
"""Pages that also describe the inside of the package."""
TEACHING = [page for page in PAGES if page.name not in INSIDE]
EXAMPLES = [*sorted((ROOT / "examples").rglob("*.py")), ROOT / "examples/tour.ipynb"]
LISTED = re.findall(r"^::: (\S+)$", pages.read(API), re.MULTILINE)
MODULES = {f"isfl.{name}": importlib.import_module(f"isfl.{name}") for name in isfl._MODULES}


def resolved(name: str) -> Any:
    """Return the object `isfl.a.b`; raise `AttributeError` if there is none."""
    found: Any = isfl
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def source_of(example: Path) -> str:
    """Return the program in a file: of a notebook, the cells with code."""
    text = example.read_text(encoding="utf-8")
    if example.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")


def imported(source: str) -> Iterator[str]:
    """Yield the names of isfl that a program imports or reaches through `isfl.`, as `isfl.a.b`."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "isfl":
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Import():
                yield from (alias.name for alias in node.names if alias.name.startswith("isfl."))
            case ast.Attribute() if re.fullmatch(r"isfl(\.\w+)+", ast.unparse(node)):
                yield ast.unparse(node)


def mentioned(page: Path) -> Iterator[str]:
    """Yield the names `isfl.a.b` in inline code, with or without arguments."""
    for code in re.findall(r"`(isfl\.[^`]+)`", pages.prose(page)):
        if found := re.match(r"isfl(\.[A-Za-z_]\w*)+", code):
            yield found[0]


def is_public(name: str) -> bool:
    return name in MODULES or name in LISTED or any(resolved(name) is resolved(other) for other in LISTED)


def test_every_name_on_the_page_exists_once() -> None:
    assert len(LISTED) == len(set(LISTED)) > 20
    assert len({id(resolved(name)) for name in LISTED}) == len(LISTED)


def test_every_public_name_is_on_the_page() -> None:
    assert {f"isfl.{name}" for name in isfl.__all__ if name != "__version__"} <= set(LISTED)
    assert all(name.rpartition(".")[0] in {"isfl", *MODULES} for name in LISTED)


@pytest.mark.parametrize("page", TEACHING, ids=lambda page: page.name)
def test_a_page_teaches_only_public_names(page: Path) -> None:
    taught = {name for block in pages.programs(page) for name in imported(block.text)}
    for name in taught | set(mentioned(page)):
        assert is_public(name), f"{name} is not on docs/api.md"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT / "examples")))
def test_an_example_uses_only_public_names(example: Path) -> None:
    for name in imported(source_of(example)):
        assert is_public(name), f"{name} is not on docs/api.md"


def test_internal_names_are_recognised() -> None:
    assert set(imported("import isfl\nfrom isfl.data import keep\nisfl.experiment.run.run(isfl.load_config('a'))")) >= {
        "isfl.data.keep",
        "isfl.experiment.run.run",
        "isfl.load_config",
    }
    assert is_public("isfl.theory.rho") and is_public("isfl.load_config")
    importlib.import_module("isfl.experiment.run")
    assert not is_public("isfl.data.keep") and not is_public("isfl.experiment.run.run")


# ---------------------------------------------------------------- docstrings

FUNCTIONS = [name for name in LISTED if inspect.isfunction(resolved(name))]
WITH_EXAMPLES = [name for name in LISTED if ">>>" in (inspect.getdoc(resolved(name)) or "")]


@pytest.mark.parametrize("name", [name for name in LISTED if callable(resolved(name))])
def test_a_public_name_has_a_docstring_of_its_own(name: str) -> None:
    first = (resolved(name).__doc__ or "").splitlines()[0]
    assert first.endswith((".", ":")) and len(first) > 20


@pytest.mark.parametrize("name", [*FUNCTIONS, "isfl.ClassSampler", "isfl.Run", "isfl.Comparison"])
def test_a_call_documents_every_parameter_in_the_same_sections(name: str) -> None:
    text = inspect.getdoc(resolved(name)) or ""
    _, *parts = re.split(r"^(\w+)\n-+\n", text, flags=re.MULTILINE)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    expected = ["Parameters", "Returns", "Raises", "Examples"]
    if inspect.signature(resolved(name)).return_annotation in ("None", None):
        expected.remove("Returns")
    if name.startswith("isfl.flower."):  # examples/flower_dropin is the example
        expected.remove("Examples")
    assert list(sections) == expected
    documented = re.findall(r"^(\w+)$", sections["Parameters"], re.MULTILINE)
    assert documented == list(inspect.signature(resolved(name)).parameters)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_public_name_give_what_they_show(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.DocTestFinder(recurse=False).find(resolved(name), name, globs={})
    told: list[str] = []
    for test in found:
        assert test.examples
        doctest.DocTestRunner().run(test, out=told.append)
    assert found and told == []


def test_every_call_and_result_has_an_example() -> None:
    outside = {"isfl.federation.start", "isfl.federation.run_round"}  # in that of LocalEngine
    calls = {name for name in FUNCTIONS if not name.startswith("isfl.flower.")} - outside
    classes = {"isfl.Run", "isfl.Comparison", "isfl.Dataset", "isfl.LocalEngine", "isfl.ClassSampler"}
    assert calls | classes <= set(WITH_EXAMPLES)
