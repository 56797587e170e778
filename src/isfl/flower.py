"""isfl on Flower: a strategy for your own Flower app, and the app that runs isfl's experiments.

If you have a Flower app, use `ISFL` as its strategy, and `class_counts` and `sampler` in its client. `server` and
`client` are the app that `flwr run` and `isfl run --connection` start; `make_certificates` prepares its deployment.
"""

from isfl.engines.flower.keys import make_certificates
from isfl.engines.flower.strategy import ISFL, class_counts, sampler
from isfl.experiment.flower_app import client, server

__all__ = ["ISFL", "class_counts", "client", "make_certificates", "sampler", "server"]
