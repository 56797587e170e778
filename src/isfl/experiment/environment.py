"""What the numbers of a run may depend on besides its configuration, as `run.json` has it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from isfl import kernels

FORMAT = 1
"""Of the run directory; another one is refused."""


def environment() -> dict[str, Any]:
    """Return format, versions and machine."""
    return {
        "format": FORMAT,
        "versions": {name: version(name) for name in ("isfl", "torch", "numpy")}
        | {"python": platform.python_version()},
        "machine": {
            "system": platform.system(),
            "processor": _processor(),
            "cpus": os.cpu_count(),
            "convolutions": "compiled convolutions" if kernels.available() else "torch's convolutions",
        },
    }


def _processor() -> str:
    """Return the processor's model name, or the architecture if the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
