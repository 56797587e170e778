"""Calls of Flower's Control API from this process: a `flwr` command takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from cryptography.hazmat.primitives import serialization
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext


@dataclass(frozen=True)
class Control:
    """The Control API at an address, with the certificate of its authority and a token, if it is secured."""

    address: str
    root_certificates: bytes | None = None
    token: str | None = None

    def register(self, public_key: bytes) -> None:
        """Register a node's public key (in OpenSSH's format); raise `httpx.HTTPError` if it is refused."""
        key = serialization.load_ssh_public_key(public_key)
        content = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        with self._client() as client:
            client.RegisterNode(RegisterNodeRequest(public_key=content))

    def online(self) -> int:
        """Return the number of nodes that the SuperLink lists as online; raise `httpx.HTTPError` without an answer."""
        with self._client() as client:
            return sum(node.status == "online" for node in client.ListNodes(ListNodesRequest()).nodes_info)

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Add the token to a call."""
        if self.token is not None:
            context.request.headers["Authorization"] = f"Bearer {self.token}"
        return call_next(context)

    @contextmanager
    def _client(self) -> Iterator[ControlHttpClient]:
        client = ControlHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.root_certificates is None,
            root_certificates=self.root_certificates,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI"), self],
        )
        try:
            yield client
        finally:
            client.close()
