"""Differential privacy for whole clients: one client moves the model by a bounded amount, the noise hides that, and
epsilon is what theory says."""

from __future__ import annotations

import importlib
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isfl import layout
from isfl.errors import UserError
from isfl.experiment.run import LocalHost, run
from isfl.federation.client import introduce, train_client
from isfl.federation.preparation import prepared
from isfl.federation.privacy import (
    Privacy,
    Use,
    check_budget,
    clipped_difference,
    gaussian_epsilon,
    noised_mean,
    noised_update,
    privacy_noise,
)
from isfl.federation.values import ClientMemory, ClientUpdate, TrainTask, Weights, state_of
from isfl.problem.config import Config, config_from
from isfl.problem.problem import prepare
from isfl.randomness import SystemNoise
from tests.worlds import bytes_drawn

QUIET = Privacy.model_construct(clip=0.5, noise=1e-12)
"""Clipping alone; a configuration must have some noise."""


def config(**changes: Any) -> Config:
    raw: dict[str, Any] = {
        "scheme": {"name": "tempered", "aggregation": {"weights": "client"}},
        "target": {"kind": "uniform"},
        "data": {"name": "digits", "public": 40},
        "split": {"kind": "iid", "clients": 4, "samples_per_client": 30},
        "model": {"name": "mlp", "width": 0.25},
        "training": {"rounds": 2, "local_epochs": 1, "batch_size": 16},
        "privacy": {"clip": 0.5, "noise": 2.0},
    }
    for key, value in changes.items():
        raw[key] = {**raw.get(key, {}), **value}
    return config_from(raw, "x")


def weights(seed: int, scale: float = 1.0) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    return {name: scale * torch.randn(size, generator=generator) for name, size in (("a", (3, 4)), ("b", (5,)))}


def update(client: int, model: Weights) -> ClientUpdate:
    return ClientUpdate(client, 10, model, 1.0, 10, 0, 0.0, 0.0)


def norm(values: Weights) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in values.values()))


def difference(one: Weights, other: Weights) -> Weights:
    return {name: one[name].double() - other[name].double() for name in one}


# ---------------------------------------------------------------- the mechanism


def test_a_long_update_is_shortened_to_the_clipping_norm_and_a_short_one_is_kept() -> None:
    current, local = weights(0), weights(1)
    whole = difference(local, current)
    short = clipped_difference(local, current, 0.5)
    assert norm(short) == pytest.approx(0.5)
    torch.testing.assert_close(short["a"] / norm(short), whole["a"] / norm(whole))
    torch.testing.assert_close(clipped_difference(local, current, 1e3), whole)
    assert norm(clipped_difference(current, current, 0.5)) == 0


def test_the_mean_divides_by_the_clients_asked_not_by_those_who_answered() -> None:
    current, privacy = weights(0), QUIET
    found = noised_mean(current, [update(k, weights(k)) for k in (1, 2)], privacy, 4, privacy_noise(0, 1, real=False))
    parts = [clipped_difference(weights(k), current, 0.5) for k in (1, 2)]
    expected = {name: current[name].double() + (parts[0][name] + parts[1][name]) / 4 for name in current}
    assert norm(difference(found.model, expected)) < 1e-6


def test_no_client_moves_the_mean_by_more_than_twice_the_clipping_norm_over_the_clients_asked() -> None:
    """The sensitivity that the accountant assumes: other data of one client, all else equal."""
    current, privacy = weights(0), QUIET
    largest = 0.0
    for case in range(20):
        others = [update(k, weights(100 * case + k, scale=0.1 * case)) for k in (1, 2)]
        one, other = weights(case, 5.0), difference(current, difference(weights(case, 5.0), current))
        means = [
            noised_mean(current, [update(0, mine), *others], privacy, 3, privacy_noise(0, 1, real=False)).model
            for mine in (one, {name: value.float() for name, value in other.items()})
        ]
        largest = max(largest, norm(difference(*means)))
    assert 0.99 * 2 * 0.5 / 3 < largest < 1.00001 * 2 * 0.5 / 3, "opposite updates reach it"


@pytest.mark.parametrize("at", ["server", "client"])
def test_the_noise_has_the_standard_deviation_that_the_accountant_assumes(at: str) -> None:
    current = {"a": torch.zeros(200, 200)}
    privacy, noise = Privacy(clip=0.5, noise=3.0), privacy_noise(0, 1, real=False)
    if at == "server":
        found = noised_mean(current, [update(k, current) for k in range(4)], privacy, 4, noise).model
        expected = 3.0 * 0.5 / 4
    else:
        found = noised_update(current, current, privacy, noise)
        expected = 3.0 * 0.5
    assert float(found["a"].std()) == pytest.approx(expected, rel=0.02)
    assert abs(float(found["a"].mean())) < 0.02 * expected


