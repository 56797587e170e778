"""The paper's networks."""

from __future__ import annotations

import torch
from torch import nn

from isfl.models.resnet import resnet8


def _as_written(model: nn.Module) -> nn.Module:
    """ReLU before pooling, the order the paper gives."""
    for block in list(model.modules()):
        kinds = [type(layer) for layer in block] if isinstance(block, nn.Sequential) else []
        if kinds[-2:] == [nn.MaxPool2d, nn.ReLU]:
            assert isinstance(block, nn.Sequential)
            block[-2], block[-1] = nn.ReLU(), nn.MaxPool2d(2)
    return model


def test_pooling_before_relu_changes_no_bit() -> None:
    torch.manual_seed(0)
    ours = resnet8((3, 32, 32), 10, width=0.25)
    written = _as_written(resnet8((3, 32, 32), 10, width=0.25))
    written.load_state_dict(ours.state_dict())
    assert [type(layer) for layer in written.modules()] != [type(layer) for layer in ours.modules()]
    images = torch.randn(16, 3, 32, 32)
    outputs = []
    for model in (ours, written):
        torch.manual_seed(1)  # dropout
        outputs.append(model(images))
        outputs[-1].square().sum().backward()
    assert torch.equal(*outputs)
    for mine, theirs in zip(ours.parameters(), written.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad)
