"""Draw the pictures of `docs/method.md` into `docs/pictures/`. The same bytes each time, readable without colour.

python scripts/draw_method.py [DIRECTORY]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isfl.experiment.demo import demo_config
from isfl.plotting import COLOURS, tidy
from isfl.problem.problem import prepare
from isfl.theory import sampling_probabilities
from isfl.theory.arrays import Array
from isfl.theory.rho import rho_of
from isfl.theory.water_filling import direction, first_floor

PICTURES = Path(__file__).parent.parent / "docs/pictures"
DARK, PALE = COLOURS[0], "#E8EEF4"


def skew() -> Figure:
    """Draw the label mix of each client of `isfl demo`, and of all together: areas are shares."""
    problem = prepare(demo_config())
    counts = np.stack([data.class_counts for data in problem.clients]).astype(float)
    rows = np.vstack([counts, counts.sum(axis=0)])
    shares = rows / rows.sum(axis=1, keepdims=True)
    heights = np.append(np.arange(len(counts)), len(counts) + 0.6)  # the last row stands apart
    figure, axis = plt.subplots(figsize=(7.5, 5), layout="constrained")
    columns, lines = np.meshgrid(np.arange(rows.shape[1]), heights)
    axis.scatter(columns[:-1], lines[:-1], s=700 * shares[:-1], color=DARK)
    axis.scatter(columns[-1], lines[-1], s=700 * shares[-1], color="black")
    axis.axhline(len(counts) - 0.2, color="black", linewidth=0.6)
    axis.set_xticks(range(rows.shape[1]), problem.class_names, rotation=30, ha="right")
    axis.set_yticks(heights, [*(f"client {k}: $p^{k}$" for k in range(len(counts))), "all together: $p$"])
    axis.invert_yaxis()
    axis.margins(0.08)
    tidy(axis, "Shares of the classes on each client (area)", "", "")
    return figure


@dataclass(frozen=True)
class Problem:
    """One client's sampling problem, with invented numbers and visible floors."""

    p: Array
    local: Array
    lipschitz: Array
    floor: float

    @property
    def floors(self) -> Array:
        return self.floor * self.local

    @property
    def alpha(self) -> Array:
        return direction(self.lipschitz[None] ** 2)[0]

    @property
    def step(self) -> float:
        return float(first_floor(self.p[None], self.alpha[None], self.floors[None])[0])

    def rho(self, gamma: float) -> float:
        return float(rho_of((self.p + gamma * self.alpha)[None], self.p[None], self.lipschitz[None] ** 2)[0])


EXAMPLE = Problem(
    p=np.array([0.22, 0.2, 0.22, 0.2, 0.16]),
    local=np.array([0.5, 0.05, 0.1, 0.25, 0.1]),
    lipschitz=np.array([1.5, 1.0, 1.9, 2.3, 1.3]),
    floor=0.2,
)


def water_filling() -> Figure:
    """Draw the paper's rule on one client: its Lipschitz values, the move from p to q, and `rho` along it."""
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.6), layout="constrained", width_ratios=(1, 1.5, 1.2))
    _values(axes[0], EXAMPLE)
    _move(axes[1], EXAMPLE)
    _along_the_ray(axes[2], EXAMPLE)
    return figure


def _values(axis: Axes, problem: Problem) -> None:
    classes = np.arange(len(problem.p))
    axis.bar(classes, problem.lipschitz**2, width=0.55, color=PALE, edgecolor="black")
    mean = float((problem.lipschitz**2).mean())
    axis.axhline(mean, color="black", linestyle="--")
    axis.text(-0.3, mean, "average", va="bottom")
    axis.set_xticks(classes, list("abcde"))
    tidy(axis, "1  measured: $L^2$ of each class", "class", "")


def _move(axis: Axes, problem: Problem) -> None:
    classes = np.arange(len(problem.p))
    q = sampling_probabilities(problem.p, problem.local, problem.lipschitz, floor=problem.floor)
    for i, (start, end) in enumerate(zip(problem.p, q, strict=True)):
        axis.annotate("", (i, end), (i, start), arrowprops={"arrowstyle": "-|>", "shrinkA": 4, "shrinkB": 4})
    axis.hlines(problem.floors, classes - 0.3, classes + 0.3, color="black", linewidth=2.5, label="floor · $p^k$")
    axis.scatter(classes, problem.p, s=60, facecolor="white", edgecolor="black", zorder=3, label="$p$, the target")
    axis.scatter(classes, q, s=60, marker="s", color=DARK, zorder=3, label=r"$q = p + \Gamma\alpha$")
    axis.set_xticks(classes, list("abcde"))
    axis.set_ylim(0, 0.5)
    axis.legend(frameon=False, loc="upper right")
    tidy(axis, "2  moved: to the first floor", "class", "probability")


