"""Secrets in shares of which a given number is needed: A. Shamir, "How to share a secret", CACM 22(11), 1979.

The secret is the value at 0 of a random polynomial over the integers modulo a prime; a share is its value elsewhere.
Fewer shares than the polynomial has coefficients fit every secret equally well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isfl.federation.secure.ciphers import KEY, keystream

PRIME = 2**256 + 297
"""The smallest prime above all secrets of 32 bytes."""
SHARE = 33
"""Bytes of a share."""
_DRAWN = 48
"""Bytes of which each coefficient is the remainder: 2^-127 from uniform."""


def split(secret: bytes, holders: Sequence[int], needed: int, randomness: bytes) -> dict[int, bytes]:
    """Return a share for each holder; `needed` of them give the secret back.

    `randomness` is a secret seed that is used for nothing else; holders are numbers from 0.
    """
    stream = keystream(randomness, _DRAWN * (needed - 1))
    drawn = [stream[i : i + _DRAWN] for i in range(0, len(stream), _DRAWN)]
    polynomial = [int.from_bytes(part, "little") % PRIME for part in drawn] + [int.from_bytes(secret, "little")]
    return {holder: _value(polynomial, holder + 1).to_bytes(SHARE, "little") for holder in holders}


def combine(shares: Mapping[int, bytes]) -> bytes | None:
    """Return the secret that these shares have, by Lagrange's formula at 0; None if they are shares of no secret."""
    points = [holder + 1 for holder in shares]
    total = 0
    for point, share in zip(points, shares.values(), strict=True):
        above, below = 1, 1
        for other in points:
            if other != point:
                above, below = above * other % PRIME, below * (other - point) % PRIME
        total += int.from_bytes(share, "little") * above * pow(below, -1, PRIME)
    secret = total % PRIME
    return secret.to_bytes(KEY, "little") if secret < 2 ** (8 * KEY) else None


def _value(polynomial: Sequence[int], point: int) -> int:
    """Return the polynomial at a point, by Horner's rule; the highest coefficient comes first."""
    total = 0
    for coefficient in polynomial:
        total = (total * point + coefficient) % PRIME
    return total
