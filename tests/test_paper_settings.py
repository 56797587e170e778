"""Every setting of the paper's experiments, and one cell per published number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from isfl.data.splits.mixed import MixedSplit
from isfl.errors import UserError
from isfl.experiment.paper import EXPERIMENTS
from isfl.experiment.paper_setting import Plan, Setting
from isfl.experiment.published import published, published_in
from isfl.experiment.reproduce import plans_of
from isfl.problem.config import config_from
from isfl.report.reading import flat
from tests.reproduction import INTERPRETATIONS, refused, setting


def settings_of(plan: Plan) -> dict[str, Any]:
    """Return every setting of a cell under its key `a.b.c`."""
    return flat(config_from(plan.config, "x").model_dump(mode="json"))


PAPER = {
    "data.name": "cifar10",
    "data.normalize": None,
    "model.name": "resnet8",
    "model.width": 1.0,
    "training.rounds": 25,
    "training.local_epochs": 5,
    "training.batch_size": 128,
    "training.sampling_ratio": 1.0,
    "training.participation": 1.0,
    "training.optimizer.kind": "adam",
    "training.optimizer.lr": 1e-3,
    "training.optimizer.beta1": 0.9,
    "training.optimizer.beta2": 0.999,
    "training.optimizer.weight_decay": 0.0,
    "training.schedule.kind": "constant",
    "training.batchnorm": "average",
    "scheme.aggregation.rule": "mean",
    "target.kind": "global",
}
"""What all interpretations of table2 share."""
DIFFERENT: dict[str, tuple[Any, Any, Any]] = {
    "split.clients": (10, 10, 20),
    "data.public": (500, 1000, 500),
    "data.public_from": ("unused-random", "all", "all"),
    "training.augment": ([], [], []),
    "training.initial_models": ("shared", "independent", "independent"),
    "scheme.aggregation.weights": ("size", "client", "client"),
}
MIXED = {"split.reading": ("text", "code", "code"), "split.overlap": (False, True, True)}
ISFL = {
    "scheme.sampling.reference": ("after", "before", "before"),
    "scheme.sampling.first_round": ("local", "target", "target"),
}


@pytest.mark.parametrize("interpretation", INTERPRETATIONS)
def test_the_full_scale_of_table_2_field_by_field(interpretation: str) -> None:
    own = INTERPRETATIONS.index(interpretation)
    plans = plans_of("table2", setting("paper", interpretation))
    assert len(plans) == 4 * 12
    for plan in plans:
        found = settings_of(plan)
        is_isfl = plan.label.startswith("isfl-")
        expected = PAPER | {key: values[own] for key, values in DIFFERENT.items()}
        if plan.group.startswith("nr-"):
            expected |= {"split.kind": "mixed", "split.nr": float(plan.group[3:])}
            expected |= {"split.shards_per_client": 2, "split.shard_size": 500}
            expected |= {key: values[own] for key, values in MIXED.items()}
        else:
            expected |= {"split.kind": "dirichlet", "split.alpha": float(plan.group[10:])}
            expected |= {"split.samples_per_client": 1000}
        if is_isfl:
            expected |= {key: values[own] for key, values in ISFL.items()}
        # only the authors' ISFL loader drops the last batch
        expected["training.drop_last"] = is_isfl and interpretation != "text"
        assert {key: found[key] for key in expected} == expected, (plan.group, plan.label)
    floors = {p.label: settings_of(p)["scheme.sampling.floor"] for p in plans if p.label.startswith("isfl-0")}
    assert floors == {"isfl-0.05": 0.05, "isfl-0.01": 0.01}


@pytest.mark.parametrize("interpretation", INTERPRETATIONS)
def test_the_full_scale_of_table_3_field_by_field(interpretation: str) -> None:
    cells = {(p.group, p.label): settings_of(p) for p in plans_of("table3", setting("paper", interpretation))}
    assert [cells[data, "fedprox"]["scheme.objective.mu"] for data in ("cifar10", "cifar100")] == [0.2, 0.01]
    assert [cells[data, "moon"]["scheme.objective.tau"] for data in ("cifar10", "cifar100")] == [0.5, 0.2]
    assert [cells[data, "moon"]["scheme.objective.mu"] for data in ("cifar10", "cifar100")] == [1.0, 1.0]
    by_code = interpretation != "text"
    representation = "logits" if by_code else "features"
    assert cells["cifar10", "moon"]["scheme.objective.representation"] == "features"
    assert cells["cifar100", "moon"]["scheme.objective.representation"] == representation
    for (data, _), found in cells.items():
        assert found["split.clients"] == 10, "the paper says so for this table"
        ten = data == "cifar10"
        assert found["training.rounds"] == (25 if ten else 30)
        assert found["model.name"] == ("resnet8" if ten else "resnet9")
        assert found["split.alpha"] == (0.2 if ten else 0.5)
        assert found["split.samples_per_client"] == (1000 if ten else 5000 if by_code else 4950)
        assert ("data.normalize.mean" in found) == (by_code and not ten)


@pytest.mark.parametrize("interpretation", INTERPRETATIONS)
def test_the_centralised_reference_sees_every_image(interpretation: str) -> None:
    for plan in plans_of("centralized", setting("paper", interpretation)):
        found = settings_of(plan)
        assert (found["split.kind"], found["split.clients"], found["split.samples_per_client"]) == ("iid", 1, 50_000)
        assert found["data.public_from"] == "all"
        clients = settings_of(
            next(p for p in plans_of("table3", setting("paper", interpretation)) if p.group == plan.group)
        )
        for key in ("rounds", "local_epochs", "batch_size", "optimizer.lr", "schedule.kind"):
            assert found[f"training.{key}"] == clients[f"training.{key}"], "as many epochs as a client trains in total"
        assert found["model.name"] == clients["model.name"]
    known = {group: rows["centralized"] for group, rows in published().rows("centralized").items()}
    assert known == {"cifar10": {"standard": 91.25}, "cifar100": {"standard": 62.25, "top5": 85.25}}


@pytest.mark.parametrize("interpretation", INTERPRETATIONS)
@pytest.mark.parametrize("scale", ["quick", "half"])
def test_smaller_scales_differ_in_width_and_rounds_only(scale: str, interpretation: str) -> None:
    for name in EXPERIMENTS:
        small, full = (plans_of(name, setting(size, interpretation)) for size in (scale, "paper"))
        for one, other in zip(small, full, strict=True):
            reduced = settings_of(one)
            assert (one.group, one.label, reduced["model.width"]) == (other.group, other.label, 0.5)
            expected = settings_of(other) | {"model.width": 0.5}
            assert reduced == expected | ({"training.rounds": 10} if scale == "quick" else {})


@pytest.mark.parametrize(("interpretation", "share"), [("text", 0.02), ("authors", 0.1), ("published", 0.05)])
def test_the_cost_figure_varies_sizes_and_not_the_skew(interpretation: str, share: float) -> None:
    plans = plans_of("fig-cost", setting("paper", interpretation))
    plans += [p for p in plans_of("table2", setting("paper", interpretation)) if p.group == "nr-0.98"]
    for plan in plans:
        split = config_from(plan.config, "x").split
        assert isinstance(split, MixedSplit)
        whole = 0.5 / split.shard_size  # a shard holds whole samples
        assert split.iid_per_shard(50_000) / split.shard_size == pytest.approx(share, abs=whole + 1e-9), plan.group
    shapes = {
        (p.config["split"]["clients"], p.config["split"]["shard_size"], p.config["data"]["public"]) for p in plans
    }
    assert len({k for k, _, _ in shapes}) == 3 and len({n for _, n, _ in shapes}) == 3


def test_the_number_of_clients_can_be_set_except_where_an_experiment_varies_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("table2", "table3", "fig-cross", "fig-convergence", "fig-rho", "fig-q", "fig-sr"):
        assert {p.config["split"]["clients"] for p in plans_of(name, setting("paper", "text", 20))} == {20}
    # 20 clients cannot have 5,000 images of CIFAR-100 each
    sizes = [p.config["split"] for p in plans_of("table3", setting("paper", "authors", 20)) if p.group == "cifar100"]
    assert {split["samples_per_client"] for split in sizes} == {2500}
    cost = {p.group: p.config["split"]["clients"] for p in plans_of("fig-cost", setting("paper", "text", 15))}
    assert cost == {
        "K=5": 5,
        "K=10": 10,
        "K=15": 15,
        "K=20": 20,
        "Dk=500": 15,
        "Dk=2000": 15,
        "DL=250": 15,
        "DL=1000": 15,
    }
    assert "no clients to vary" in refused(
        capsys, "centralized", "--scale", "smoke", "--clients", "20", "--out", str(tmp_path / "out")
    )


def test_every_published_number_has_a_cell() -> None:
    for name in ("table2", "table3", "fig-sr", "centralized"):
        cells = {(p.group, p.label) for p in plans_of(name, setting("paper"))}
        numbers = {(group, label) for group, rows in published().rows(name).items() for label in rows}
        assert numbers and numbers <= cells, name
    assert published().rows("fig-cross") == published().rows("table3")
    assert published().experiments.keys() <= EXPERIMENTS.keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "found []; write a table"),
        ('{"table2": {}}', "source: found None; write where the numbers are from"),
        ('{"source": "x", "table2": {"a": {"b": [1]}}}', "table2: a: b: has 1 numbers; write [D_S, D_G]"),
        ('{"source": "x", "table2": {"a": {"b": [1, NaN]}}}', "table2: a: b: found nan; write a number"),
        ('{"source": "x", "table2": {"a": {"b": {"speed": 1}}}}', "unknown key 'speed'; use accuracy, top5, speedup"),
        ('{"source": "x", "table2": {}, "fig": "table3"}', "fig: found 'table3'; name one of table2"),
    ],
)
def test_a_wrong_file_of_published_numbers_is_one_line_that_names_the_place(text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        published_in(text, "numbers.json")


def test_personalisation_moves_the_target_and_nothing_else() -> None:
    for row in ("pj-is", "isfl-0.05"):
        configs = [config_from(p.config, "x") for p in plans_of("fig-personal", Setting("half")) if p.label == row]
        assert [c.target.model_dump() for c in configs] == [
            {"kind": "local", "weight": weight} for weight in (0.0, 0.25, 0.5, 0.75, 1.0)
        ]
        assert len({c.model_dump_json(exclude={"target"}) for c in configs}) == 1
