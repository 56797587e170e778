"""Trackers: report the rounds of a run to another program as they happen. One file per tracker.

To add a tracker, write a file with a class that has the methods of `base.Tracker`, `TRACKER` (that class) and `EXTRA`
(the optional dependency of this package with the libraries it needs, or None), and add its name to `FILES`. A file
imports such libraries when its tracker is made: this list must stay cheap to read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from isfl.errors import UserError
from isfl.trackers.base import Tracker

FILES = (
    "tensorboard",  # scalars in a browser
    "wandb",  # Weights & Biases
    "mlflow",
)
"""What `--track` takes besides `module:function`."""


def factory_named(name: str) -> Callable[[], Tracker]:
    """Return what makes the trackers of this name: a file of this package, or the user's `module:function`."""
    if name in FILES:
        return partial(_listed, name)
    if ":" not in name:
        raise UserError(f"--track {name}: choose {', '.join(FILES)}, or give module:function for a tracker of your own")
    from isfl.data.own import call, resolve

    return partial(_checked, partial(call, resolve(name, "--track"), f"--track {name}"), name)


def _listed(name: str) -> Tracker:
    module = import_module(f"{__name__}.{name}")
    try:
        tracker: Tracker = module.TRACKER()
    except ImportError as error:
        raise UserError(f"--track {name}: {error}; pip install 'isfl[{module.EXTRA}]'") from None
    return tracker


def _checked(make: Callable[[], Any], name: str) -> Tracker:
    tracker: Tracker = make()
    if not all(callable(getattr(tracker, method, None)) for method in ("begin", "on_round", "end")):
        raise UserError(f"--track {name}: it returned a {type(tracker).__name__} without begin, on_round and end")
    return tracker


__all__ = ["FILES", "Tracker", "factory_named"]
