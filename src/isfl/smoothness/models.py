"""What the estimators need to know of a model: its parameters, its mode, its memory, and whether it fits the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters gradients are taken of, by name; a parameter used in two places counts once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def owned(module: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters that belong to this very module, not to its children."""
    # Not through named_parameters, which walks the module each time: this is asked a hundred times a pass.
    return {name: p for name, p in module._parameters.items() if p is not None and p.requires_grad}


@contextmanager
def evaluation_mode(*models: nn.Module) -> Iterator[None]:
    """Running statistics, no dropout: otherwise the gradient of a single sample is not defined."""
    were = {model: [module for module in model.modules() if module.training] for model in models}
    for model, training in were.items():
        if training:
            model.eval()
    try:
        yield
    finally:
        for training in were.values():
            for module in training:
                module.training = True


def hold_on_to_memory() -> None:
    """Let the C library keep what is freed between passes instead of giving it back to the system.

    glibc raises its thresholds to the size of the largest block it has seen freed, up to 32 MB. Otherwise every pass
    gets fresh pages, which the system has to clear: a tenth of the whole time. Nothing is touched here, so it is free.
    Where a process has set these thresholds itself, as the engine's workers do, it changes nothing.
    """
    np.empty(31 << 20, dtype=np.uint8)


def bytes_of_pass(model: nn.Module, inputs: Tensor) -> int:
    """What a forward and backward pass keeps of one sample: everything autograd saves, and every layer's output once
    more and the gradient of it."""
    own = {parameter.data_ptr() for parameter in model.parameters()}
    kept = 0

    def save(tensor: Tensor) -> Tensor:
        nonlocal kept
        if tensor.data_ptr() not in own:
            kept += tensor.numel() * tensor.element_size()
        return tensor

    def count(module: nn.Module, args: tuple[Tensor, ...], output: object) -> None:
        nonlocal kept
        if isinstance(output, Tensor):
            kept += 2 * output.numel() * output.element_size()

    handles = [m.register_forward_hook(count) for m in model.modules() if not list(m.children())]
    try:
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            model(inputs[:1].clone())
    finally:
        for handle in handles:
            handle.remove()
    return kept


def bytes_of_gradient(model: nn.Module) -> int:
    """One gradient with respect to all trainable parameters."""
    return sum(p.numel() * p.element_size() for p in trainable(model).values())


def check_data(model: nn.Module, inputs: Tensor, labels: Tensor, num_classes: int | None) -> Tensor:
    """The labels as torch wants them, or a ValueError that names what is wrong with model, inputs or labels."""
    if len(inputs) == 0 or len(inputs) != len(labels):
        raise ValueError(
            f"inputs and labels need the same number of samples, at least one: {len(inputs)}, {len(labels)}"
        )
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"labels must be a vector of whole numbers, found {labels.dtype} {tuple(labels.shape)}")
    if not trainable(model):
        raise ValueError("the model has no trainable parameter: gradients need at least one")
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"{type(module).__name__} without running statistics mixes the samples of a batch: gradients of single "
                "samples are undefined; use track_running_stats=True or GroupNorm"
            )
    with evaluation_mode(model), torch.no_grad():
        logits = model(inputs[:1].clone())
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the model must give logits of shape (B, C), found {found} for one sample")
    classes = logits.shape[1] if num_classes is None else num_classes
    if logits.shape[1] < classes:
        raise ValueError(f"num_classes is {classes}, but the model gives only {logits.shape[1]} logits")
    bad = (labels < 0) | (labels >= classes)
    if bad.any():
        index = int(bad.nonzero()[0, 0])
        raise ValueError(f"labels[{index}] is {int(labels[index])}: it must lie in 0 .. {classes - 1}")
    return labels.long()
