"""Clients that hypothesis makes up, and what every sampling rule owes them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from isfl.theory.arrays import Array


@st.composite
def any_client(draw: st.DrawFn) -> tuple[Array, Array]:
    """Class counts with at least one sample, and target shares that may want none of the classes held."""
    classes = draw(st.integers(1, 8))
    counts = np.array(draw(st.lists(st.integers(0, 2000), min_size=classes, max_size=classes)), dtype=np.float64)
    counts[0] += counts.sum() == 0
    raw = np.array(draw(st.lists(st.sampled_from([0.0, 1e-9, 0.3, 1.0]), min_size=classes, max_size=classes)))
    raw[-1] += raw.sum() == 0
    return counts, raw / raw.sum()


def assert_drawable(q: Array, counts: Array) -> None:
    assert np.isfinite(q).all() and (q >= 0).all() and (q[counts == 0] == 0).all()
    np.testing.assert_allclose(q.sum(), 1.0, atol=1e-12)
