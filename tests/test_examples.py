"""The examples in the docstrings of public functions give the output they show."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import isfl
from isfl.sampling import draw_by_class

METHOD: list[Callable[..., Any]] = [
    isfl.sampling_probabilities,
    isfl.rho,
    isfl.lipschitz,
    isfl.ClassSampler,
    draw_by_class,
]
SECTIONS = ("Parameters", "Raises", "Examples")


@pytest.mark.parametrize("function", METHOD, ids=lambda f: f.__name__)
def test_the_examples_of_a_public_function_give_what_they_show(function: Callable[..., Any]) -> None:
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    [examples] = finder.find(function, function.__name__, globs={})
    assert examples.examples
    told: list[str] = []
    assert runner.run(examples, out=told.append).failed == 0, "".join(told)


@pytest.mark.parametrize("function", METHOD, ids=lambda f: f.__name__)
def test_a_public_function_documents_every_parameter_in_the_same_sections(function: Callable[..., Any]) -> None:
    text = inspect.getdoc(function) or ""
    sections = SECTIONS if inspect.isclass(function) else ("Parameters", "Returns", "Raises", "Examples")
    places = [text.find(f"\n{name}\n{'-' * len(name)}\n") for name in sections]
    assert places == sorted(places) and places[0] > 0
    listed = [line for line in text[places[0] : places[1]].splitlines()[3:] if line and not line.startswith(" ")]
    assert listed == list(inspect.signature(function).parameters)
