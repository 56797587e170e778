"""What the estimators need to know about a model: its parameters, mode, memory, and whether it fits the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from isfl.smoothness.samples import Samples, check_loss, cross_entropy


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that gradients are taken of, by name; a parameter used in two places counts once."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def owned(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of this module itself, without those of its children."""
    # Not through named_parameters, which walks the whole module: this is called a hundred times per pass.
    return {name: p for name, p in module._parameters.items() if p is not None and p.requires_grad}


@contextmanager
def evaluation_mode(*models: nn.Module) -> Iterator[None]:
    """Use running statistics and no dropout: otherwise the gradient of a single sample is not defined.

    It sets the flags of the modules and leaves `eval` and `train` alone, which a model may override with side effects.
    """
    training = [module for model in models for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def hooked(modules: Iterable[nn.Module], hook: Callable[..., Any]) -> Iterator[None]:
    """Register a forward hook on the modules, and remove it in the end, whatever happens."""
    with ExitStack() as handles:
        for module in modules:
            handles.callback(module.register_forward_hook(hook).remove)
        yield


def bytes_of_pass(model: nn.Module, inputs: Tensor) -> int:
    """Return the bytes that a forward and backward pass holds for one sample: what autograd saves, and twice every
    layer's output, for the output itself and its gradient."""
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

    saved = torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor)
    with hooked([m for m in model.modules() if not list(m.children())], count), torch.enable_grad(), saved:
        model(inputs[:1].clone())
    return kept


def bytes_of_gradient(model: nn.Module) -> int:
    """Return the bytes of one gradient with respect to all trainable parameters."""
    return sum(p.numel() * p.element_size() for p in trainable(model).values())


def check_data(model: nn.Module, samples: Samples, num_classes: int | None) -> Samples:
    """Return the samples with int64 labels, or raise a ValueError that names what is wrong with model, data or loss."""
    inputs, labels = samples.inputs, samples.labels
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
    if samples.loss is not cross_entropy:
        check_loss(samples.loss, logits, labels[:1].long())
    return replace(samples, labels=labels.long())
