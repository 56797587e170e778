"""SuperNodes that start client apps without delay; a secured one runs only apps that its operator trusts.

They are Flower's SuperNode, put together from its parts.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import UserConfig
from flwr.common.config import parse_config_args
from flwr.common.constant import ISOLATION_MODE_PROCESS
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import start_client_internal

from isfl.engines.flower.apps import TRUSTED, trusted_entities
from isfl.engines.flower.executor import ClientExecutor
from isfl.engines.flower.keys import LOOPBACK
from isfl.engines.flower.node import node_of
from isfl.errors import UserError


@dataclass(frozen=True)
class Security:
    """What a secured node verifies, and what it identifies itself with."""

    root_certificates: bytes
    keys: tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]
    trusted_entities: dict[str, str]


def security_in(directory: Path) -> Security:
    """Read `ca.crt`, the node's `key` and `trusted.yaml`."""
    authority = directory / "ca.crt"
    if not authority.is_file():
        raise UserError(f"{authority}: no such file; copy it from the SuperLink's operator")
    return Security(authority.read_bytes(), _keys(directory / "key"), trusted_entities(directory / TRUSTED))


def serve_supernode(superlink: str, node_config: str, security: Security | None) -> None:
    """Serve until the process is stopped; without `security`, neither side is verified and nothing is encrypted."""
    os.umask(0o077)
    settings = settings_of(node_config, security)
    secret, factory = secrets.token_bytes(32), NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    address = _serve_runtime(factory, secret)
    ClientExecutor(address, secret).start()
    start_client_internal(
        state_factory=factory,
        server_address=superlink,
        node_config=settings,
        root_certificates=None if security is None else security.root_certificates,
        insecure=security is None,
        authentication_keys=None if security is None else security.keys,
        isolation=ISOLATION_MODE_PROCESS,  # tasks need the secret; our executor is that process
        runtime_api_address=address,
        trusted_entities=None if security is None else security.trusted_entities,
        superexec_auth_secret=secret,
        runtime_dependency_install=False,
    )


def settings_of(node_config: str, security: Security | None) -> UserConfig:
    """Return the node configuration; without the key `allow-code`, a secured node allows no code of the server's.

    Refuse a configuration that the app could not use.
    """
    settings = parse_config_args([node_config])
    if security is not None:
        settings.setdefault("allow-code", "")
    node_of(settings)
    return settings


def _serve_runtime(factory: NodeStateFactory, secret: bytes) -> str:
    """Serve the API for the node's app processes on a free port of this machine; return its address."""
    listener = socket.socket()
    listener.bind((LOOPBACK, 0))
    server = uvicorn.Server(uvicorn.Config(create_app(factory, secret), access_log=False))
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="runtime", daemon=True).start()
    return f"{LOOPBACK}:{listener.getsockname()[1]}"


def _keys(file: Path) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    try:
        key = load_ssh_private_key(file.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({error}); make it with ssh-keygen -t ecdsa -b 384") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"{file}: is not an ECDSA key; make it with ssh-keygen -t ecdsa -b 384")
    return key, key.public_key()


if __name__ == "__main__":  # an unsecured node of `isfl flower up`, on loopback
    serve_supernode(sys.argv[1], sys.argv[2], None)
