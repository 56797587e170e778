"""Splits have the documented sizes and mixes and share no sample; impossible splits are refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isfl.data import Dataset, DataSettings, load, partition
from isfl.data.splits import Split
from isfl.data.splits.dirichlet import DirichletSplit
from isfl.data.splits.feature import FeatureSplit, seen_by
from isfl.data.splits.flower import FlowerSplit
from isfl.data.splits.iid import IIDSplit
from isfl.data.splits.mixed import MixedSplit
from isfl.data.splits.shards import ShardSplit
from isfl.errors import UserError
from isfl.problem.config import config_from
from isfl.problem.problem import prepare
from isfl.theory import skew_card
from tests.worlds import module_at

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 500))
SPLITS: list[Split] = [
    IIDSplit(clients=7, samples_per_client=300),
    ShardSplit(clients=10, shard_size=100),
    MixedSplit(clients=10, shard_size=100, nr=0.9),
    MixedSplit(clients=10, shard_size=100, nr=0.96, reading="code"),
    DirichletSplit(clients=10, alpha=0.2, samples_per_client=200),
    FeatureSplit(clients=4, samples_per_client=50),
]


def counts_of(parts: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.stack([np.bincount(LABELS[p], minlength=10) for p in parts])


@pytest.mark.parametrize("split", SPLITS, ids=lambda s: f"{s.kind}-{getattr(s, 'reading', '')}")
def test_clients_and_the_public_set_share_no_sample(split: Split) -> None:
    parts = partition(split, LABELS, public=500, seed=3)
    everything = np.concatenate([*parts.clients, parts.public])
    assert len(np.unique(everything)) == len(everything)
    assert len(parts.public) == 500
    assert len(parts.clients) == getattr(split, "clients", 10)
    assert min(map(len, parts.clients)) > 0


@pytest.mark.parametrize("split", SPLITS, ids=lambda s: f"{s.kind}-{getattr(s, 'reading', '')}")
def test_a_split_is_a_function_of_the_seed(split: Split) -> None:
    one, two, other = (partition(split, LABELS, 100, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one.clients, two.clients, strict=True))
    assert np.array_equal(one.public, two.public)
    assert not all(np.array_equal(a, b) for a, b in zip(one.clients, other.clients, strict=True))


def test_the_public_set_is_balanced_as_far_as_the_data_goes() -> None:
    for public in (500, 503):
        counts = np.bincount(LABELS[partition(SPLITS[2], LABELS, public, seed=0).public], minlength=10)
        assert counts.sum() == public and counts.max() - counts.min() <= 1
    rare = np.repeat(np.arange(3), [1000, 1000, 4])
    parts = partition(IIDSplit(clients=2, samples_per_client=100), rare, 30, seed=0)
    assert np.bincount(rare[parts.public]).tolist() == [13, 13, 4]


def test_the_published_sizes_of_the_mixed_split() -> None:
    """CIFAR-10, K = 10: 1,000 samples per client, of which the authors' code makes 25 % and 10 % i.i.d."""
    labels = np.repeat(np.arange(10), 5000)
    for nr, iid in ((0.95, 250), (0.98, 100)):
        parts = partition(MixedSplit(shard_size=500, nr=nr, reading="code"), labels, 500, seed=0)
        assert [len(p) for p in parts.clients] == [1000] * 10
        counts = np.stack([np.bincount(labels[p], minlength=10) for p in parts.clients])
        # Classes outside the shards hold the i.i.d. part alone: about iid / 10 each.
        assert np.median(counts) == pytest.approx(iid / 10, rel=0.35)
    text = partition(MixedSplit(shard_size=500, nr=0.98), labels, 500, seed=0)
    counts = np.stack([np.bincount(labels[p], minlength=10) for p in text.clients])
    assert np.median(counts) <= 5  # the paper's text: 2 % of 1,000, spread over ten classes


