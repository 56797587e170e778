"""The parts of secure aggregation: the field, shares, ciphers, the graph, quantisation."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isfl.errors import UserError
from isfl.federation import start
from isfl.federation.secure import ciphers
from isfl.federation.secure.ciphers import KeyAgreementError, agreed_key, derive, mask, public_key, seal, unseal
from isfl.federation.secure.quantise import LOSS_RANGE, quantised, restored
from isfl.federation.secure.server import Group, needed_shares, neighbour_graph, with_enough_neighbours
from isfl.federation.secure.settings import SecureAggregation, check_participants
from isfl.federation.secure.sharing import PRIME, SHARE, combine, split
from isfl.federation.secure.tables import TableError, rows_of, table
from tests.masking import COUNTS, secured
from tests.worlds import engine_of

SECRETS = st.binary(min_size=32, max_size=32)


# ---------------------------------------------------------------- shares


def test_the_modulus_is_a_prime_above_every_secret() -> None:
    """Miller and Rabin's test with forty bases."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        value = pow(base, odd, PRIME)
        powers = [pow(value, 2**i, PRIME) for i in range(twos)]
        assert value == 1 or PRIME - 1 in powers
    assert 2**256 < PRIME < 2 ** (8 * SHARE)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), secret=SECRETS, randomness=SECRETS, count=st.integers(2, 12))
def test_any_threshold_of_shares_gives_the_secret_back_and_one_less_does_not(
    data: st.DataObject, secret: bytes, randomness: bytes, count: int
) -> None:
    holders = data.draw(st.lists(st.integers(0, 10**6), min_size=count, max_size=count, unique=True))
    needed = data.draw(st.integers(2, count))
    shares = split(secret, holders, needed, randomness)
    chosen = data.draw(st.permutations(holders))
    assert combine({holder: shares[holder] for holder in chosen[:needed]}) == secret
    assert combine({holder: shares[holder] for holder in chosen}) == secret
    assert combine({holder: shares[holder] for holder in chosen[: needed - 1]}) != secret


@settings(max_examples=30, deadline=None)
@given(secret=SECRETS, other=SECRETS, randomness=SECRETS)
def test_too_few_shares_fit_every_other_secret_as_well(secret: bytes, other: bytes, randomness: bytes) -> None:
    """Two of three shares and any claimed secret determine a third share that makes them agree."""
    shares = split(secret, [0, 1, 2], 3, randomness)
    points = {0: int.from_bytes(other, "little")} | {k + 1: int.from_bytes(shares[k], "little") for k in (0, 1)}
    third = 0
    for point, value in points.items():
        above, below = 1, 1
        for rest in points:
            if rest != point:
                above, below = above * (3 - rest) % PRIME, below * (point - rest) % PRIME
        third += value * above * pow(below, -1, PRIME)
    forged = {0: shares[0], 1: shares[1], 2: (third % PRIME).to_bytes(SHARE, "little")}
    assert combine(forged) == other


def test_shares_of_no_secret_are_recognised() -> None:
    assert combine({0: (2**256).to_bytes(SHARE, "little")}) is None


@given(threshold=st.floats(0.5, 1, exclude_min=True), holders=st.integers(1, 10**6))
@example(threshold=0.5 + 1e-10, holders=10)
def test_more_than_half_of_the_holders_are_needed_whatever_the_threshold(threshold: float, holders: int) -> None:
    """With half of them, a server that names different survivors to each half would get both secrets of a client."""
    needed = SecureAggregation(threshold=threshold).needed(holders)
    assert 2 * needed > holders >= needed


# ---------------------------------------------------------------- ciphers


@settings(max_examples=25, deadline=None)
@given(one=SECRETS, two=SECRETS)
def test_two_clients_agree_on_a_key_that_depends_on_its_purpose(one: bytes, two: bytes) -> None:
    key = agreed_key(one, public_key(two), "mask", 1, 2)
    assert key == agreed_key(two, public_key(one), "mask", 1, 2)
    assert (
        len({key, agreed_key(one, public_key(two), "mask", 2, 2), agreed_key(one, public_key(two), "seal", 1, 2)}) == 3
    )


