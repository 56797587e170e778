"""The client's side of secure aggregation: one function per phase, from task and memory to answer and memory.

A client keeps one random secret from phase to phase, from which all its keys follow, and the last phase that it
answered. From the phase `shares` on it also keeps who holds shares of its secrets, with which keys, and how many of
them are needed; later tasks must agree with that. Each phase is answered once: two uploads with the same masks would
reveal their difference.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from isfl.errors import UserError
from isfl.federation.secure.ciphers import KEY, agreed_key, derive, digest, mask, public_key, seal, unseal
from isfl.federation.secure.quantise import MASKED, is_finite, quantised
from isfl.federation.secure.settings import FEWEST
from isfl.federation.secure.sharing import SHARE, split
from isfl.federation.secure.tables import FINGERPRINT, PEER_ROW, UNMASK_ROW, Phase, cut, rows_of, table
from isfl.federation.settings import Settings
from isfl.federation.values import (
    ClientMemory,
    ClientUpdate,
    RoundSecret,
    SecureAnswer,
    SecureTask,
    TrainTask,
    Weights,
)
from isfl.randomness import Purpose, generator


@dataclass(frozen=True, repr=False)
class Keys:
    """What a client derives from its secret, for one round; not for logs."""

    masks: bytes
    """The secret key from which the masks with neighbours follow."""
    seals: bytes
    """The secret key for sealed messages."""
    own_mask: bytes
    """The seed of the mask that no other client knows."""
    sharing: tuple[bytes, bytes]
    """Randomness of the shares of `own_mask` and `masks`."""

    @staticmethod
    def of(secret: bytes) -> Keys:
        names = ("masks", "seals", "own mask", "sharing own mask", "sharing masks")
        masks, seals, own_mask, *sharing = (derive(secret, name) for name in names)
        return Keys(masks, seals, own_mask, (sharing[0], sharing[1]))


def answer_phase(
    task: SecureTask, settings: Settings, memory: ClientMemory, *, real: bool = False
) -> tuple[SecureAnswer, ClientMemory]:
    """Answer one exchange; raise a `UserError` if the task is out of order or asks for too much.

    `real` says that the client is not simulated: then its secret is random, and not a function of the seed.
    """
    secure = settings.secure
    if secure is None:
        raise UserError("secure: the configuration has no table [secure]")
    match task.phase:
        case Phase.KEYS:
            secret = _new_secret(settings.seed, task, real)
            keys = Keys.of(secret)
            row = public_key(keys.masks) + public_key(keys.seals) + digest(keys.own_mask)
            rows, kept = {task.client: row}, RoundSecret(secret.hex(), task.round, Phase.KEYS)
        case Phase.SHARES:
            kept = _after(Phase.KEYS, memory.secret, task.round)
            peers = _rows(task.table, sum(PEER_ROW))
            needed = secure.needed(len(peers) + 1)
            rows = sealed_shares(
                task, {peer: cut(row, *PEER_ROW)[1] for peer, row in peers.items()}, _keys(kept), needed
            )
            public = np.stack([np.frombuffer(row, np.uint8) for row in peers.values()])
            kept = replace(kept, phase=Phase.SHARES, needed=needed, neighbours=np.array(list(peers)), keys=public)
        case Phase.UNMASK:
            kept = _after(Phase.UPLOAD, memory.secret, task.round)
            rows, kept = revealed_shares(task, kept), RoundSecret()
        case _:
            raise UserError(f"secure: there is no phase {task.phase!r}")
    return SecureAnswer(task.client, table(rows)), replace(memory, secret=kept)


def sealed_shares(task: SecureTask, peers: Mapping[int, bytes], keys: Keys, needed: int) -> dict[int, bytes]:
    """Return a row for each holder of shares of this client's secrets: its neighbours and itself.

    `peers` has the neighbours' public keys for sealed messages; `needed` shares give a secret back.
    """
    if task.client in peers or len(peers) + 1 < FEWEST:
        raise UserError(f"secure: {len(peers)} neighbours are too few; a sum hides updates among at least {FEWEST}")
    public = {**peers, task.client: public_key(keys.seals)}
    holders = sorted(public)
    own = split(keys.own_mask, holders, needed, keys.sharing[0])
    pair = split(keys.masks, holders, needed, keys.sharing[1])
    rows = {}
    for holder in holders:
        key = _seal_key(keys.seals, public[holder], task.round, task.client, holder)
        fingerprints = digest(own[holder], FINGERPRINT) + digest(pair[holder], FINGERPRINT)
        rows[holder] = seal(key, own[holder] + pair[holder]) + fingerprints
    return rows


def masked_update(
    update: ClientUpdate, task: TrainTask, settings: Settings, memory: RoundSecret
) -> tuple[ClientUpdate, RoundSecret]:
    """Return the update with masked integers in place of model and loss, and the memory after it.

    An update that is not finite is withdrawn: its model is empty, and the server refuses it.
    """
    secure, masking = settings.secure, task.masking
    assert secure is not None
    if masking.table is None or masking.weight is None or masking.largest is None:
        raise UserError("secure: the task brings no keys, and without masks no update is sent")
    kept = _after(Phase.SHARES, memory, task.round)
    peers, needed = _rows(masking.table, KEY), kept.needed or 0
    _check_known(peers, {peer: masks for peer, (masks, _) in _neighbours(kept).items()})
    if not 0 < masking.weight <= 1 or masking.largest < update.num_samples:
        raise UserError(
            f"secure: the task brings the weight {masking.weight:g} and {masking.largest} as the most samples of a "
            f"client; a weight is above 0 and at most 1, and this client has {update.num_samples} samples"
        )
    if len(peers) + 1 < needed:
        raise UserError(f"secure: {len(peers)} neighbours are left, too few to remove the masks later")
    kept = replace(kept, phase=Phase.UPLOAD)
    if not is_finite(update.model, update.train_loss):
        return replace(update, model={}, train_loss=None), kept
    loss, loss_weight = update.train_loss or 0.0, update.num_samples / masking.largest
    values = quantised(update.model, task.model, masking.weight, loss, loss_weight, secure)
    upload = masked(values, task.client, peers, _keys(kept), task.round)
    model: Weights = {MASKED: torch.from_numpy(upload.view(np.int32))}
    return replace(update, model=model, train_loss=None), kept


def masked(values: np.ndarray, client: int, peers: Mapping[int, bytes], keys: Keys, round: int) -> np.ndarray:
    """Return `x + PRG(b) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)` modulo 2^32.

    `peers` has the neighbours' public keys of masks.
    """
    total = values + mask(keys.own_mask, len(values))
    for peer, public in sorted(peers.items()):
        add_pair_mask(total, pair_seed(keys.masks, public, round, client, peer), client, peer)
    return total


def add_pair_mask(total: np.ndarray, seed: bytes, client: int, peer: int) -> None:
    """Add to `total`, in place, what this client adds for its neighbour; the neighbour adds the negative."""
    if client < peer:
        total += mask(seed, len(total))
    else:
        total -= mask(seed, len(total))


def pair_seed(own: bytes, public: bytes, round: int, client: int, peer: int) -> bytes:
    """Return the seed of the mask that two neighbours agree on."""
    return agreed_key(own, public, "mask", round, min(client, peer), max(client, peer))


def revealed_shares(task: SecureTask, kept: RoundSecret) -> dict[int, bytes]:
    """Return one share of each neighbour: of its own mask if it uploaded, else of its key of masks, never both.

    Only clients that hold shares of this one count as those that uploaded: the server could invent others. A share that
    cannot be read, or is not the one that was announced, is left out.
    """
    rows = {peer: cut(row, *UNMASK_ROW) for peer, row in _rows(task.table, sum(UNMASK_ROW)).items()}
    keys, needed, shares = _keys(kept), kept.needed or 0, {}
    holders = {task.client: public_key(keys.seals)} | {peer: seals for peer, (_, seals) in _neighbours(kept).items()}
    _check_known({peer: public for peer, (_, public, *_) in rows.items()}, holders)
    stayed = [peer for peer, (flag, *_) in rows.items() if flag == b"\1"]
    if task.client not in stayed or len(stayed) < needed:
        raise UserError(f"secure: reveals nothing for {len(stayed)} clients; at least {needed} must have uploaded")
    for peer, (_, public, sealed, *fingerprints) in rows.items():
        content = unseal(_seal_key(keys.seals, public, task.round, peer, task.client), sealed)
        if content is not None:
            own, pair = cut(content, SHARE, SHARE)
            share, fingerprint = (own, fingerprints[0]) if peer in stayed else (pair, fingerprints[1])
            if digest(share, FINGERPRINT) == fingerprint:
                shares[peer] = share
    return shares


def _seal_key(own: bytes, public: bytes, round: int, sender: int, receiver: int) -> bytes:
    return agreed_key(own, public, "seal", round, sender, receiver)


def _new_secret(seed: int, task: SecureTask, real: bool) -> bytes:
    """Return fresh randomness; in a simulation it is a function of the seed, as everything is."""
    if real:
        return secrets.token_bytes(KEY)
    return generator(seed, Purpose.SECURE_AGGREGATION, round=task.round, client=task.client + 1).bytes(KEY)


def _keys(kept: RoundSecret) -> Keys:
    assert kept.secret is not None
    return Keys.of(bytes.fromhex(kept.secret))


def _after(phase: str, kept: RoundSecret, round: int) -> RoundSecret:
    """Return the secret if it is of this round and its last phase was this one."""
    if kept.secret is None or (kept.round, kept.phase) != (round, phase):
        raise UserError(f"secure: a task of round {round} is out of order; each is answered once, after {phase!r}")
    return kept


def _neighbours(kept: RoundSecret) -> dict[int, tuple[bytes, bytes]]:
    """Return the public keys of the clients that hold shares of this one, of masks and for sealed messages."""
    assert kept.neighbours is not None and kept.keys is not None
    rows = (cut(row.tobytes(), *PEER_ROW) for row in kept.keys)
    return {peer: (masks, seals) for peer, (masks, seals) in zip(kept.neighbours.tolist(), rows, strict=True)}


def _check_known(named: Mapping[int, bytes], known: Mapping[int, bytes]) -> None:
    """Refuse clients that hold no shares, and other keys than those for which the shares were sealed."""
    if not named.items() <= known.items():
        raise UserError("secure: the task names clients that hold no shares of this one, or other keys than before")


def _rows(arrays: Weights, width: int) -> dict[int, bytes]:
    try:
        return rows_of(arrays, width)
    except ValueError as error:
        raise UserError(f"secure: the task {error}") from None
