"""A process that has imported what a client app needs, and forks a copy of itself for every message.

A new Python process needs seconds to import torch and Flower, which is longer than a small client trains. Importing
starts no threads, so a copy is like a new process; it ends with its message.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from importlib import import_module

from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

from isfl.engines.flower.apps import MODULE


def main() -> None:
    """Serve one request per line of stdin, until its end: the options of `flwr-clientapp` and the token of a task."""
    import_module(MODULE)
    gc.freeze()  # a collection would copy the pages that parent and children share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes finished copies
    for line in sys.stdin:
        if os.fork() == 0:
            _serve(**json.loads(line))
            return


def _serve(options: list[str], token: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    held = os.memfd_create("token")
    os.write(held, token.encode())
    sys.argv = ["flwr-clientapp", *options, "--token-file", f"/proc/self/fd/{held}", "--parent-pid", str(os.getppid())]
    flwr_clientapp()


if __name__ == "__main__":
    main()
