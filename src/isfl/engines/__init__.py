"""Where a round runs. An engine carries values to the functions of `isfl.federation` and holds no algorithm."""

from isfl.engines.local import LocalEngine

__all__ = ["LocalEngine"]