def test_the_published_sizes_of_the_mixed_split_with_overlap() -> None:
    """The released code assigns an i.i.d. part, and two shards cut from all of CIFAR-10's 50,000 samples."""
    labels = np.repeat(np.arange(10), 5000)
    for clients, nr, iid, of_a_shard in (
        (10, 0.98, 100, 450),
        (20, 0.98, 50, 475),
        (10, 0.95, 250, 375),
        (20, 0.95, 124, 438),
    ):
        split = MixedSplit(clients=clients, shard_size=500, nr=nr, reading="code", overlap=True)
        parts = partition(split, labels, 500, seed=0, public_from="all")
        assert [len(p) for p in parts.clients] == [1000] * clients
        assert iid + 2 * of_a_shard == 1000
        for indices in parts.clients:
            counts = np.sort(np.bincount(labels[indices], minlength=10))
            # Two shards are of two classes (or of one); the other classes hold about a tenth of the i.i.d. part each.
            assert counts[:6].sum() < iid and counts[:6].mean() == pytest.approx(iid / 10, rel=0.6)
            assert counts[-4:].sum() > 2 * of_a_shard


def test_with_overlap_two_clients_can_have_the_same_sample() -> None:
    """Shards of 100 that are all of the data: every sample of the i.i.d. part lies in one of them too."""
    split = MixedSplit(clients=25, shard_size=200, nr=0.5, overlap=True)
    labels = np.repeat(np.arange(10), 500)
    parts = partition(split, labels, 500, seed=0, public_from="all")
    given_out = np.concatenate(parts.clients)
    owners = np.bincount(given_out, minlength=5000)
    assert len(given_out) == 25 * 2 * 200
    assert owners.max() == 2 and (owners == 2).sum() == 25 * 2 * 100 and (owners == 0).sum() == 0
    assert any(len(np.unique(own)) < len(own) for own in parts.clients), "one client may hold a sample twice"
    apart = partition(MixedSplit(clients=10, shard_size=200, nr=0.5), labels, 500, seed=0)
    assert np.bincount(np.concatenate(apart.clients)).max() == 1


def test_the_iid_part_is_the_same_with_and_without_overlap_and_only_shards_differ() -> None:
    split = MixedSplit(clients=5, shard_size=100, nr=0.5)
    with_overlap = split.model_copy(update={"overlap": True})
    apart, over = (partition(s, LABELS, 100, seed=4, public_from="all").clients for s in (split, with_overlap))
    assert [len(p) for p in apart] == [len(p) for p in over] == [200] * 5
    for a, b in zip(apart, over, strict=True):
        assert len(np.intersect1d(a, b)) >= 90, "a hundred i.i.d. samples each, a few of them twice"
        assert not np.array_equal(a, b)


def test_a_public_set_from_all_samples_is_random_and_may_be_the_clients_own() -> None:
    split = IIDSplit(clients=10, samples_per_client=500)  # every sample belongs to a client
    one, same, other = (partition(split, LABELS, 700, seed, "all") for seed in (1, 1, 2))
    assert np.array_equal(one.public, same.public) and not np.array_equal(one.public, other.public)
    assert len(np.unique(one.public)) == 700
    assert np.array_equal(np.sort(np.concatenate(one.clients)), np.arange(5000))
    counts = np.bincount(LABELS[one.public], minlength=10)
    assert counts.max() - counts.min() > 5, "not balanced: what chance gives"
    assert 700 - len(np.intersect1d(one.public, np.arange(2500))) == pytest.approx(350, abs=60), "from the whole pool"
    assert not np.array_equal(one.public, partition(SPLITS[0], LABELS, 700, 1).public)


def test_an_unused_public_set_can_be_random_as_the_paper_has_it() -> None:
    split = IIDSplit(clients=10, samples_per_client=100)
    parts = partition(split, LABELS, 700, 1, "unused-random")
    assert np.array_equal(parts.public, partition(split, LABELS, 700, 1, "all").public), "the same draw"
    assert len(np.intersect1d(parts.public, np.concatenate(parts.clients))) == 0, "no client owns it"


