"""Certificates and keys of a federation: they identify the SuperLink and the SuperNodes."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from isfl.files import write_whole

LOOPBACK = "127.0.0.1"
VALID = datetime.timedelta(days=365)


def make_certificates(
    directory: Path, names: Sequence[str] = ("localhost",), addresses: Sequence[str] = (LOOPBACK,)
) -> None:
    """Write a new certificate authority and a certificate of the SuperLink, on curve P-384, valid for one year.

    Parameters
    ----------
    directory
        Where `ca.crt`, `ca.key`, `server.crt` and `server.key` go; only their owner can read the keys.
    names
        Host names of the SuperLink.
    addresses
        IP addresses of the SuperLink.

    Raises
    ------
    ValueError
        If an address is not an IP address.
    """
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "isfl federation")])
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    root = (
        _certificate(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    alternatives = [
        *(x509.DNSName(name) for name in names),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
    ]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    certificate = (
        _certificate(subject, issuer, server.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    for name, key in (("ca.key", authority), ("server.key", server)):
        write_secret(directory / name, _pem(key, serialization.PrivateFormat.PKCS8))
    for name, made in (("ca.crt", root), ("server.crt", certificate)):
        write_whole(directory / name, made.public_bytes(serialization.Encoding.PEM))


def make_node_key(directory: Path) -> None:
    """Write the key pair that identifies a SuperNode to the SuperLink."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_secret(directory / "key", _pem(key, serialization.PrivateFormat.OpenSSH))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_whole(directory / "key.pub", public + b"\n")


def write_secret(file: Path, content: bytes) -> None:
    """Write a new file that only its owner can read, from its creation on."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + VALID)
    )


def _pem(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
