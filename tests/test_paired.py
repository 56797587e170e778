"""Differences paired by seed, against a table of Student's t, SciPy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from isfl.experiment.paired import paired, t_quantile


@pytest.mark.parametrize(
    ("degrees", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423)]
)
def test_quantiles_are_those_of_the_table(degrees: int, t: float) -> None:
    assert t_quantile(degrees) == pytest.approx(t, abs=5e-5)


def test_differences_are_taken_on_common_seeds() -> None:
    found = paired({0: 5.0, 1: 7.0, 2: 9.0, 4: 1.0}, {0: 4.0, 1: 5.0, 2: math.nan, 3: 0.0})
    assert found is not None and found.by_seed == {0: 1.0, 1: 2.0}
    assert (found.mean, found.ahead, found.seeds) == (1.5, 2, 2) and found.spread == pytest.approx(math.sqrt(0.5))
    assert found.half_width == pytest.approx(12.7062 * math.sqrt(0.5) / math.sqrt(2), abs=1e-3)
    assert not found.clear


def test_one_seed_has_a_difference_and_no_interval() -> None:
    found = paired({0: 5.0}, {0: 6.0})
    assert found is not None and found.mean == -1.0 and found.half_width is None and not found.clear
    assert paired({0: 5.0}, {1: 6.0}) is None


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 9, 10, 30, 101])
def test_the_quantile_of_students_t_is_scipys(degrees: int) -> None:
    assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-9)
    assert t_quantile(degrees, 0.5) == pytest.approx(stats.t.ppf(0.75, degrees), rel=1e-9)


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(80, 2, 5), rng.normal(79, 2, 5)
    found = paired(dict(enumerate(ours.tolist())), dict(enumerate(theirs.tolist())))
    assert found is not None and found.half_width is not None
    low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((low, high))
    assert found.clear == (low > 0 or high < 0)


def test_equal_runs_differ_by_exactly_nothing() -> None:
    found = paired({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0})
    assert found is not None and (found.mean, found.half_width, found.clear) == (0.0, 0.0, False)
