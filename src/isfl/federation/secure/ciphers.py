"""The primitives: key agreement, key derivation, a stream cipher as generator of masks, and sealed messages.

All are the library's: X25519 (RFC 7748), HKDF with SHA-256 (RFC 5869), AES-256 in counter mode (NIST SP 800-38A) and
ChaCha20-Poly1305 (RFC 8439). Every key is used for one message or one mask, so that nonces are zero.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from isfl.errors import UserError

KEY = 32
"""Bytes of every secret and of every key."""
TAG = 16
"""Bytes that sealing adds."""
PROTOCOL = "isfl secure aggregation 1"
"""Part of every derivation: keys of another protocol or version never agree."""


class KeyAgreementError(UserError):
    """The other side's public key is not valid."""


def check_library() -> None:
    """Raise a `UserError` if the library is missing."""
    _part("ciphers.aead")


def derive(secret: bytes, *purpose: object) -> bytes:
    """Return a key for this purpose; keys for different purposes tell nothing about each other."""
    hkdf, hashes = _part("kdf.hkdf"), _part("hashes")
    info = " ".join(map(str, (PROTOCOL, *purpose))).encode()
    derived: bytes = hkdf.HKDF(hashes.SHA256(), KEY, salt=None, info=info).derive(secret)
    return derived


def public_key(seed: bytes) -> bytes:
    """Return the public key that belongs to a secret of 32 bytes."""
    key: bytes = _part("asymmetric.x25519").X25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    return key


def agreed_key(seed: bytes, public: bytes, *purpose: object) -> bytes:
    """Return the key that two clients agree on: the same from either secret and the other's public key."""
    x25519 = _part("asymmetric.x25519")
    try:
        own, other = x25519.X25519PrivateKey.from_private_bytes(seed), x25519.X25519PublicKey.from_public_bytes(public)
        shared = own.exchange(other)
    except ValueError:  # of low order: everyone would know the result
        raise KeyAgreementError("secure: a public key is not valid") from None
    return derive(shared, *purpose)


def keystream(seed: bytes, length: int) -> bytes:
    """Return bytes that are indistinguishable from random ones without the seed."""
    ciphers = _part("ciphers")
    cipher = ciphers.Cipher(ciphers.algorithms.AES(seed), ciphers.modes.CTR(bytes(16)))
    stream: bytes = cipher.encryptor().update(bytes(length))
    return stream


def mask(seed: bytes, count: int) -> np.ndarray:
    """Return the (count,) mask of a seed, 32 bits per value."""
    return np.frombuffer(keystream(seed, 4 * count), dtype="<u4")


def seal(key: bytes, content: bytes) -> bytes:
    """Encrypt and authenticate; each key seals one message."""
    sealed: bytes = _part("ciphers.aead").ChaCha20Poly1305(key).encrypt(bytes(12), content, None)
    return sealed


def unseal(key: bytes, sealed: bytes) -> bytes | None:
    """Return the content, or None if it was not sealed with this key."""
    try:
        content: bytes = _part("ciphers.aead").ChaCha20Poly1305(key).decrypt(bytes(12), sealed, None)
    except _exceptions().InvalidTag:
        return None
    return content


def digest(content: bytes, length: int = 32) -> bytes:
    """Return a fingerprint of a secret: with 256 unknown bits it reveals nothing, and no other secret has it."""
    return hashlib.sha256(PROTOCOL.encode() + content).digest()[:length]


@cache
def _part(name: str) -> Any:
    return _imported(f"cryptography.hazmat.primitives.{name}")


@cache
def _exceptions() -> Any:
    return _imported("cryptography.exceptions")


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UserError("secure needs the library cryptography: pip install 'isfl[secure]'") from None
