"""Differences paired by seed, against a table of Student's t and by hand."""

from __future__ import annotations

import math

import pytest

from isfl.experiment.paired import paired, t_quantile


@pytest.mark.parametrize(
    ("degrees", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423)]
)
def test_quantiles_are_those_of_the_table(degrees: int, t: float) -> None:
    assert t_quantile(degrees) == pytest.approx(t, abs=5e-5)


def test_differences_are_taken_on_common_seeds() -> None:
    found = paired({0: 5.0, 1: 7.0, 2: 9.0, 4: 1.0}, {0: 4.0, 1: 5.0, 2: math.nan, 3: 0.0})
    assert found is not None and found.by_seed == {0: 1.0, 1: 2.0}
    assert (found.mean, found.ahead, found.seeds) == (1.5, 2, 2)
    assert found.half_width == pytest.approx(12.7062 * math.sqrt(0.5) / math.sqrt(2), abs=1e-3)
    assert not found.clear


def test_one_seed_has_a_difference_and_no_interval() -> None:
    found = paired({0: 5.0}, {0: 6.0})
    assert found is not None and found.mean == -1.0 and found.half_width is None and not found.clear
    assert paired({0: 5.0}, {1: 6.0}) is None
