"""Clients on this machine: in this process, or in worker processes."""

from isfl.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
