"""The form of the messages: phases, and rows of bytes by client, as arrays that every engine can carry."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from isfl.federation.secure.ciphers import KEY, TAG
from isfl.federation.secure.sharing import SHARE
from isfl.federation.values import Weights

CLIENTS, ROWS = "clients", "rows"
FINGERPRINT = 16
"""Bytes of the digest of a share."""
SEALED = 2 * SHARE + TAG
"""Bytes of two shares, sealed."""
KEYS_ROW = (KEY, KEY, KEY)
"""Public key of masks, public key for sealed messages, digest of the seed of the own mask."""
PEER_ROW = (KEY, KEY)
"""A neighbour's two public keys."""
SHARES_ROW = (SEALED, FINGERPRINT, FINGERPRINT)
"""Shares of the seed of the own mask and of the secret key of masks, sealed; the digest of each."""
UNMASK_ROW = (1, KEY, SEALED, FINGERPRINT, FINGERPRINT)
"""Whether the sender uploaded, its key for sealed messages, and what it sent."""


class Phase:
    """The phases that a client answers, in order."""

    KEYS = "keys"
    SHARES = "shares"
    UPLOAD = "upload"
    """Training; it is no exchange of tables."""
    UNMASK = "unmask"


class TableError(ValueError):
    """What arrived is not a table of this width."""


def table(rows: Mapping[int, bytes]) -> Weights:
    """Return rows of equal length as two arrays, ordered by client."""
    ordered = sorted(rows)
    content = np.frombuffer(b"".join(rows[client] for client in ordered), dtype=np.uint8)
    width = len(content) // len(ordered) if ordered else 0
    return {
        CLIENTS: torch.tensor(ordered, dtype=torch.int64),
        ROWS: torch.from_numpy(content.reshape(len(ordered), width).copy()),
    }


def rows_of(arrays: Weights, width: int) -> dict[int, bytes]:
    """Return the rows of a table whose rows have `width` bytes, each client once."""
    if arrays.keys() != {CLIENTS, ROWS}:
        raise TableError("is not a table of rows by client")
    clients, rows = arrays[CLIENTS], arrays[ROWS]
    if (clients.dtype, rows.dtype) != (torch.int64, torch.uint8) or (clients.dim(), rows.dim()) != (1, 2):
        raise TableError("is not a table of bytes by client")
    if len(rows) != len(clients) or (len(clients) and rows.shape[1] != width):
        raise TableError(f"has rows of shape {tuple(rows.shape)} instead of {(len(clients), width)}")
    found = {int(client): row.tobytes() for client, row in zip(clients.tolist(), rows.numpy(), strict=True)}
    if len(found) != len(clients) or any(client < 0 for client in found):
        raise TableError("names a client twice, or a negative one")
    return found


def cut(row: bytes, *widths: int) -> list[bytes]:
    """Return the parts of a row."""
    parts, start = [], 0
    for width in widths:
        parts.append(row[start : start + width])
        start += width
    return parts
