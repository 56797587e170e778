"""The server's side of secure aggregation: the graph, what each phase sends, and the sum in the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isfl.federation.secure.ciphers import KEY, KeyAgreementError, agreed_key, digest, mask, public_key
from isfl.federation.secure.client import add_pair_mask, pair_seed
from isfl.federation.secure.settings import FEWEST, SecureAggregation
from isfl.federation.secure.sharing import SHARE, combine
from isfl.federation.secure.tables import (
    FINGERPRINT,
    KEYS_ROW,
    SHARES_ROW,
    Phase,
    TableError,
    cut,
    rows_of,
    table,
)
from isfl.federation.values import SecureTask, Weights
from isfl.randomness import Purpose, generator


class UnmaskError(ValueError):
    """The masks of a client cannot be removed."""

    def __init__(self, client: int, reason: str, refusal: str | None = None) -> None:
        """`refusal` is why the client itself is refused; None if holders of its shares did not answer."""
        super().__init__(reason)
        self.client, self.refusal = client, refusal


@dataclass(frozen=True)
class PublicKeys:
    """What a client sent in the first phase."""

    masks: bytes
    seals: bytes
    own_mask: bytes
    """The digest of the seed of its own mask."""


@dataclass(frozen=True)
class Sealed:
    """What a client sent for one holder of its shares; the server can read the digests only."""

    content: bytes
    own_mask: bytes
    """The digest of the share of the seed of its own mask."""
    masks: bytes
    """The digest of the share of its key of masks."""


@dataclass(frozen=True)
class Group:
    """The clients that share masks in a round, and what the server knows of them."""

    round: int
    needed: Mapping[int, int]
    """Shares that give a client's secret back."""
    keys: Mapping[int, PublicKeys]
    neighbours: Mapping[int, frozenset[int]]
    sealed: Mapping[int, Mapping[int, Sealed]]
    """By sender, then by holder; the sender holds one share itself."""

    def with_only(self, clients: Collection[int]) -> Group:
        """Return the group without the other clients."""
        neighbours = {k: self.neighbours[k] & frozenset(clients) for k in clients}
        return replace(self, keys={k: self.keys[k] for k in clients}, neighbours=neighbours)


# ---------------------------------------------------------------- the graph


def neighbour_graph(clients: Sequence[int], neighbours: int | None, seed: int, round: int) -> dict[int, frozenset[int]]:
    """Return the neighbours of each client: all others, or half of the number on either side of a random circle."""
    count = len(clients)
    half_degree = count if neighbours is None or neighbours >= count - 1 else neighbours // 2
    if half_degree >= count // 2:
        return {k: frozenset(clients) - {k} for k in clients}
    order = [clients[i] for i in generator(seed, Purpose.SECURE_AGGREGATION, round=round).permutation(count)]
    steps = [step for step in range(-half_degree, half_degree + 1) if step]
    return {k: frozenset(order[(at + step) % count] for step in steps) for at, k in enumerate(order)}


def with_enough_neighbours(group: Group) -> tuple[Group, list[int]]:
    """Return the group without clients that have too few neighbours left to remove their masks, and those clients."""
    left_out: list[int] = []
    while without := [k for k, others in group.neighbours.items() if len(others) + 1 < group.needed[k]]:
        left_out += without
        group = group.with_only([k for k in group.neighbours if k not in without])
    return group, sorted(left_out)


# ---------------------------------------------------------------- what is sent, and what comes back


def public_keys(client: int, answer: Weights) -> PublicKeys:
    """Read the answer of the first phase."""
    rows = rows_of(answer, sum(KEYS_ROW))
    if rows.keys() != {client}:
        raise TableError("brings other keys than its own")
    keys = PublicKeys(*cut(rows[client], *KEYS_ROW))
    for public in (keys.masks, keys.seals):
        try:
            agreed_key(bytes(KEY), public)
        except KeyAgreementError:
            raise TableError("brings a public key that is not valid") from None
    return keys


def share_tasks(group: Group) -> list[SecureTask]:
    """Return what each client needs to seal shares of its secrets: the keys of its neighbours."""
    return [
        SecureTask(group.round, k, Phase.SHARES, table({p: group.keys[p].masks + group.keys[p].seals for p in peers}))
        for k, peers in sorted(group.neighbours.items())
    ]


def sealed_rows(client: int, answer: Weights, group: Group) -> dict[int, Sealed]:
    """Read the answer of the second phase."""
    rows = rows_of(answer, sum(SHARES_ROW))
    if rows.keys() != group.neighbours[client] | {client}:
        raise TableError("brings shares for other clients than its neighbours and itself")
    return {holder: Sealed(*cut(row, *SHARES_ROW)) for holder, row in rows.items()}


def mask_table(client: int, group: Group) -> Weights:
    """Return what a client needs to mask its update: the keys of the neighbours that are still there."""
    return table({peer: group.keys[peer].masks for peer in group.neighbours[client]})


