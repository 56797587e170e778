"""A separate environment for each peer, created once under `.bench/`: their pins can differ from ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".bench"
PIP_SECONDS = 1800
# Named exactly and in the same command as whatever depends on it: a range could pull a build for another device.
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Peer:
    name: str
    requirements: tuple[str, ...]
    constrained: bool
    """By the project's constraints file."""


PEERS = {
    "flower": Peer("flower", (TORCH, "flwr[simulation]==1.41.0"), constrained=True),
    # dp-accounting, which pfl needs, wants absl-py 1 and attrs below 24; the constraints have newer ones.
    "pfl": Peer("pfl", (TORCH, "pfl[pytorch]==0.6.0"), constrained=False),
}


class InstallError(Exception):
    """Why a peer cannot be measured."""


def python_of(peer: Peer) -> Path:
    """Return the interpreter of the peer's environment; create it if it is missing or has other versions."""
    home = PLACE / peer.name
    python, marker = home / "bin/python", home / "requirements.txt"
    wanted = "\n".join(peer.requirements)
    if marker.is_file() and marker.read_text(encoding="utf-8") == wanted:
        return python
    PLACE.mkdir(exist_ok=True)
    (PLACE / ".gitignore").write_text("*\n", encoding="utf-8")
    shutil.rmtree(home, ignore_errors=True)
    print(f"creating the environment of {peer.name} in {home.relative_to(ROOT)}", file=sys.stderr, flush=True)
    constraint = ["--constraint", str(ROOT / "constraints.txt")] if peer.constrained else []
    deadline = time.monotonic() + PIP_SECONDS
    _run([sys.executable, "-m", "venv", str(home)], deadline)
    _run([str(python), "-m", "pip", "install", "--quiet", *constraint, *peer.requirements], deadline)
    marker.write_text(wanted, encoding="utf-8")  # last: an incomplete environment has no marker
    return python


def _run(command: list[str], deadline: float) -> None:
    seconds = max(1.0, deadline - time.monotonic())
    try:
        done = subprocess.run(command, timeout=seconds, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise InstallError(f"its installation took more than {PIP_SECONDS} s") from None
    except OSError as error:
        raise InstallError(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
        raise InstallError(f"its installation failed ({errors[0].removeprefix('ERROR: ')})")


if __name__ == "__main__":
    for entry in PEERS.values():
        try:
            print(entry.name, python_of(entry))
        except InstallError as reason:
            print(entry.name, "cannot be installed:", reason)
