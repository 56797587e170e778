"""Configurations: shorthands, defaults, overrides; a mistake is one line that names the key and the remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isfl.data.splits import SPLITS
from isfl.data.splits.flower import FlowerSplit
from isfl.data.splits.mixed import MixedSplit
from isfl.data.splits.natural import NaturalSplit
from isfl.errors import UserError
from isfl.federation import SHORTHANDS
from isfl.federation.sampling_rules.capped import CappedRepeats
from isfl.federation.sampling_rules.isfl import ImportanceSampling
from isfl.federation.sampling_rules.target import TargetShares
from isfl.federation.sampling_rules.tempered import Tempered
from isfl.federation.scheme import Scheme
from isfl.problem.config import Config, config_from, load_config, parse_config
from isfl.problem.problem import prepare


def test_every_name_is_a_shorthand_for_three_parts() -> None:
    parts = {
        name: (scheme.sampling.rule, scheme.objective.kind, scheme.aggregation.rule)
        for name in SHORTHANDS
        for scheme in [Scheme.model_validate(name)]
    }
    assert parts == {
        "fedavg": ("shuffle", "cross-entropy", "mean"),
        "uniform-is": ("uniform", "cross-entropy", "mean"),
        "pj-is": ("target", "cross-entropy", "mean"),
        "pj-unnormalised": ("target", "cross-entropy", "mean"),
        "isfedavg": ("gradient-norm", "cross-entropy", "mean"),
        "isfl": ("isfl", "cross-entropy", "mean"),
        "fedprox": ("shuffle", "fedprox", "mean"),
        "moon": ("shuffle", "moon", "mean"),
        "fedlc": ("shuffle", "fedlc", "mean"),
        "fedntd": ("shuffle", "fedntd", "mean"),
        "tempered": ("tempered", "cross-entropy", "mean"),
        "decaying": ("tempered", "cross-entropy", "mean"),
        "shrunk": ("shrunk", "cross-entropy", "mean"),
        "capped": ("capped", "cross-entropy", "mean"),
        "bias-variance": ("bias-variance", "cross-entropy", "mean"),
        "calibrated": ("tempered", "cross-entropy", "mean"),
        "adaptive": ("capped", "cross-entropy", "mean"),
        "centralized": ("shuffle", "cross-entropy", "mean"),
    }
    calibrated = Scheme.model_validate("calibrated")
    assert calibrated.objective.calibrate and calibrated.sampling == Tempered(temperature=0.5)
    adaptive = Scheme.model_validate("adaptive")
    assert adaptive.objective.calibrate and adaptive.sampling == CappedRepeats(repeats=10.0)
    assert Scheme.model_validate("centralized").pooled
    assert Scheme.model_validate("pj-is").sampling == TargetShares()
    assert Scheme.model_validate("pj-unnormalised").sampling == TargetShares(normalised=False)


def test_isfl_with_moon_is_one_line() -> None:
    config = parse_config('scheme = {name = "isfl", objective = {kind = "moon", mu = 2.0}}', "c.toml")
    assert isinstance(config.scheme.sampling, ImportanceSampling)
    assert config.scheme.objective.kind == "moon" and getattr(config.scheme.objective, "mu", None) == 2.0


def test_a_part_of_the_same_kind_keeps_the_shorthands_other_settings() -> None:
    config = parse_config('scheme = {name = "calibrated", sampling = {temperature = 0.9}}', "c.toml")
    assert config.scheme.sampling == Tempered(temperature=0.9)
    assert config.scheme.objective.calibrate


def test_a_change_of_kind_keeps_what_all_kinds_have() -> None:
    scheme = Scheme.model_validate({"name": "calibrated", "objective": {"kind": "fedprox"}})
    assert scheme.objective.kind == "fedprox" and scheme.objective.calibrate


def test_a_table_without_its_kind_means_the_default_kind() -> None:
    config = parse_config("[split]\nclients = 5\n[training.optimizer]\nlr = 0.01", "c.toml")
    assert config.split == MixedSplit(clients=5)
    assert (config.training.optimizer.kind, config.training.optimizer.lr) == ("adam", 0.01)


def test_the_defaults_are_the_papers() -> None:
    training = Config().training
    assert (training.rounds, training.local_epochs, training.batch_size) == (25, 5, 128)
    assert training.optimizer.kind == "adam" and training.optimizer.lr == 1e-3
    assert Config().data.public == 500
    sampling = Config().scheme.sampling
    assert isinstance(sampling, ImportanceSampling)
    assert (sampling.solver, sampling.floor, sampling.where, sampling.reference) == ("paper", 0.05, "server", "after")


def test_the_default_sizes_of_every_split_fit_the_embedded_data() -> None:
    for kind in SPLITS:
        if kind not in (FlowerSplit, NaturalSplit):  # its sizes are options of a library; it has none
            config = config_from({"split": {"kind": kind.model_fields["kind"].default}}, "c.toml")
            assert len(prepare(config).clients) == 10


def test_a_resolved_configuration_reads_back_to_itself() -> None:
    for name in SHORTHANDS:
        config = config_from({"scheme": name, "seed": 3}, "x")
        assert config_from(json.loads(json.dumps(config.model_dump(mode="json"))), "x") == config


def test_transforms_schedule_and_normalisation_read_back_to_themselves() -> None:
    text = """
        scheme = {name = "moon", objective = {representation = "logits"}}
        [training]
        augment = ["crop", {kind = "flip", probability = 0.3}, "my.module:transform"]
        schedule = {kind = "cosine", last = 0.1}
        initial_models = "independent"
        [data]
        public_from = "all"
        normalize = {mean = [0.5], std = [0.25]}
        [split]
        overlap = true
    """
    config = parse_config(text, "c.toml")
    written = json.loads(json.dumps(config.model_dump(mode="json")))
    assert config_from(written, "x") == config
    assert [entry["kind"] for entry in written["training"]["augment"]] == ["crop", "flip", "own"]
    assert written["training"]["augment"][0]["padding"] == 4, "defaults are filled in"


def test_deviations_of_the_authors_code_are_off_by_default() -> None:
    config = Config()
    assert (config.training.augment, config.training.schedule.kind) == ([], "constant")
    assert (config.training.initial_models, config.data.public_from, config.data.normalize) == (
        "shared",
        "unused",
        None,
    )
    assert isinstance(config.split, MixedSplit) and not config.split.overlap


def test_overrides_are_toml_values_or_plain_words() -> None:
    config = parse_config(
        'scheme = "isfl"',
        "c.toml",
        [
            "training.rounds=7",
            "scheme.sampling.floor=0.01",
            "split.kind=dirichlet",
            "split.alpha = 0.4",
            'data.name="fashion-mnist-mini"',
            "target={kind='given', shares=[0.5, 0.5]}",
        ],
    )
    assert config.training.rounds == 7 and config.split.kind == "dirichlet"
    assert isinstance(config.scheme.sampling, ImportanceSampling) and config.scheme.sampling.floor == 0.01
    assert parse_config('scheme = "isfl"', "c.toml", ["scheme=fedprox"]).scheme.name == "fedprox"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[training]\nround = 3", "training.round: unknown key; did you mean 'rounds'?"),
        ("secure = true", "secure: found True; input should be a table, [secure]"),
        ("[training]\nrounds = 0", "training.rounds: found 0; input should be greater than or equal to 1"),
        ('[training]\nrounds = "many"', "training.rounds: found 'many'; input should be a valid integer"),
        ("[training]\nparticipation = 1.5", "training.participation: found 1.5"),
        ('scheme = "fedsomething"', "scheme: unknown scheme 'fedsomething'; choose one of fedavg, uniform-is"),
        ('scheme = {name = "isfl", sampling = {floor = 1.5}}', "scheme.sampling.floor: found 1.5"),
        (
            'scheme = {name = "isfl", sampling = {floor = 0.6, target_floor = 0.6}}',
            "scheme.sampling: floor + target_floor is 1.2; it must not exceed 1",
        ),
        ('scheme = {sampling = {rule = "magic"}}', "scheme.sampling.rule: found 'magic'; choose one of 'shuffle'"),
        (
            'scheme = {name = "isfl", sampling = {estimator = "fast"}}',
            "scheme.sampling.estimator: found 'fast'; input should be 'exact', 'class-mean' or 'last-layer'",
        ),
        (
            'scheme = {name = "isfl", sampling = {solver = "fast"}}',
            "scheme.sampling.solver: found 'fast'; input should be 'paper' or 'exact'",
        ),
        ('split = {kind = "mixed", nr = 2.0}', "split.nr: found 2.0"),
        ('target = {kind = "given", shares = [0.5, 0.6]}', "target.shares: shares sums to 1.1"),
        (
            'target = {kind = "given", shares = [0.5, nan]}',
            "target.shares.1: found nan; input should be a finite number",
        ),
        ('target = {kind = "noised"}', "target.epsilon: is required"),
        ("seed = -1", "seed: found -1"),
        ('[split]\nkind = "dirichlet"\nshard_size = 3', "split.shard_size: unknown key"),
        ('[split]\nkind = "feature"\nlens = "noise"\nstrength = 45', "split: strength is 45; for noise"),
        ("[training]\nrounds = true", "training.rounds: found True"),
        ('[training]\nrounds = "2"', "training.rounds: found '2'"),
        ("[training]\ndrop_last = 1", "training.drop_last: found 1"),
        ("[training.optimizer]\nlr = inf", "training.optimizer.lr: found inf; input should be a finite number"),
        ("[training.optimizer]\nlr = 1e300", "training.optimizer.lr: found 1e+300"),
        ("[model]\nwidth = 1e7", "model.width: found 10000000.0"),
        ('scheme = {name = ["x"]}', "unknown scheme ['x']"),
        ("seed = " + "9" * 5000, "not valid TOML"),
        ("x = " + "[" * 3000 + "]" * 3000, "not valid TOML"),
        ("training = 3", "training: found 3"),
        ('[training]\naugment = "crop"', "training.augment: found 'crop'; input should be a valid list"),
        ("[training]\naugment = [3]", "training.augment.0: "),
        ('[training]\ninitial_models = "own"', "training.initial_models: found 'own'; input should be 'shared' or"),
        (
            '[data]\npublic_from = "test"',
            "data.public_from: found 'test'; input should be 'unused', 'unused-random' or 'all'",
        ),
        ("[split]\noverlap = 1", "split.overlap: found 1"),
        ('[split]\nkind = "shards"\noverlap = true', "split.overlap: unknown key"),
        ('scheme = {name = "isfedavg", sampling = {unbiased = 1}}', "scheme.sampling.unbiased: found 1"),
        ('scheme = {name = "moon", objective = {representation = "z"}}', "scheme.objective.representation: found 'z'"),
        ("x = [", "not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_with_key_and_remedy(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config(text, "c.toml")
    assert str(caught.value).startswith("c.toml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [("rounds", "write key=value"), ("seed.x=1", "'seed' is 3, not a table"), ("=3", "write key=value")],
)
def test_an_invalid_override_is_named(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_config("seed = 3", "c.toml", [override])


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.toml: no such file"):
        load_config(tmp_path / "nothing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read as text"):
        load_config(tmp_path / "binary.toml")
