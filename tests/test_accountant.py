"""What differential privacy costs: epsilon agrees with what was published, and with a second computation of it."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from pathlib import Path

import pytest

from isfl.federation.privacy import Privacy, Use, gaussian_epsilon, spent_epsilon


@pytest.mark.parametrize(("mu", "epsilon"), [(0.35, 1.34), (1.78, 8.68)])
def test_epsilon_agrees_with_published_pairs(mu: float, epsilon: float) -> None:
    """Z. Bu, J. Dong, Q. Long, W. Su, "Deep Learning with Gaussian Differential Privacy", Harvard Data Science Review
    2020, Figure 4, delta = 1e-5. They round mu to two digits."""
    low, high = (gaussian_epsilon(1 / (mu + shift), 1e-5, 1) for shift in (-0.005, 0.005))
    assert low - 0.005 < epsilon < high + 0.005 and high - low < 0.1


@pytest.mark.parametrize("times", [1, 25])
def test_epsilon_solves_the_equation_of_the_gaussian_mechanism(times: int) -> None:
    """Balle and Wang 2018, Theorem 8, with the noise of n uses taken as one."""
    from scipy.stats import norm as normal

    epsilon, mu = gaussian_epsilon(1.5, 1e-5, times), math.sqrt(times) / 1.5
    delta = normal.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu)
    assert delta == pytest.approx(1e-5, rel=1e-3)


def theorem_27(sampled: float, multiplier: float, orders: range) -> dict[int, Decimal]:
    """Y.-X. Wang, B. Balle, S. Kasiviswanathan, "Subsampled Renyi Differential Privacy and Analytical Moments
    Accountant", AISTATS 2019 (arXiv 1808.00087), Theorem 27, for a Gaussian mechanism: the divergence of one round.

    Sums with alternating signs are taken as they are written, in arithmetic of 200 digits; the library goes another
    way, in logarithms of double precision.
    """
    gamma, precision = Decimal(sampled), 1 / Decimal(multiplier) ** 2
    moments = [(j * (j - 1) * precision / 2).exp() for j in range(orders.stop + 2)]
    """`exp((j - 1) epsilon(j))` with `epsilon(j) = j / (2 sigma^2)`."""
    differences = [
        sum((-1) ** (i - j) * math.comb(i, j) * moments[j] for j in range(i + 1)) for i in range(len(moments))
    ]

    def bound(i: int) -> Decimal:
        if i == 2:
            return min(4 * (moments[2] - 1), 2 * moments[2])
        between = Decimal(differences[2 * (i // 2)] * differences[2 * -(-i // 2)])
        return min(4 * between.sqrt(), 2 * moments[i])

    return {
        order: (Decimal(1) + sum(gamma**i * math.comb(order, i) * bound(i) for i in range(2, order + 1))).ln()
        / (order - 1)
        for order in orders
    }


@pytest.mark.parametrize(
    ("noise", "clients", "chosen", "rounds"), [(4.0, 1000, 10, 100), (2.0, 100, 10, 20), (10.0, 50, 5, 5)]
)
def test_an_amplified_epsilon_is_that_of_the_published_theorem(
    noise: float, clients: int, chosen: int, rounds: int
) -> None:
    """We found no published table for sampling without replacement, so the theorem is computed a second time.

    From divergences to epsilon: C. Canonne, G. Kamath, T. Steinke, "The Discrete Gaussian for Differential Privacy",
    NeurIPS 2020 (arXiv 2004.00010), Proposition 12. The library also tries orders that are not whole.
    """
    privacy = Privacy(clip=1.0, noise=noise, amplified=True)
    found = spent_epsilon(privacy, clients, Use(rounds, chosen, rounds))
    with localcontext(prec=200):
        divergence = theorem_27(chosen / clients, noise / 2, range(2, 64))
        whole = min(
            rounds * each + (1 - 1 / Decimal(order)).ln() - (Decimal(privacy.delta) * order).ln() / (order - 1)
            for order, each in divergence.items()
        )
    assert 0.99 * float(whole) < found <= float(whole) * (1 + 1e-9)


@pytest.mark.parametrize(("noise", "clients", "chosen"), [(4.0, 1000, 10), (2.0, 100, 10), (10.0, 50, 5)])
def test_an_amplified_epsilon_is_not_below_what_one_round_reveals(noise: float, clients: int, chosen: int) -> None:
    """A client that moves by the clipping norm or by its opposite, if it is chosen; no other client moves.

    The delta of these two mixtures of Gaussians at that epsilon, by integration, is a lower bound of the true one.
    """
    from scipy.integrate import quad
    from scipy.stats import norm as normal

    share = chosen / clients
    epsilon = spent_epsilon(Privacy(clip=1.0, noise=noise, amplified=True), clients, Use(1, chosen, 1))

    def density(x: float, moved: float) -> float:
        return float((1 - share) * normal.pdf(x, 0, noise) + share * normal.pdf(x, moved, noise))

    def excess(x: float) -> float:
        return max(0.0, density(x, 1.0) - math.exp(epsilon) * density(x, -1.0))

    delta = quad(excess, -20 * noise, 20 * noise, limit=1000, points=[0.0, 2 * noise, 5 * noise])[0]
    assert delta < 1e-5
    without = spent_epsilon(Privacy(clip=1.0, noise=noise), clients, Use(1, chosen, 1))
    assert epsilon < without


def test_the_page_quotes_what_the_accountant_says() -> None:
    page = (Path(__file__).parents[1] / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert (
        f"`z = 1` over 25 rounds with every client costs an `epsilon` of {gaussian_epsilon(0.5, 1e-5, 25):.0f}" in page
    )


def test_the_client_that_took_part_most_often_decides_and_a_secret_choice_costs_less() -> None:
    privacy = Privacy(clip=1.0, noise=4.0)
    use = Use(rounds=3, each=2, most=3)
    assert spent_epsilon(privacy, 20, use) == gaussian_epsilon(2.0, 1e-5, 3)
    assert spent_epsilon(privacy, 20, Use(rounds=2, each=2, most=1)) == gaussian_epsilon(2.0, 1e-5, 1)
    assert spent_epsilon(privacy, 20, Use(rounds=0, each=2, most=0)) == 0.0
    secret = privacy.model_copy(update={"amplified": True})
    assert 0 < spent_epsilon(secret, 20, use) < spent_epsilon(privacy, 20, use)
    local = secret.model_copy(update={"at": "client"})
    assert spent_epsilon(local, 20, use) == gaussian_epsilon(2.0, 1e-5, 3), "the server sees who sent what"