@pytest.mark.parametrize("point", [bytes(32), bytes([1]) + bytes(31)])
def test_a_key_that_gives_everyone_the_same_secret_is_refused(point: bytes) -> None:
    with pytest.raises(KeyAgreementError):
        agreed_key(b"\7" * 32, point)


def test_sealed_content_opens_with_its_key_only_and_one_changed_bit_is_noticed() -> None:
    key = derive(b"secret", "seal")
    sealed = seal(key, b"two shares")
    assert unseal(key, sealed) == b"two shares"
    assert unseal(derive(b"other", "seal"), sealed) is None
    assert unseal(key, sealed[:-1] + bytes([sealed[-1] ^ 1])) is None


def test_masks_are_the_keystream_of_aes_256_in_counter_mode() -> None:
    """NIST SP 800-38A's block cipher on the counters 0 and 1, of a key of zeros (AES-256, ECB)."""
    zero = "dc95c078a2408989ad48a21492842087"
    assert mask(bytes(32), 4).tobytes().hex() == zero
    assert mask(bytes(32), 8)[:4].tobytes().hex() == zero and len(mask(bytes(32), 5)) == 5


def test_a_missing_library_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ciphers._part.cache_clear()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    setup = secured()
    with pytest.raises(UserError, match=r"secure needs the library cryptography: pip install 'isfl\[secure\]'"):
        start(setup, engine_of(setup, COUNTS))
    ciphers._part.cache_clear()


# ---------------------------------------------------------------- tables and the graph


@settings(max_examples=40, deadline=None)
@given(rows=st.dictionaries(st.integers(0, 2**40), st.binary(min_size=5, max_size=5), max_size=8))
def test_tables_are_read_as_they_were_written(rows: dict[int, bytes]) -> None:
    assert rows_of(table(rows), 5) == rows


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"clients": torch.tensor([1])},
        {"clients": torch.tensor([1, 1]), "rows": torch.zeros((2, 5), dtype=torch.uint8)},
        {"clients": torch.tensor([1, 2]), "rows": torch.zeros((1, 5), dtype=torch.uint8)},
        {"clients": torch.tensor([1.0]), "rows": torch.zeros((1, 5), dtype=torch.uint8)},
        {"clients": torch.tensor([-1]), "rows": torch.zeros((1, 5), dtype=torch.uint8)},
        {"clients": torch.tensor([1]), "rows": torch.zeros((1, 4), dtype=torch.uint8)},
    ],
    ids=range(7),
)
def test_a_table_that_is_none_is_refused(arrays: Any) -> None:
    with pytest.raises(TableError):
        rows_of(arrays, 5)


@settings(max_examples=80, deadline=None)
@given(count=st.integers(3, 40), half=st.integers(1, 12), seed=st.integers(0, 99))
def test_the_graph_is_regular_symmetric_connected_and_another_one_in_every_round(
    count: int, half: int, seed: int
) -> None:
    clients = list(range(10, 10 + count))
    graph = neighbour_graph(clients, 2 * half, seed, round=1)
    degree = min(2 * half, count - 1)
    assert all(len(peers) == degree and client not in peers for client, peers in graph.items())
    assert all(client in graph[peer] for client, peers in graph.items() for peer in peers)
    reached, waiting = {10}, [10]
    while waiting:
        new = graph[waiting.pop()] - reached
        reached |= new
        waiting += new
    assert reached == set(clients)
    assert graph == neighbour_graph(clients, 2 * half, seed, round=1)
    if degree < count - 1 and count > 8:
        assert any(neighbour_graph(clients, 2 * half, seed, round) != graph for round in range(2, 6))