@pytest.mark.parametrize("real", [False, True])
def test_a_parameter_without_dimensions_is_noised_as_any_other(real: bool) -> None:
    current, privacy, noise = {"t": torch.tensor(1.0)}, Privacy(clip=0.5, noise=3.0), privacy_noise(0, 1, real=real)
    at_server = noised_mean(current, [update(0, current)], privacy, 1, noise).model
    for found in (at_server, noised_update(current, current, privacy, noise)):
        assert found["t"].shape == () and found["t"] != 1


def test_noise_is_repeated_in_a_simulation_and_never_for_real_clients() -> None:
    def drawn(round: int, client: int, real: bool) -> float:
        return float(privacy_noise(7, round, client, real=real).standard_normal(1)[0])

    assert drawn(1, 2, real=False) == drawn(1, 2, real=False)
    assert len({drawn(1, 2, real=False), drawn(2, 2, real=False), drawn(1, 3, real=False)}) == 3
    assert drawn(1, 2, real=True) != drawn(1, 2, real=True)


def test_noise_of_real_clients_has_the_distribution_that_the_accountant_assumes() -> None:
    from scipy.stats import kstest

    noise = SystemNoise()
    assert kstest(noise.standard_normal((200, 100)).ravel(), "norm").pvalue > 1e-6
    assert kstest(noise.laplace(scale=2.0, size=20_000), "laplace", (0, 2.0)).pvalue > 1e-6


