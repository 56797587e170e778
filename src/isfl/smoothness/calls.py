"""The Lipschitz values of all clients in one call, for a loop of one's own: all parts in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from torch import Tensor, nn
from torch.utils.data import DataLoader

from isfl.smoothness.estimate import LipschitzEstimate, conclude, distance, measure_part, plan_estimate
from isfl.smoothness.models import trainable
from isfl.smoothness.plan import MEMORY
from isfl.smoothness.samples import Loss, cross_entropy, from_loader
from isfl.theory.arrays import Array


@overload
def lipschitz(
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    method: str = ...,
    loss: Loss = ...,
    memory: int = ...,
) -> Array: ...
@overload
def lipschitz(
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: DataLoader[Any],
    *,
    num_classes: int,
    method: str = ...,
    loss: Loss = ...,
    memory: int = ...,
) -> Array: ...
def lipschitz(
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor | DataLoader[Any],
    labels: Tensor | None = None,
    num_classes: int | None = None,
    *,
    method: str = "exact",
    loss: Loss = cross_entropy,
    memory: int = MEMORY,
) -> Array:
    """Return the gradient-Lipschitz values `L_{k,i}` of each local model and class.

    `L_{k,i} = max_{(x,y): y=i} ||grad l(x,y; theta^k) - grad l(x,y; theta)|| / ||theta^k - theta||`, as defined in the
    ISFL paper (Zhu et al., IEEE Internet of Things Journal, 2024). Models are evaluated in eval mode (running
    statistics, no dropout) and left unchanged. The global model's gradients are computed once for all clients:
    (K + 1) N gradients instead of 2 K N.

    Parameters
    ----------
    local_models
        K modules of the same architecture as `global_model`.
    global_model
        The module to compare with; any classifier that maps a batch to (B, C) logits.
    inputs
        (N, ...) samples of the public set `D_L`. Or a `DataLoader` of (inputs, labels) batches, without the argument
        `labels`: it is read once into memory, on the device of `global_model`.
    labels
        (N,) integers in `0 .. num_classes - 1`.
    num_classes
        `C`.
    method
        `exact` as above; `class-mean` for the gradient of each class's mean loss; `last-layer` for the parameters of
        the output layer alone, which takes forward passes only.
    loss
        Takes logits (B, C) and labels (B,) and returns one loss per sample, (B,); cross-entropy by default. Each value
        must depend on its own row of logits alone.
    memory
        Bytes to stay within; it limits how many samples' gradients are held at a time.

    Returns
    -------
    Array
        Of shape (K, C). NaN for a class without samples (`sampling_probabilities` treats it as average);
        a row of NaN for a local model equal to the global one (keep that client's probabilities).

    Raises
    ------
    ValueError
        If models, data, loss and method do not fit together; the message names what is wrong.

    Examples
    --------
    Two clients that scaled the global model by 1.1 and 0.5, and four samples of two classes:

    >>> import copy, torch
    >>> from isfl import lipschitz
    >>> model = torch.nn.Linear(2, 2)
    >>> _ = model.weight.data.copy_(torch.eye(2)), model.bias.data.zero_()
    >>> clients = [copy.deepcopy(model) for _ in range(2)]
    >>> _ = clients[0].weight.data.mul_(1.1), clients[1].weight.data.mul_(0.5)
    >>> inputs, labels = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 1, 0, 1])
    >>> lipschitz(clients, model, inputs, labels, num_classes=2).round(3)
    array([[0.272, 0.435],
           [0.307, 0.854]])

    The same samples from a DataLoader, with the squared error as the loss:

    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> loader = DataLoader(TensorDataset(inputs, labels), batch_size=3)
    >>> def squared_error(logits, labels):
    ...     return (logits - torch.nn.functional.one_hot(labels, 2)).square().sum(1)
    >>> lipschitz(clients, model, loader, num_classes=2, loss=squared_error).round(3)
    array([[ 3.464, 13.416],
           [ 3.464, 13.416]])
    """
    if isinstance(inputs, DataLoader):
        if labels is not None:
            raise ValueError("labels come from the DataLoader: leave out the argument labels")
        inputs, labels = from_loader(inputs, global_model)
    if labels is None or num_classes is None:
        raise TypeError("lipschitz needs inputs and labels, or a DataLoader, and num_classes")
    return estimate_lipschitz(
        local_models, global_model, inputs, labels, num_classes, method=method, loss=loss, memory=memory
    ).values


def estimate_lipschitz(
    local_models: Sequence[nn.Module],
    global_model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    method: str = "exact",
    loss: Loss = cross_entropy,
    memory: int = MEMORY,
) -> LipschitzEstimate:
    """Return what `lipschitz` returns, with distances, costs and the number of samples left out.

    Parameters
    ----------
    local_models
        K modules of the same architecture as `global_model`.
    global_model
        The module to compare with; any classifier that maps a batch to (B, C) logits.
    inputs
        (N, ...), those of the public set.
    labels
        (N,) integers in `0 .. num_classes - 1`.
    num_classes
        C.
    method
        `exact`, or one of the cheaper estimators, as for `lipschitz`.
    loss
        Takes logits (B, C) and labels (B,), returns one loss per sample, (B,).
    memory
        Bytes to stay within; it limits the number of samples in one pass.

    Returns
    -------
    LipschitzEstimate
        The values and what they took.

    Raises
    ------
    ValueError
        If models, data and loss do not fit together; the message names what is wrong.

    Examples
    --------
    >>> import copy, torch
    >>> from isfl.smoothness import estimate_lipschitz
    >>> center = torch.nn.Linear(4, 3)
    >>> local = copy.deepcopy(center)
    >>> _ = torch.nn.init.zeros_(local.weight)
    >>> estimate = estimate_lipschitz([local], center, torch.randn(6, 4), torch.arange(6) % 3, num_classes=3)
    >>> estimate.values.shape, estimate.distances.shape, estimate.gradient_evaluations
    ((1, 3), (1,), 12)
    """
    plan = plan_estimate(global_model, inputs, labels, num_classes, method=method, loss=loss, memory=memory)
    distances = []
    for k in range(len(local_models)):
        model = local_models[k]
        _check_model(k, model, global_model)
        distances.append(distance(model, global_model))
    measurements = [
        measure_part(plan, number, local_models, global_model, inputs, labels) for number in range(len(plan))
    ]
    return conclude(plan, measurements, distances)


def _check_model(k: int, model: nn.Module, global_model: nn.Module) -> None:
    shapes = {name: p.shape for name, p in trainable(global_model).items()}
    if {name: p.shape for name, p in trainable(model).items()} != shapes:
        raise ValueError(f"local_models[{k}] does not have the trainable parameters of global_model")
