"""The app that Flower carries to the nodes, and signatures over it.

Flower sends a bundle of files (a FAB) to every node. Ours has one file, which names the installed package: the code is
the node operator's. A node with the signer's public key (Flower's trusted entities) runs no other app: it verifies an
Ed25519 signature over the bundle's SHA-256 before it unpacks the bundle.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import ssh
from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign, load_private_key, sign_message

from isfl.engines.flower.keys import write_secret
from isfl.errors import UserError
from isfl.files import write_whole

OWN: dict[str, Any] = {"config": "", "set": "", "out": "", "resume": False, "connection": "", "events": ""}
"""Keys of the run configuration that are not keys of an experiment."""
DEFAULTS: dict[str, Any] = {
    **OWN,
    "scheme": "",
    "seed": 0,
    "data.name": "",
    "split.clients": 0,
    "training.rounds": 0,
    "training.local_epochs": 0,
    "training.batch_size": 0,
}
"""The run configuration that can be overridden; what is empty or 0 is left to `config`."""

MODULE = "isfl.flower"
"""Where Flower finds the app: `server` and `client`."""
SIGNING_KEY, SIGNATURES, TRUSTED = "app.key", "apps.json", "trusted.yaml"


def app_files() -> dict[str, str]:
    """All of the app's folder: a `pyproject.toml` that makes it known to Flower; the code is in the package."""
    settings = "\n".join(f"{key} = {json.dumps(value)}" for key, value in DEFAULTS.items())
    content = f"""[project]
name = "isfl"
version = "{version("isfl")}"
description = "Federated learning on label-skewed clients with local importance sampling (ISFL)"
license = "Apache-2.0"
dependencies = ["isfl[flower]"]

[tool.flwr.app]
publisher = "isfl"

[tool.flwr.app.components]
serverapp = "{MODULE}:server"
clientapp = "{MODULE}:client"

[tool.flwr.app.config]
{settings}
"""
    return {"pyproject.toml": content}


def bundle(files: Mapping[str, str]) -> bytes:
    """Return the bundle that Flower makes of an app's files."""
    from flwr.cli.build import build_fab_from_files  # slow, and every process of an app imports this module

    content, _ = build_fab_from_files({name: text.encode() for name, text in files.items()})
    return content


def sign(directory: Path) -> str:
    """Sign the app of the installed version; return the SHA-256 of its bundle.

    The first call makes the key `app.key`. `apps.json` gets the signature, for the SuperLink; `trusted.yaml` has the
    public key, for the nodes.
    """
    key = _signing_key(directory / SIGNING_KEY)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    name = f"fpk_{hashlib.sha256(public.encode()).hexdigest()[:16]}"
    write_whole(directory / TRUSTED, yaml.safe_dump({name: public}).encode())
    digest = hashlib.sha256(bundle(app_files()))
    known = signatures(directory / SIGNATURES) if (directory / SIGNATURES).exists() else {}
    if name not in known.get(digest.hexdigest(), {}):
        signed_at = int(time.time())
        signature = sign_message(key, create_message_to_sign(digest.digest(), signed_at))
        made = {"signed_at": signed_at, "signature": base64.urlsafe_b64encode(signature).decode()}
        known.setdefault(digest.hexdigest(), {})[name] = json.dumps(made)
        write_whole(directory / SIGNATURES, json.dumps(known, indent=2).encode())
    return digest.hexdigest()


def signatures(file: Path) -> dict[str, dict[str, str]]:
    """Return the signatures in `apps.json`: SHA-256 of a bundle -> name of a key -> its signature, as Flower has it."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({error}); isfl flower sign writes it") from None
    return {str(digest): dict(found) for digest, found in content.items()}


def trusted_entities(file: Path) -> dict[str, str]:
    """Return the public keys in `trusted.yaml`; there is at least one, because Flower runs any app if there is none."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{file}: cannot be read ({error}); isfl flower sign writes it") from None
    if not isinstance(content, dict) or not content:
        raise UserError(f"{file}: has no public key; write NAME: ssh-ed25519 KEY, as isfl flower sign does")
    for name, public in content.items():
        try:
            key = ssh.load_ssh_public_key(str(public).encode())
        except ValueError:
            key = None
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise UserError(f"{file}: {name} is not an Ed25519 public key (ssh-ed25519 KEY)")
    return {str(name): str(public) for name, public in content.items()}


def _signing_key(file: Path) -> ed25519.Ed25519PrivateKey:
    if not file.exists():
        made = ed25519.Ed25519PrivateKey.generate()
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
        write_secret(file, made.private_bytes(*form))
    try:
        return load_private_key(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: is not an Ed25519 key in OpenSSH's format ({error})") from None
