"""What takes most of a round's time on a CPU, compiled for the machine it runs on.

3x3 convolutions. torch does nine multiplications for an output, near the peak of a core; minimal filtering
(Winograd) gets along with 2.25, and the adding around it is little once it is compiled. The arithmetic is float32 as
before, in another order: results differ in the last digits, and are the same to the bit in every process of a machine.
Without a C compiler nothing of this is used, and torch does everything as always.

| file | what |
|---|---|
| `winograd.c`, `tiles.py` | the convolution, its gradients, and its weight gradients for single images |
| `sums.c` | sums over the pixels of an image, for the layer that a convolution and its BatchNorm are together |
| `compiler.py`, `library.py` | from C to functions: compiled once, kept in the user's cache |
| `convolve.py` | the convolution as autograd knows it |
| `layer.py` | `nn.Conv2d` that convolves in this way |
"""

from isfl.kernels.layer import FastConv2d, with_fast_convolutions
from isfl.kernels.library import available

__all__ = ["FastConv2d", "available", "with_fast_convolutions"]
