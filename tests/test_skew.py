"""Skew measures by hand and by their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from isfl.theory import effective_sample_size, skew_card


def test_skew_of_identical_and_of_disjoint_clients() -> None:
    same = skew_card([[10, 20], [5, 10]])
    np.testing.assert_allclose(same.hellinger, 0.0, atol=1e-7)
    np.testing.assert_allclose(same.total_variation, 0.0, atol=1e-12)
    np.testing.assert_allclose(same.effective_size, [30, 15])
    apart = skew_card([[10, 0], [0, 10]])
    np.testing.assert_allclose(apart.total_variation, 0.5)
    np.testing.assert_allclose(apart.hellinger, np.sqrt(1 - np.sqrt(0.5)))
    np.testing.assert_array_equal(apart.missing, [1, 1])


def test_effective_sample_size_equals_its_definition_sample_by_sample() -> None:
    counts, q = np.array([[30, 5, 1]]), np.array([[0.2, 0.5, 0.3]])
    weights = np.repeat(q[0] / (counts[0] / counts.sum()), counts[0])
    assert effective_sample_size(counts, q)[0] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())


@pytest.mark.parametrize(
    ("counts", "message"),
    [([[1, -1]], r"counts\[0, 1\]"), ([[1, 0.5]], r"counts\[0, 1\]"), ([[1, 1], [0, 0]], r"counts\[1\] sums to 0")],
)
def test_invalid_counts_are_refused(counts: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        skew_card(counts)
