"""Starts the processes of Flower apps for a SuperLink or a SuperNode, and hands them their tokens in memory.

Flower's own executor writes a task's token to the command line, which every user of the machine can read, and asks for
tasks without a secret, so that every process that reaches the port could take them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from logging import ERROR
from pathlib import Path

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore import log
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from isfl.engines.flower.processes import program

POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0
PROTECTED = frozenset({"/flwr.proto.Runtime/AcquireTask"})


class Executor(ABC):
    """Takes tasks of one kind from the Runtime API at `address`, which knows `secret` too."""

    kind: TaskType

    def __init__(self, address: str, secret: bytes, root_certificates: Path | None = None) -> None:
        self.address, self.secret, self.root_certificates = address, secret, root_certificates

    @abstractmethod
    def launch(self, token: str) -> None:
        """Start the app's process for the task with this token."""

    @property
    def options(self) -> list[str]:
        """Options of the app's process, without its token."""
        authority = self.root_certificates
        trust = ["--insecure"] if authority is None else ["--root-certificates", str(authority)]
        return ["--runtime-api-address", self.address, *trust]

    def start(self) -> None:
        """Take tasks in a thread, as long as this process lives."""
        threading.Thread(target=self._run, name="executor", daemon=True).start()

    def _run(self) -> None:
        client = self._client()
        while True:
            try:
                found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[self.kind]))
                if found.HasField("task") and found.token:
                    self.launch(found.token)
                time.sleep(POLL_SECONDS)
            except httpx.RequestError:  # the server is not up yet
                time.sleep(RETRY_SECONDS)
            except (httpx.HTTPStatusError, OSError) as error:
                log(ERROR, "a task could not be started: %s", error)
                time.sleep(RETRY_SECONDS)

    def _client(self) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.root_certificates is None,
            root_certificates=None if self.root_certificates is None else self.root_certificates.read_bytes(),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperExec"),
                SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods=PROTECTED),
            ],
        )


class ServerExecutor(Executor):
    """Starts a new process for the server app of every run."""

    kind = TaskType.SERVER_APP

    def launch(self, token: str) -> None:
        held = os.memfd_create("token")  # a file without a name, which only the new process inherits
        try:
            os.write(held, token.encode())
            given = ["--token-file", f"/proc/self/fd/{held}", "--parent-pid", str(os.getpid())]
            quiet = subprocess.DEVNULL  # its log goes to the SuperLink
            command = [program("flwr-serverapp"), *self.options, *given]
            subprocess.Popen(command, pass_fds=[held], stdin=quiet, stdout=quiet, stderr=quiet)
        finally:
            os.close(held)


class ClientExecutor(Executor):
    """Starts a copy of a warm process (`warm.py`) for the client app of every message."""

    kind = TaskType.CLIENT_APP

    def __init__(self, address: str, secret: bytes) -> None:
        super().__init__(address, secret)
        self._warm = self._started()

    def launch(self, token: str) -> None:
        if self._warm.poll() is not None:
            self._warm = self._started()
        assert self._warm.stdin is not None
        self._warm.stdin.write(json.dumps({"options": self.options, "token": token}).encode() + b"\n")
        self._warm.stdin.flush()

    @staticmethod
    def _started() -> subprocess.Popen[bytes]:
        """Start the warm process; the last argument only shows in the list of processes."""
        command = [sys.executable, "-m", "isfl.engines.flower.warm", "flwr-clientapp"]
        return subprocess.Popen(command, stdin=subprocess.PIPE)
