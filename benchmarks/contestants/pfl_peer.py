"""Apple's pfl: FederatedAveraging on its SimulatedBackend, over worker processes as its guide advises.

This process is worker 0 and starts the others; each trains its share of the clients on one thread.
"""

# pfl lives in an environment of its own, which the type checker need not see.
# mypy: disallow-subclassing-any=False, disable-error-code="import-not-found"

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.contestants.clock import Clock
from benchmarks.contestants.work import BATCH_SIZE, CLIENTS, LEARNING_RATE, Work, from_arguments, new_model, shuffled

RANK = "PFL_WORKER_RANK"


class Learner(nn.Module):
    """ResNet8 with the two methods that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.body = new_model()
        self.batches, self.total = 0, 0.0

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        self.train()
        loss = F.cross_entropy(self.body(inputs), labels)
        self.batches, self.total = self.batches + 1, self.total + loss.item()
        return loss

    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, object]:
        """pfl always evaluates in its first round; here without running the model."""
        from pfl.metrics import Weighted

        return {"samples": Weighted(len(labels), 1)}


def start_helpers(workers: int) -> list[subprocess.Popen[str]]:
    """Start the other workers before pfl is imported, because they connect during the import."""
    if workers == 1 or RANK in os.environ:
        return []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join([address] * workers)  # only the first is ever used
    command = [sys.executable, "-m", "benchmarks.contestants.pfl_peer", *sys.argv[1:]]
    helpers = [
        subprocess.Popen(
            command, env={**os.environ, RANK: str(rank)}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        for rank in range(1, workers)
    ]
    os.environ[RANK] = "0"
    return helpers


def run(work: Work, helpers: Sequence[subprocess.Popen[str]]) -> None:
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import MinimizeReuseUserSampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    def forward(line: str) -> None:
        for helper in helpers:
            assert helper.stdin is not None
            helper.stdin.write(line)
            helper.stdin.flush()

    class Timed(TrainingProcessCallback):
        clock = Clock("torch", "pfl")

        def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
            self.clock.ready()
            self.clock.begin(forward)
            return Metrics()

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            counts = {str(name): value for name, value in aggregate_metrics.to_simple_dict().items()}
            # pfl gives the mean over clients; the loss is of this worker's clients.
            images = CLIENTS * next(value for name, value in counts.items() if "number of data points" in name)
            learner = model.pytorch_model
            self.clock.end(round(images), learner.total / learner.batches)
            learner.batches, learner.total = 0, 0.0
            if central_iteration + 1 < work.rounds:
                self.clock.begin(forward)
            return False, Metrics()

    learner = Learner()
    model = PyTorchModel(learner, torch.optim.Adam, torch.optim.SGD(learner.parameters(), lr=1.0))
    clients = FederatedDataset(
        lambda client: PyTorchTensorDataset(shuffled(work.folder, client)),
        MinimizeReuseUserSampler(list(range(CLIENTS))),
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=work.rounds + 1,
            train_cohort_size=CLIENTS,
            val_cohort_size=None,
        ),
        SimulatedBackend(clients, clients),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH_SIZE),
        NNEvalHyperParams(local_batch_size=None),
        [Timed()],
        send_metrics_to_platform=False,
    )


def main() -> None:
    work = from_arguments()
    np.random.seed(0)  # noqa: NPY002 (workers agree on who trains whom by this seed)
    helpers = start_helpers(work.workers)
    torch.set_num_threads(1 if work.workers > 1 else 2)
    run(work, helpers)
    for helper in helpers:
        helper.wait(timeout=60)


if __name__ == "__main__":
    main()