@pytest.mark.parametrize("public", [1, 10, 4999])
def test_a_public_set_from_all_samples_has_any_size(public: int) -> None:
    parts = partition(SPLITS[1], LABELS, public, seed=0, public_from="all")
    assert len(parts.public) == public and [len(p) for p in parts.clients] == [200] * 10


def test_a_run_uses_the_public_set_and_the_split_of_its_configuration() -> None:
    raw = {"data": {"public": 900, "public_from": "all"}, "split": {"clients": 5, "shard_size": 100, "overlap": True}}
    config = config_from(raw, "test")
    problem = prepare(config)
    labels = load(config.data).train.labels.numpy()
    parts = partition(config.split, labels, 900, config.seed, "all")
    assert problem.public.class_counts.tolist() == np.bincount(labels[parts.public], minlength=10).tolist() != [90] * 10
    for data, indices in zip(problem.clients, parts.clients, strict=True):
        assert np.array_equal(data.labels.numpy(), labels[indices])


def test_skew_grows_with_nr_and_falls_with_alpha() -> None:
    def distance(split: Split) -> float:
        return float(skew_card(counts_of(partition(split, LABELS, 100, seed=0).clients)).hellinger.mean())

    mixed = [distance(MixedSplit(shard_size=100, nr=nr)) for nr in (0.0, 0.5, 0.9, 1.0)]
    dirichlet = [distance(DirichletSplit(samples_per_client=200, alpha=a)) for a in (100.0, 1.0, 0.1)]
    assert mixed == sorted(mixed)
    assert dirichlet == sorted(dirichlet)
    assert distance(IIDSplit(samples_per_client=200)) < 0.15


def test_dirichlet_of_sorted_data_holds_all_classes() -> None:
    labels = np.repeat(np.arange(10), 600)
    parts = partition(DirichletSplit(clients=3, alpha=1.0, samples_per_client=200), labels, 100, seed=0)
    assert set(labels[np.concatenate(parts.clients)]) == set(range(10))


def test_nr_one_is_pure_shards_and_nr_zero_is_iid() -> None:
    pure = counts_of(partition(MixedSplit(shard_size=100, nr=1.0), LABELS, 100, seed=0).clients)
    assert ((pure > 0).sum(axis=1) <= 4).all()
    assert (counts_of(partition(MixedSplit(shard_size=100, nr=0.0), LABELS, 100, seed=0).clients) > 0).all()


@settings(max_examples=60, deadline=None)
@given(
    clients=st.integers(1, 60),
    alpha=st.sampled_from([1e-3, 0.05, 0.5, 50.0]),
    each=st.integers(1, 30),
    seed=st.integers(0, 5),
)
def test_dirichlet_ends_and_never_leaves_a_client_empty(clients: int, alpha: float, each: int, seed: int) -> None:
    parts = partition(DirichletSplit(clients=clients, alpha=alpha, samples_per_client=each), LABELS, 1, seed)
    sizes = [len(p) for p in parts.clients]
    assert min(sizes) >= 1 and sum(sizes) == clients * each


