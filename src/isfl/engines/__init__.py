"""Where a round runs: on this machine (`local/`), or on Flower nodes (`flower/`).

An engine carries values to the functions of `isfl.federation` and holds no algorithm.
"""

from isfl.engines.local import LocalEngine

__all__ = ["LocalEngine"]