def test_all_noise_of_real_clients_is_the_entropy_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a generator that is only seeded with it, some numbers give the others away."""
    drawn = bytes_drawn(monkeypatch)
    current = weights(0)
    noised_update(current, current, Privacy(clip=1.0, noise=1.0), privacy_noise(0, 1, real=True))
    values = sum(value.numel() for value in current.values())
    assert sum(drawn) == 2 * 8 * values, "64 bits for each of the two numbers behind a value"
    drawn.clear()
    noised_update(current, current, Privacy(clip=1.0, noise=1.0), privacy_noise(0, 1, real=False))
    assert drawn == []


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("at", ["server", "client"])
def test_a_run_records_epsilon_and_does_not_depend_on_the_number_of_processes(at: str, tmp_path: Path) -> None:
    settings = config(privacy={"at": at})
    for workers in (1, 2):
        run(settings, tmp_path / str(workers), host=LocalHost(workers))
    one, two = ((tmp_path / name / layout.MODEL).read_bytes() for name in "12")
    assert one == two
    lines = [json.loads(line) for line in (tmp_path / "1" / layout.METRICS).read_text().splitlines()]
    assert [line["epsilon"] for line in lines] == [gaussian_epsilon(1.0, 1e-5, n) for n in (1, 2)]
    assert all((line["train_loss"] is None) == (at == "client") for line in lines)
    assert not any(line["refused"] for line in lines)


def test_a_client_that_protects_itself_sends_neither_counts_nor_loss_nor_its_model() -> None:
    """What crosses the wire, for every rule that a client can draw by without the server."""
    for scheme in ("fedavg", "tempered", "calibrated", "shrunk"):
        settings = config(scheme={"name": scheme}, privacy={"at": "client"})
        problem = prepare(settings)
        data, model = problem.clients[0], prepared(problem.model, settings)
        profile = introduce(0, data, settings, np.random.default_rng(0))
        assert profile.class_counts is None and profile.num_samples == len(data)
        task = TrainTask(1, 0, state_of(model), np.full(10, 0.1))
        sent, _ = train_client(model, task, data, settings, ClientMemory())
        assert sent.train_loss is None and sent.gradient_norm is None and sent.gradient_variance is None
        trained = state_of(model)
        assert all(not torch.equal(sent.model[name], trained[name]) for name in trained)
        assert norm(difference(sent.model, task.model)) > 10 * norm(difference(trained, task.model)), "mostly noise"


def test_without_privacy_there_is_no_epsilon(tmp_path: Path) -> None:
    raw = config().model_dump(mode="json") | {"privacy": None}
    run(config_from(raw, "x"), tmp_path / "plain")
    lines = (tmp_path / "plain" / layout.METRICS).read_text().splitlines()
    assert [json.loads(line)["epsilon"] for line in lines] == [None, None]


def test_noise_that_hides_everything_leaves_accuracy_at_chance(tmp_path: Path) -> None:
    """The noise reaches the model; with the same seed and little noise the model learns."""
    accuracy = {}
    for noise in (0.01, 1e4):
        training = {"rounds": 3, "local_epochs": 5, "optimizer": {"kind": "adam", "lr": 0.01}}
        split = {"samples_per_client": 100}
        settings = config(privacy={"clip": 3.0, "noise": noise}, training=training, split=split)
        run(settings, tmp_path / f"{noise}")
        lines = (tmp_path / f"{noise}" / layout.METRICS).read_text().splitlines()
        accuracy[noise] = json.loads(lines[-1])["accuracy_standard"]
    assert accuracy[0.01] > 0.5 and accuracy[1e4] < 0.25


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"target": {"kind": "global"}}, "privacy: target.kind = 'global' is computed from the clients' labels"),
        ({"target": {"kind": "noised", "epsilon": 1.0}}, "privacy: target.kind = 'noised'"),
        ({"scheme": {"aggregation": {"weights": "size"}}}, "scheme.aggregation.rule = 'mean' must be a mean in which"),
        ({"scheme": {"aggregation": {"rule": "median"}}}, "scheme.aggregation.rule = 'median' must be a mean"),
        ({"scheme": {"aggregation": {"rule": "multi-krum"}}}, "scheme.aggregation.rule = 'multi-krum' must be a mean"),
        (
            {"scheme": {"name": "isfl"}, "privacy": {"at": "client"}},
            "scheme.sampling.where = 'server' sends class counts",
        ),
        (
            {
                "scheme": {"name": "isfl", "sampling": {"where": "client", "lipschitz_at": "client"}},
                "privacy": {"at": "client"},
            },
            "scheme.sampling.lipschitz_at = 'client' sends Lipschitz values without protection",
        ),
        ({"privacy": {"at": "client"}, "diagnostics": {"bound": True}}, "diagnostics.bound = true sends norms"),
        ({"privacy": {"clip": 0.0}}, "privacy.clip"),
        ({"privacy": {"clip": 1e-300}}, "privacy.clip"),  # no update is left
        ({"privacy": {"clip": 1e308, "noise": 1e6}}, "privacy.clip"),  # their product is not a number
    ],
)
def test_settings_that_the_guarantee_does_not_cover_are_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=r"\A[^\n]*\Z") as refused:
        config(**changes)
    assert named in str(refused.value)


def test_batchnorm_statistics_that_would_be_averaged_are_refused(tmp_path: Path) -> None:
    model = {"name": "small-cnn", "width": 0.25}
    with pytest.raises(UserError, match=r'privacy: the model has buffers .* training.batchnorm = "local" or "group"'):
        run(config(model=model, data={"name": "fashion-mnist-mini"}), tmp_path / "average")
    assert not (tmp_path / "average").exists()


def test_a_budget_that_cannot_be_met_is_refused_with_the_noise_that_would_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"privacy\.epsilon = 1 cannot be met: 2 rounds") as refused:
        run(config(privacy={"epsilon": 1.0}), tmp_path / "refused")
    enough = float(str(refused.value).rpartition("privacy.noise to ")[2].split()[0])
    assert gaussian_epsilon(enough / 2, 1e-5, 2) <= 1.0 < gaussian_epsilon((enough - 0.02) / 2, 1e-5, 2)
    run(config(privacy={"epsilon": 1.0, "noise": enough}), tmp_path / "met")


@pytest.mark.parametrize(("epsilon", "amplified"), [(1e-12, False), (1e-3, False), (0.01, True)])
def test_the_noise_for_a_small_budget_is_the_smallest_that_is_accepted_and_nothing_is_warned_of(
    epsilon: float, amplified: bool
) -> None:
    """Renyi divergences alone would need a noise of 282,843 for an epsilon of 0.01."""
    use, privacy = Use(2, 2, 2), Privacy(clip=1.0, noise=1.0, epsilon=epsilon, amplified=amplified)
    with warnings.catch_warnings(action="error"), pytest.raises(UserError, match="cannot be met: 2") as refused:
        check_budget(privacy, 4, use)
    enough = float(str(refused.value).rpartition("privacy.noise to ")[2].split()[0])
    assert enough < 200_000
    check_budget(privacy.model_copy(update={"noise": enough}), 4, use)
    with pytest.raises(UserError, match="cannot be met"):
        check_budget(privacy.model_copy(update={"noise": 0.99 * enough}), 4, use)


def test_a_budget_that_no_noise_meets_is_refused_without_advice_that_does_not_work() -> None:
    privacy = Privacy(clip=1.0, noise=1.0, epsilon=1e-6, delta=1e-300)
    with pytest.raises(UserError, match=r"no noise is enough: use a larger privacy\.epsilon or privacy\.delta"):
        check_budget(privacy, 4, Use(2, 2, 2))


def test_a_missing_accountant_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UserError, match=r"pip install 'isfl\[privacy\]'"):
        gaussian_epsilon(0.123, 1e-5, 1)


def test_the_mean_of_noised_updates_is_the_models_next_step() -> None:
    """The two ways to add noise differ in nothing but the noise."""
    current, privacy, rng = weights(0), QUIET, np.random.default_rng(0)
    sent = [noised_update(weights(k), current, privacy, rng) for k in (1, 2)]
    whole = noised_mean(current, [update(k, weights(k)) for k in (1, 2)], privacy, 2, rng)
    mean = {name: (sent[0][name] + sent[1][name]) / 2 for name in current}
    assert norm(difference(mean, whole.model)) < 1e-6
