"""Starts the processes of Flower apps for a SuperLink or a SuperNode, and hands them their tokens in memory.

Flower's own executor writes a task's token to the command line, which every user of the machine can read, and asks for
tasks without a secret, so that every process that reaches the port could take them.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from logging import ERROR
from pathlib import Path

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore import log
from flwr.supercore.constant import TASK_TYPE_TO_APPIO_API_ADDRESS_ARG, TASK_TYPE_TO_COMMAND, TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from isfl.engines.flower.processes import program

POLL_SECONDS = 0.25
RETRY_SECONDS = 1.0
PROTECTED = frozenset({"/flwr.proto.Runtime/AcquireTask"})


@dataclass(frozen=True)
class Executor:
    """Takes tasks of one kind from the Runtime API at `address`, which knows `secret` too."""

    kind: TaskType
    address: str
    secret: bytes
    root_certificates: str | None = None

    def start(self) -> None:
        """Take tasks in a thread, as long as this process lives."""
        threading.Thread(target=self._run, name="executor", daemon=True).start()

    def _run(self) -> None:
        client = self._client()
        while True:
            try:
                found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[self.kind]))
                if found.HasField("task") and found.token:
                    self._launch(found.token)
                time.sleep(POLL_SECONDS)
            except httpx.RequestError:  # the server is not up yet
                time.sleep(RETRY_SECONDS)
            except (httpx.HTTPStatusError, OSError) as error:
                log(ERROR, "a task could not be started: %s", error)
                time.sleep(RETRY_SECONDS)

    def _client(self) -> RuntimeHttpClient:
        certificates = None if self.root_certificates is None else Path(self.root_certificates).read_bytes()
        return RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=certificates is None,
            root_certificates=certificates,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperExec"),
                SuperExecAuthHttpInterceptor(master_secret=self.secret, protected_methods=PROTECTED),
            ],
        )

    def _launch(self, token: str) -> None:
        """Start the app's process; the token is in a file without a name, which only that process inherits."""
        held = os.memfd_create("token")
        try:
            os.write(held, token.encode())
            trust = (
                ["--insecure"] if self.root_certificates is None else ["--root-certificates", self.root_certificates]
            )
            command = [
                program(TASK_TYPE_TO_COMMAND[self.kind]),
                TASK_TYPE_TO_APPIO_API_ADDRESS_ARG[self.kind],
                self.address,
                "--token-file",
                f"/proc/self/fd/{held}",
                "--parent-pid",
                str(os.getpid()),
                *trust,
            ]
            quiet = subprocess.DEVNULL if self.kind is TaskType.SERVER_APP else None  # its log goes to the SuperLink
            subprocess.Popen(command, pass_fds=[held], stdin=subprocess.DEVNULL, stdout=quiet, stderr=quiet)
        finally:
            os.close(held)
