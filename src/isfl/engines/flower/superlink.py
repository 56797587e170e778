"""A SuperLink that only lets in accounts with a token and nodes with a registered key, and only starts signed apps.

It is Flower's SuperLink, put together from its parts: Flower's command has no option for an account plugin.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from flwr.common.constant import ISOLATION_MODE_PROCESS, TRANSPORT_TYPE_GRPC_RERE
from flwr.server.superlink.linkstate import LinkState, LinkStateFactory
from flwr.supercore.address import resolve_bind_address
from flwr.supercore.fab import Fab
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig
from flwr.superlink.main import create_app

from isfl.engines.flower.access import ACCOUNTS, TokenAccounts
from isfl.engines.flower.apps import SIGNATURES, signatures
from isfl.engines.flower.executor import ServerExecutor
from isfl.errors import UserError

GRACE_SECONDS = 5
CERTIFICATES = ("ca.crt", "server.crt", "server.key")


def serve_superlink(directory: Path, host: str, port: int) -> None:
    """Serve until the process is stopped. `directory` has the certificates, accounts, signatures and the database.

    Files that it writes, and those of its runs, can be read by their owner only.
    """
    os.umask(0o077)
    for name in (*CERTIFICATES, SIGNATURES):
        if not (directory / name).is_file():
            raise UserError(f"{directory / name}: no such file; docs/deployment.md says how to make it")
    secret = secrets.token_bytes(32)
    app = secured_app(directory, host, port, secret)
    address = resolve_bind_address(f"{host}:{port}")
    authority, certificate, key = (directory / name for name in CERTIFICATES)
    ServerExecutor(address, secret, authority).start()
    uvicorn.run(
        app,
        host=host,
        port=port,
        ssl_certfile=str(certificate),
        ssl_keyfile=str(key),
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def secured_app(directory: Path, host: str, port: int, secret: bytes) -> FastAPI:
    """Return the SuperLink's application, which answers the calls; its own tasks need `secret`."""
    app = create_app(_configuration(directory, host, port, secret), SuperLinkLifespan)
    app.state.linkstate_factory = SignedApps(app.state.linkstate_factory, directory / SIGNATURES)
    return app


class SignedApps:
    """Flower's state, which stores an app with its signatures, and refuses an app that has none."""

    def __init__(self, factory: LinkStateFactory, file: Path) -> None:
        self._factory, self._file = factory, file

    def state(self) -> Any:
        return _SignedState(self._factory.state(), self._file)


class _SignedState:
    def __init__(self, state: LinkState, file: Path) -> None:
        self._state, self._file = state, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def store_app(self, fab: Fab, *arguments: Any, **options: Any) -> str:
        return self._state.store_app(self._signed(fab), *arguments, **options)

    def store_fab(self, fab: Fab) -> str:
        return self._state.store_fab(self._signed(fab))

    def _signed(self, fab: Fab) -> Fab:
        digest = hashlib.sha256(fab.content).hexdigest()
        found = signatures(self._file).get(digest)
        if not found:
            raise HTTPException(403, f"this app is not signed for this federation (SHA-256 {digest})")
        return replace(fab, verifications={**found, "valid_license": "isfl"})  # without this key, nodes do not verify


def _configuration(directory: Path, host: str, port: int, secret: bytes) -> SuperLinkLifespanConfig:
    authority, certificate, key = (str(directory / name) for name in CERTIFICATES)
    return SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host=host,
        port=port,
        insecure=False,
        certificates=(Path(authority).read_bytes(), Path(certificate).read_bytes(), Path(key).read_bytes()),
        superexec_auth_secret=secret,
        authn_plugin=TokenAccounts(directory / ACCOUNTS),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=True,
        fleet_api_type=TRANSPORT_TYPE_GRPC_RERE,
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=authority,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        database=str(directory / "superlink.db"),
        isolation=ISOLATION_MODE_PROCESS,  # tasks need the secret; our executor is that process
        runtime_dependency_install=False,
    )