def test_clients_that_lost_too_many_neighbours_are_left_out_one_after_the_other() -> None:
    clients, secure = list(range(12)), SecureAggregation(neighbours=4, threshold=0.8)
    graph = neighbour_graph(clients, secure.neighbours, 0, 1)
    keys: Any = dict.fromkeys(clients)
    group = Group(1, needed_shares(graph, secure), keys, graph, {})
    assert set(group.needed.values()) == {4}
    whole, left_out = with_enough_neighbours(group)
    assert left_out == [] and whole == group
    first = clients[0]
    lost = sorted(graph[first])[:2]
    rest, left_out = with_enough_neighbours(group.with_only([k for k in clients if k not in lost]))
    assert first in left_out and all(len(peers) + 1 >= 4 for peers in rest.neighbours.values())


# ---------------------------------------------------------------- quantisation


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-6, 6, width=32), min_size=1, max_size=6),
    weights=st.lists(st.floats(0.01, 1), min_size=1, max_size=5),
    bits=st.integers(8, 28),
    loss=st.floats(0, 100),
)
def test_the_mean_of_quantised_updates_is_within_half_a_step_per_weight(
    values: list[float], weights: list[float], bits: int, loss: float
) -> None:
    secure, current = SecureAggregation(bits=bits), {"w": torch.ones(len(values), dtype=torch.float64)}
    updates = [{"w": current["w"] + torch.tensor(values, dtype=torch.float64) / (k + 1)} for k in range(len(weights))]
    rows = [quantised(u, current, w, loss, w, secure) for u, w in zip(updates, weights, strict=True)]
    summed = restored(np.stack(rows).sum(axis=0, dtype=np.uint32), current, sum(weights), sum(weights), secure)
    moved = [(u["w"] - 1).numpy() for u in updates]
    exact = np.average([np.clip(m, -secure.range, secure.range) for m in moved], axis=0, weights=weights)
    allowed = secure.step / 2 * len(weights) / sum(weights) + 1e-9
    assert np.abs(summed.model["w"].numpy() - 1 - exact).max() <= allowed
    assert summed.clipped == sum(int((np.abs(m) > secure.range).sum()) + (loss > LOSS_RANGE) for m in moved)
    assert abs(summed.train_loss - min(loss, LOSS_RANGE)) <= allowed * LOSS_RANGE / secure.range + 1e-9


def test_a_client_counts_clipped_values_up_to_the_largest_number_and_a_clipped_loss_as_one() -> None:
    secure, current = SecureAggregation(bits=8), {"w": torch.zeros(200)}
    for beyond, loss, counted in ((3, 1.0, 3), (3, LOSS_RANGE + 1, 4), (200, 1.0, 127)):
        moved = {"w": torch.where(torch.arange(200) < beyond, 5.0, 0.1)}
        summed = restored(quantised(moved, current, 1.0, loss, 1.0, secure), current, 1.0, 1.0, secure)
        assert summed.clipped == counted
        assert abs(summed.train_loss - min(loss, LOSS_RANGE)) <= LOSS_RANGE / 127 / 2


@pytest.mark.parametrize("clients", [3, 100, 1000, 4096])
def test_the_largest_sum_that_is_allowed_does_not_overflow(clients: int) -> None:
    for bits in range(8, 31):
        secure = SecureAggregation(bits=bits)
        try:
            check_participants(secure, clients, clients)
        except UserError as error:
            fitting = int(str(error).rpartition("use ")[2].removesuffix(" or less"))
            assert bits > fitting, "the advice is for fewer bits"
            check_participants(SecureAggregation(bits=fitting), clients, clients)
            with pytest.raises(UserError):
                check_participants(SecureAggregation(bits=fitting + 1), clients, clients)
            continue
        for sign in (1, -1):
            update = {"w": torch.full((2,), sign * secure.range)}
            row = quantised(update, {"w": torch.zeros(2)}, 1.0, 0.0, 1.0, secure)
            total = (row.astype(np.uint64) * clients % 2**32).astype(np.uint32)
            summed = restored(total, {"w": torch.zeros(2)}, clients, clients, secure)
            torch.testing.assert_close(summed.model["w"], update["w"])
