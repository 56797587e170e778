"""Objectives against their formulas, written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from isfl.federation.objectives import LocalTraining
from isfl.federation.objectives.base import calibration
from isfl.federation.objectives.fedlc import FedLC, margins
from isfl.federation.objectives.fedntd import FedNTD, not_true_divergence
from isfl.federation.objectives.moon import Moon, contrastive, representation
from tests.worlds import COUNTS, federate, network, same_bits, settings_of

LOGITS = torch.tensor([[2.0, -1.0, 0.5, 0.0], [0.0, 1.0, 1.5, -2.0]])
TEACHER = torch.tensor([[0.0, 1.0, 0.0, 2.0], [1.0, 0.0, -1.0, 0.5]])
LABELS = torch.tensor([0, 2])


def local(**changes: object) -> LocalTraining:
    model = network()
    given: dict[str, object] = {
        "model": model,
        "global_model": {name: value.clone() for name, value in model.state_dict().items()},
        "previous": None,
        "probabilities": np.array([0.4, 0.3, 0.2, 0.1]),
        "target": np.full(4, 0.25),
        "counts": np.array([16.0, 81.0, 1.0, 0.0]),
    }
    return LocalTraining(**{**given, **changes})  # type: ignore[arg-type]


def test_the_margins_of_fedlc_by_hand() -> None:
    """16^(-1/4) = 1/2, 81^(-1/4) = 1/3; a class without samples has a margin that takes it out of the softmax."""
    torch.testing.assert_close(
        margins(np.array([16.0, 81.0, 1.0, 0.0]), 2.0), torch.tensor([-1.0, -2 / 3, -2.0, -200.0])
    )
    shift = FedLC(tau=2.0).logit_shift(local())
    assert shift is not None
    assert float(F.softmax(LOGITS + shift, 1)[:, 3].max()) < 1e-30


def test_fedlc_with_calibration_adds_both_shifts() -> None:
    at = local()
    both, alone = FedLC(calibrate=True).logit_shift(at), FedLC().logit_shift(at)
    assert both is not None and alone is not None
    torch.testing.assert_close(both, alone + calibration(at.probabilities, at.target, 98.0))


@pytest.mark.parametrize("tau", [1.0, 3.0])
def test_the_divergence_of_fedntd_by_hand(tau: float) -> None:
    """Class by class, with the true class left out of both softmaxes."""
    expected = 0.0
    for logits, teacher, label in zip(LOGITS.tolist(), TEACHER.tolist(), LABELS.tolist(), strict=True):
        others = [i for i in range(4) if i != label]
        ours, theirs = (np.exp(np.array([values[i] for i in others]) / tau) for values in (logits, teacher))
        ours, theirs = ours / ours.sum(), theirs / theirs.sum()
        expected += float((theirs * np.log(theirs / ours)).sum()) / 2
    assert float(not_true_divergence(LOGITS, TEACHER, LABELS, tau)) == pytest.approx(expected, rel=1e-5)


def test_fedntd_does_not_look_at_the_true_class() -> None:
    changed = LOGITS.clone()
    changed[torch.arange(2), LABELS] += 7.0
    before, after = (not_true_divergence(values, TEACHER, LABELS, 1.0) for values in (LOGITS, changed))
    torch.testing.assert_close(before, after)


def test_fedntd_costs_nothing_at_the_global_model_and_with_two_classes() -> None:
    at, inputs = local(), torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    with FedNTD().term(at) as term:
        logits = at.model(inputs).detach()
        assert float(term(inputs, logits, torch.tensor([0, 1, 2, 3, 0]))) == pytest.approx(0.0, abs=1e-6)
    assert float(not_true_divergence(LOGITS[:, :2], TEACHER[:, :2], torch.tensor([0, 1]), 1.0)) == 0.0


@pytest.mark.parametrize(
    "scheme", [{"name": "fedlc", "objective": {"tau": 0.0}}, {"name": "fedntd", "objective": {"beta": 0.0}}]
)
def test_an_objective_of_weight_zero_is_fedavg(scheme: object) -> None:
    state, _ = federate(settings_of(scheme))
    plain, _ = federate(settings_of("fedavg"))
    assert same_bits(state, plain)


def test_fedntd_keeps_clients_closer_to_the_global_model() -> None:
    def drift(beta: float) -> float:
        scheme = {"name": "fedntd", "objective": {"beta": beta}}
        training = {"rounds": 3, "optimizer": {"kind": "sgd", "lr": 0.1}}
        _, reports = federate(settings_of(scheme, training=training, diagnostics={"bound": True}), counts=COUNTS)
        assert reports[-1].drift is not None
        return reports[-1].drift.measured

    assert drift(5.0) < drift(0.0)


def test_calibration_by_hand() -> None:
    """A class drawn twice as often as the target has must win by a factor of two before it counts as won."""
    many, few = (calibration(np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25]), n) for n in (3e6, 3.0))
    assert many[:2].tolist() == pytest.approx([np.log(2.0), 0.0], abs=1e-5)
    assert few.tolist() == pytest.approx([np.log((2 * 3 + 3) / 6), 0.0, np.log(3 / 6)])


@given(st.integers(1, 6), st.integers(1, 500), st.integers(0, 2**32 - 1))
def test_calibration_counts_one_more_sample_per_class_in_the_mix_of_the_target(c: int, n: int, seed: int) -> None:
    """`q' = (n q + C p) / (n + C)` is a mix: a class without samples is rare in it, never impossible."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(c)), rng.dirichlet(np.ones(c)) * rng.integers(0, 2, c)
    q = q / q.sum() if q.sum() else p
    mix = p * np.exp(calibration(q, p, n).double().numpy())
    np.testing.assert_allclose(mix, (n * q + c * p) / (n + c), rtol=1e-5, atol=1e-9)
    assert mix.sum() == pytest.approx(1.0, abs=1e-5)


def test_the_contrastive_term_by_hand() -> None:
    """The term is small close to the global representation, and large close to the previous one."""
    inputs = torch.tensor([[1.0, 0.0]])

    def seen(global_scale: list[float], previous_scale: list[float]) -> float:
        class Scaled(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scale, self.out = nn.Parameter(torch.ones(2)), nn.Linear(2, 4)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                out: torch.Tensor = self.out(x[:, :1] * self.scale)
                return out

        model = Scaled()
        weights = dict(model.state_dict())
        with contrastive(
            model,
            {**weights, "scale": torch.tensor(global_scale)},
            {**weights, "scale": torch.tensor(previous_scale)},
            Moon(mu=2.0, tau=0.5),
        ) as term:
            model(inputs)
            return float(torch.as_tensor(term(inputs, inputs, inputs)).detach())

    # cosines with (1, 1): 1 with itself, -1 with its opposite; tau = 0.5
    assert seen([1.0, 1.0], [-1.0, -1.0]) == pytest.approx(2.0 * np.log1p(np.exp(-4.0)), rel=1e-5)
    assert seen([-1.0, -1.0], [1.0, 1.0]) == pytest.approx(2.0 * np.log1p(np.exp(4.0)), rel=1e-5)
    assert seen([1.0, 0.0], [1.0, 0.0]) == pytest.approx(2.0 * np.log(2.0), rel=1e-5)


def test_moon_compares_the_inputs_of_the_layer_called_last() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out, self.body = nn.Linear(8, 4), nn.Linear(6, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.out(torch.relu(self.body(x)))
            return out

    model, inputs = Backwards(), torch.randn(5, 6)
    with representation(model) as seen:
        model(inputs)
    assert torch.equal(seen[0], torch.relu(model.body(inputs)))