@pytest.mark.parametrize(
    ("split", "public", "message"),
    [
        (
            ShardSplit(clients=100, shard_size=100),
            10,
            r"100 clients x 2 shards of 100 = 20000 samples, the data has 4990",
        ),
        (MixedSplit(clients=26, shard_size=100, nr=0.5), 10, "lower split.clients"),
        (MixedSplit(clients=1, shard_size=100, nr=0.5, reading="code"), 10, "raise split.nr"),
        (IIDSplit(clients=10, samples_per_client=501), 10, "= 5010 samples, the data has 4990"),
        (DirichletSplit(clients=10, samples_per_client=501), 10, "= 5010 samples, the data has 4990"),
        (IIDSplit(clients=10, samples_per_client=500), 10, "= 5000 samples, the data has 4990 beside the public set"),
        (IIDSplit(clients=1, samples_per_client=1), 5000, "data.public asks for 5000 samples, the data has 5000"),
    ],
)
def test_a_split_that_cannot_be_made_says_why(split: Split, public: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        partition(split, LABELS, public, seed=0)


def test_the_embedded_data_is_balanced_and_scaled() -> None:
    source = load(DataSettings())
    assert source.train.class_counts.tolist() == [600] * 10
    assert source.test.class_counts.tolist() == [200] * 10
    inputs, labels = source.train.batch(np.array([3, 5]))
    assert inputs.shape == (2, 1, 28, 28) and inputs.dtype == torch.float32
    assert inputs.min() == -1.0 and inputs.max() <= 1.0
    assert torch.equal(labels, source.train.labels[[3, 5]])
    assert len(source.class_names) == 10


OFFICIAL = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.skipif(not OFFICIAL.exists(), reason="needs the Debian package dataset-fashion-mnist")
def test_the_embedded_data_is_what_the_script_builds() -> None:
    script = module_at(Path(__file__).parent.parent / "scripts/build_embedded_data.py")
    built, source = script.build(OFFICIAL), load(DataSettings())
    np.testing.assert_array_equal(built["train_images"], source.train.stored()[:, 0].numpy())
    np.testing.assert_array_equal(built["test_labels"], source.test.labels.numpy())


def test_inputs_that_are_not_bytes_are_left_alone() -> None:
    data = Dataset(torch.tensor([[0.5], [300.0]]), torch.tensor([0, 1]), 2)
    assert data.everything()[0].tolist() == [[0.5], [300.0]]


def test_an_unknown_data_set_is_named() -> None:
    with pytest.raises(UserError, match=r"data\.name is 'mnist'; choose one of"):
        load(DataSettings(name="mnist"))


# ---------------------------------------------------------------- feature skew and partitioners of flwr-datasets


def image_of(value: int) -> Dataset:
    """Images with a bright half and a dark half."""
    images = torch.zeros(6, 1, 16, 16, dtype=torch.uint8)
    images[:, :, :8] = value
    return Dataset(images, torch.arange(6) % 2, 2)


def test_each_client_has_its_own_lens() -> None:
    data = image_of(200)
    turned = [seen_by(k, data, FeatureSplit(clients=3, lens="rotation", strength=90.0), 0) for k in range(3)]
    assert torch.equal(turned[1].stored(), data.stored())  # the one in the middle sees straight
    assert torch.equal(turned[0].stored()[0, 0, :, :8], 200 - turned[2].stored()[0, 0, :, :8])  # a quarter each way
    flat = [seen_by(k, data, FeatureSplit(clients=3, lens="contrast", strength=1.0), 0) for k in range(3)]
    assert (flat[0].stored() == 100).all() and torch.equal(flat[1].stored(), data.stored())
    noisy = [seen_by(k, data, FeatureSplit(clients=3, lens="noise", strength=0.2), 0) for k in range(3)]
    assert torch.equal(noisy[0].stored(), data.stored())
    spread = [float((n.stored().float() - data.stored().float()).std()) for n in noisy]
    assert spread == sorted(spread) and torch.equal(noisy[2].labels, data.labels)
    with pytest.raises(UserError, match="needs images"):
        seen_by(0, Dataset(torch.zeros(2, 3), torch.tensor([0, 1]), 2), FeatureSplit(), 0)


def test_a_partitioner_of_flwr_datasets() -> None:
    options = {"num_partitions": 5, "partition_by": "label", "alpha": 0.5, "seed": 1}
    parts = partition(FlowerSplit(options=options), LABELS, public=100, seed=0)
    everything = np.concatenate([*parts.clients, parts.public])
    assert len(parts.clients) == 5 and len(np.unique(everything)) == len(LABELS)
    for split, message in (
        (FlowerSplit(partitioner="MagicPartitioner"), "flwr-datasets has .*DirichletPartitioner"),
        (FlowerSplit(options={"nonsense": 1}), "nonsense"),
    ):
        with pytest.raises(UserError, match=message):
            partition(split, LABELS, public=100, seed=0)
