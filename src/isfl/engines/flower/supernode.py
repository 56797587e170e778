"""A SuperNode that runs only apps signed by a key that its operator trusts.

It is Flower's SuperNode, put together from its parts, with TLS, the node's key and trusted keys always on.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from pathlib import Path

import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.common.config import parse_config_args
from flwr.common.constant import ISOLATION_MODE_PROCESS
from flwr.supercore.constant import TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import start_client_internal

from isfl.engines.flower.apps import TRUSTED, trusted_entities
from isfl.engines.flower.executor import Executor
from isfl.engines.flower.keys import LOOPBACK
from isfl.engines.flower.node import node_of
from isfl.errors import UserError


def serve_supernode(directory: Path, superlink: str, node_config: str) -> None:
    """Serve until the process is stopped. `directory` has `ca.crt`, the node's `key` and `trusted.yaml`."""
    os.umask(0o077)
    settings = parse_config_args([node_config])
    node_of(settings)  # refuses a configuration that the app could not use
    keys, trusted = _keys(directory / "key"), trusted_entities(directory / TRUSTED)
    authority = directory / "ca.crt"
    if not authority.is_file():
        raise UserError(f"{authority}: no such file; copy it from the SuperLink's operator")
    secret, factory = secrets.token_bytes(32), NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    address = _serve_runtime(factory, secret)
    Executor(TaskType.CLIENT_APP, address, secret).start()
    start_client_internal(
        state_factory=factory,
        server_address=superlink,
        node_config=settings,
        root_certificates=authority.read_bytes(),
        insecure=False,
        authentication_keys=keys,
        isolation=ISOLATION_MODE_PROCESS,  # tasks need the secret; our executor is that process
        runtime_api_address=address,
        trusted_entities=trusted,
        superexec_auth_secret=secret,
        runtime_dependency_install=False,
    )


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
