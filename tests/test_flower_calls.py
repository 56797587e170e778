"""Access to every call of a secured SuperLink; callers verify its certificate before they send a token."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from socket import create_server, socket

import httpx
import pytest
from flwr.proto.control_pb2 import GetAuthTokensResponse, GetLoginDetailsResponse

from isfl.engines.flower.access import add_account
from isfl.engines.flower.apps import sign
from isfl.engines.flower.control import Control
from isfl.engines.flower.keys import LOOPBACK, make_certificates, make_node_key
from isfl.engines.flower.processes import environment
from isfl.engines.flower.superlink import secured_app
from tests.federations import wait_for

pytestmark = pytest.mark.timeout(900)
OPEN = {
    "/health": None,
    "/v1/control/get-login-details": GetLoginDetailsResponse,
    "/v1/control/get-auth-tokens": GetAuthTokensResponse,
}
"""Calls that need no credentials, with the answers of those that are about tokens: they give none."""


async def _answers(directory: Path, headers: dict[str, str]) -> dict[str, httpx.Response]:
    app = secured_app(directory, LOOPBACK, 1, b"secret of the tasks")
    sent = {"content-type": "application/protobuf", **headers}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://superlink") as client,
    ):
        calls = [(path, method) for path, methods in app.openapi()["paths"].items() for method in methods]
        return {path: await client.request(method, path, headers=sent) for path, method in calls}


@pytest.mark.filterwarnings("ignore:No path_separator found:DeprecationWarning")  # in flwr
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer unknown"}], ids=["no token", "wrong token"])
def test_every_call_without_credentials_is_refused(headers: dict[str, str], tmp_path: Path) -> None:
    """Those of accounts, of nodes, and of the server's part of a run."""
    make_certificates(tmp_path)
    add_account(tmp_path, "alice")
    answers = asyncio.run(_answers(tmp_path, headers))
    parts = {path.split("/")[2] for path in answers if path.startswith("/v1/")}
    assert {"control", "fleet", "runtime"} <= parts and len(answers) > 50
    assert {path for path, answer in answers.items() if answer.status_code != 401} <= OPEN.keys()
    for path, kind in OPEN.items():
        if kind is not None:
            assert kind.FromString(answers[path].content) == kind(), path


@pytest.fixture
def impostor(tmp_path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """A server with a certificate of its own authority: its address, and the bytes it receives."""
    make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    told: list[bytes] = []
    with create_server((LOOPBACK, 0)) as listener:
        threading.Thread(target=_listen, args=(listener, context, told), daemon=True).start()
        yield f"{LOOPBACK}:{listener.getsockname()[1]}", told


NOT_TRUSTED = b"the caller does not trust this server"


def _listen(listener: socket, context: ssl.SSLContext, told: list[bytes]) -> None:
    while True:
        try:
            with context.wrap_socket(listener.accept()[0], server_side=True) as stream:
                told.append(stream.recv(1 << 16))
        except ssl.SSLError:
            told.append(NOT_TRUSTED)
        except OSError:
            return


def test_an_account_gives_its_token_to_no_server_with_another_certificate(
    impostor: tuple[str, list[bytes]], tmp_path: Path
) -> None:
    address, told = impostor
    own = tmp_path / "own"
    own.mkdir()
    make_certificates(own)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        Control(address, (own / "ca.crt").read_bytes(), "token").online()
    wait_for(lambda: len(told) > 0, 60)  # the server's thread may be behind
    assert told.pop() == NOT_TRUSTED and told == []
    with pytest.raises(httpx.HTTPError):  # it trusts the impostor's authority and sends the token
        Control(address, (tmp_path / "ca.crt").read_bytes(), "token").online()
    wait_for(lambda: len(told) > 0, 60)
    assert b"Bearer token" in told[0]


def test_a_node_says_nothing_to_a_server_with_another_certificate(
    impostor: tuple[str, list[bytes]], tmp_path: Path
) -> None:
    address, told = impostor
    own = tmp_path / "own"
    own.mkdir()
    make_certificates(own)
    make_node_key(own)
    sign(own)
    for trusts_it in (False, True):
        if trusts_it:
            shutil.copy(tmp_path / "ca.crt", own / "ca.crt")
        told.clear()
        command = [sys.executable, "-m", "isfl.cli", "flower", "node", "--dir", str(own), "--superlink", address]
        command += ["--node-config", "partition-id=0"]
        node = subprocess.Popen(command, env=environment(own), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: len(told) > 0, 180)
        finally:
            node.kill()
            node.wait()
        assert (NOT_TRUSTED in told) != trusts_it and len(set(told)) == 1, told