def _along_the_ray(axis: Axes, problem: Problem) -> None:
    within, beyond = np.linspace(0, problem.step, 50), np.linspace(problem.step, 2.2 * problem.step, 50)
    axis.plot(within, [problem.rho(gamma) for gamma in within], color=DARK, linewidth=2)
    axis.plot(beyond, [problem.rho(gamma) for gamma in beyond], color="black", linestyle=":")
    axis.scatter([0], [problem.rho(0)], s=60, facecolor="white", edgecolor="black", zorder=3)
    axis.scatter([problem.step], [problem.rho(problem.step)], s=60, marker="s", color=DARK, zorder=3)
    axis.annotate("$p$", (0, problem.rho(0)), (6, 4), textcoords="offset points")
    axis.annotate(
        "$q$: class d\nis at its floor", (problem.step, problem.rho(problem.step)), (8, 6), textcoords="offset points"
    )
    tidy(axis, r"3  gained: $\rho$ falls", r"step $\Gamma$", r"$\rho(q)$")


@dataclass(frozen=True)
class Step:
    """A line of the diagram: work `at` the server or the client, or a message from there to the other."""

    at: str
    text: str
    message: bool = False


AT_SERVER = (
    Step("client", "at first, once: class counts", message=True),
    Step("server", r"model $\theta$, probabilities $q^k$", message=True),
    Step("client", "train $E_l$ epochs,\nclasses drawn by $q^k$"),
    Step("client", r"model $\theta^k$", message=True),
    Step("server", r"average: new $\theta$"),
    Step("server", "on $D_L$, for every client:\n$L$ between $\\theta^k$ and $\\theta$"),
    Step("server", "from $p$, $p^k$ and $L$:\n$q^k$ of the next round"),
)
AT_CLIENT = (
    Step("client", "at first, once: number of samples", message=True),
    Step("server", r"model $\theta$, target $p$, values $L_k$", message=True),
    Step("client", "from $p$, $p^k$ and $L_k$: $q^k$"),
    Step("client", "train $E_l$ epochs,\nclasses drawn by $q^k$"),
    Step("client", r"model $\theta^k$", message=True),
    Step("server", r"average: new $\theta$"),
    Step("server", "on $D_L$, for every client:\n$L$ between $\\theta^k$ and $\\theta$"),
)
LANES = {"server": 1.0, "client": 4.6}


def one_round() -> Figure:
    """Draw a round in both modes: the steps of server and client, and the messages between them."""
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 6), layout="constrained")
    _diagram(axes[0], 'where = "server"', AT_SERVER)
    _diagram(axes[1], 'where = "client"', AT_CLIENT)
    return figure


def _diagram(axis: Axes, title: str, steps: Sequence[Step]) -> None:
    longest = max(len(AT_SERVER), len(AT_CLIENT))
    for name, x in LANES.items():
        label = "server" if name == "server" else "client k"
        axis.text(x, 0.75, label, ha="center", weight="bold")
        axis.plot([x, x], [0.6, -longest + 0.4], color="black", linewidth=0.6, linestyle=":")
    for number, step in enumerate(steps):
        (_message if step.message else _work)(axis, step, -float(number))
    axis.set_title(title, family="monospace")
    axis.set_xlim(-0.6, 6.2)
    axis.set_ylim(-longest + 0.3, 1.1)
    axis.set_axis_off()


def _work(axis: Axes, step: Step, y: float) -> None:
    box = {"boxstyle": "round,pad=0.4", "facecolor": PALE, "edgecolor": "black"}
    axis.text(LANES[step.at], y, step.text, ha="center", va="center", bbox=box)


def _message(axis: Axes, step: Step, y: float) -> None:
    start, end = LANES[step.at], LANES["client" if step.at == "server" else "server"]
    axis.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "-|>", "linewidth": 1.6, "color": DARK})
    axis.text((start + end) / 2, y + 0.08, step.text, ha="center", va="bottom")


DRAWINGS: dict[str, Callable[[], Figure]] = {
    "skew.svg": skew,
    "water-filling.svg": water_filling,
    "one-round.svg": one_round,
}


def draw(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with plt.rc_context({"svg.hashsalt": "isfl", "font.size": 11, "axes.axisbelow": True}):
        for name, drawing in DRAWINGS.items():
            figure = drawing()
            figure.savefig(directory / name, metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
