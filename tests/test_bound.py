"""The convergence bound and the drift bound by hand."""

from __future__ import annotations

import numpy as np
import pytest

from isfl.theory import convergence_bound, drift_bound


def test_the_bound_by_hand() -> None:
    """Two clients, four steps, aggregation every two: phi restarts at t = 2."""
    bound = convergence_bound(
        loss_gap=2.0,
        learning_rate=0.1,
        local_steps=2,
        num_classes=3,
        weights=[0.25, 0.75],
        rho=[2.0, 4.0],
        gradient_norm=[1.0, 2.0, 3.0, 4.0],
        variance=[[1.0, 2.0]] * 4,
        mean_lipschitz=5.0,
    )
    mean_variance = 0.25 * 1 + 0.75 * 2
    phi = np.array([2 * 1 + 1 + mean_variance + 2 * 9 + 1 + mean_variance, 0.0])
    phi[1] = phi[0] + 2.0  # the second client's variance is larger by one in both summands
    np.testing.assert_allclose(bound.phi, phi)
    assert bound.initial == pytest.approx(2 * 2.0 / (0.1 * 4))
    assert bound.psi == pytest.approx(0.1 * 5 * mean_variance + 2 * 3 * (1 + 4 + 9 + 16) / 4)
    assert bound.sampling == pytest.approx(2 * 0.01 * 2 / 4 * (0.25 * 2 * phi[0] + 0.75 * 4 * phi[1]))
    assert bound.total == pytest.approx(bound.initial + bound.psi + bound.sampling)
    assert bound.step_condition == pytest.approx(0.5)


def test_lemma_1_holds_per_step_and_fails_per_epoch_for_clients_with_opposite_gradients() -> None:
    """Two clients with constant, opposite gradients of norm 1, five epochs of eight steps: each moves eta * 40 away."""
    eta, epochs, per_epoch = 0.1, 5, 8
    measured = (eta * epochs * per_epoch) ** 2

    def bound(steps: int) -> float:
        return float(drift_bound(eta, np.ones(steps), np.zeros((steps, 2)), [0.5, 0.5])[0])

    assert measured == pytest.approx(bound(epochs * per_epoch) / 4)  # 2 eta^2 E_l phi with phi = 2 E_l
    assert measured > 10 * bound(epochs)


def test_the_drift_bound_by_hand() -> None:
    bound = drift_bound(0.1, [1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], [0.25, 0.75])
    growth = [(2 + 1 + 1.75) + (8 + 3 + 3.75), (2 + 2 + 1.75) + (8 + 4 + 3.75)]
    np.testing.assert_allclose(bound, 2 * 0.01 * 2 * np.array(growth))


def test_the_bound_names_a_wrong_entry() -> None:
    with pytest.raises(ValueError, match=r"variance\[0, 1\]"):
        convergence_bound(
            loss_gap=1.0,
            learning_rate=0.1,
            local_steps=1,
            num_classes=2,
            weights=[0.5, 0.5],
            rho=[1.0, 1.0],
            gradient_norm=[1.0],
            variance=[[1.0, np.nan]],
            mean_lipschitz=1.0,
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"local_steps": 0}, "local_steps is 0"),
        ({"weights": [5.0, 5.0]}, "weights sum to 10"),
        ({"loss_gap": float("nan")}, "loss_gap is nan"),
        ({"mean_lipschitz": -3.0}, "mean_lipschitz is -3"),
        ({"gradient_norm": []}, "at least one step"),
        ({"rho": [1.0]}, r"rho \(K,\)"),
    ],
)
def test_a_bound_of_impossible_quantities_is_refused(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {
        "loss_gap": 1.0,
        "learning_rate": 0.1,
        "local_steps": 1,
        "num_classes": 2,
        "weights": [0.5, 0.5],
        "rho": [1.0, 1.0],
        "gradient_norm": [1.0],
        "variance": [[1.0, 1.0]],
        "mean_lipschitz": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        convergence_bound(**{**given, **change})  # type: ignore[arg-type]