def unmask_tasks(group: Group, uploaded: Collection[int]) -> list[SecureTask]:
    """Return, for each client that uploaded, the shares sealed for it and who uploaded."""
    tasks = []
    for client in sorted(uploaded):
        rows = {}
        for peer in group.neighbours[client] | {client}:
            sealed, flag = group.sealed[peer][client], bytes([peer in uploaded])
            rows[peer] = flag + group.keys[peer].seals + sealed.content + sealed.own_mask + sealed.masks
        tasks.append(SecureTask(group.round, client, Phase.UNMASK, table(rows)))
    return tasks


def revealed(client: int, answer: Weights, group: Group, uploaded: Collection[int]) -> dict[int, bytes]:
    """Read the answer of the last phase: one share for each neighbour, of the secret that is needed."""
    rows = rows_of(answer, SHARE)
    if not rows.keys() <= group.neighbours[client] | {client}:
        raise TableError("brings shares of other clients than its neighbours and itself")
    for peer, share in rows.items():
        sealed = group.sealed[peer][client]
        if digest(share, FINGERPRINT) != (sealed.own_mask if peer in uploaded else sealed.masks):
            raise TableError(f"brings a share of client {peer} that is not the one it was given")
    return rows


# ---------------------------------------------------------------- the sum


def obstacle(group: Group, uploaded: frozenset[int]) -> str | None:
    """Return why the masks cannot, or must not, be removed; None if they can.

    Enough holders of shares must have stayed for every mask that is in the sum, and enough clients to hide each of
    them from the others. And those that uploaded must be connected: two groups without common masks would have two
    sums, each of which the server could read.
    """
    if len(uploaded) < FEWEST:
        return f"{len(uploaded)} uploads are too few: a sum hides single updates among at least {FEWEST}"
    for client, peers in group.neighbours.items():
        holders = len(peers & uploaded) + (client in uploaded)
        if holders < group.needed[client] and (client in uploaded or peers & uploaded):
            return f"of the holders of shares of client {client}, {holders} uploaded; {group.needed[client]} are needed"
    if reachable(group, uploaded) != uploaded:
        return f"the {len(uploaded)} clients that uploaded do not all share masks; use more secure.neighbours"
    return None


def reachable(group: Group, clients: frozenset[int]) -> frozenset[int]:
    """Return the clients that are connected with the first of them, by neighbours among them."""
    found = frozenset(sorted(clients)[:1])
    while new := frozenset().union(*(group.neighbours[k] & clients for k in found)) - found:
        found |= new
    return found


def unmasked_sum(
    group: Group,
    uploads: Mapping[int, np.ndarray],
    shares: Mapping[int, Mapping[int, bytes]],
) -> np.ndarray:
    """Return the sum of the clients' integers modulo 2^32. `shares` are by holder, then by the client they belong to.

    Raises
    ------
    UnmaskError
        If the shares of a client are too few, or give another secret than the one it announced.
    """
    total = np.zeros_like(next(iter(uploads.values())))
    for upload in uploads.values():
        total += upload
    for client, peers in group.neighbours.items():
        stayed = sorted(peers & uploads.keys())
        if client in uploads:
            seed = _recovered(client, group, shares)
            if digest(seed) != group.keys[client].own_mask:
                raise _not_combining(client)
            total -= mask(seed, len(total))
        elif stayed:
            key = _recovered(client, group, shares)
            if public_key(key) != group.keys[client].masks:
                raise _not_combining(client)
            for peer in stayed:  # what the lost client would have added
                add_pair_mask(total, pair_seed(key, group.keys[peer].masks, group.round, client, peer), client, peer)
    return total


def _recovered(client: int, group: Group, shares: Mapping[int, Mapping[int, bytes]]) -> bytes:
    """Return the secret that the holders' shares give.

    A holder leaves out a share that it cannot read. Whether it says so truly, or the client sealed no such share, the
    server cannot know.
    """
    needed, answered = group.needed[client], (group.neighbours[client] | {client}) & shares.keys()
    if len(answered) < needed:
        raise UnmaskError(client, f"too few holders of shares of client {client} answered")
    known = {holder: shares[holder][client] for holder in sorted(answered) if client in shares[holder]}
    if len(known) < needed:
        found = f"{len(known)} of {len(answered)} holders that answered returned a share of"
        unknown = "it sealed no more, or holders left some out"
        raise UnmaskError(
            client, f"{found} client {client}; {needed} are needed", f"{found} it, {needed} are needed: {unknown}"
        )
    secret = combine(dict(list(known.items())[:needed]))
    if secret is None:
        raise _not_combining(client)
    return secret


def _not_combining(client: int) -> UnmaskError:
    """Return the error for shares that are those the client announced, and give another secret."""
    return UnmaskError(client, f"the shares of client {client} do not combine", "its shares do not combine")


def needed_shares(neighbours: Mapping[int, Iterable[int]], secure: SecureAggregation) -> dict[int, int]:
    """Return, for each client, how many of its neighbours and itself must stay."""
    return {client: secure.needed(len(list(peers)) + 1) for client, peers in neighbours.items()}
