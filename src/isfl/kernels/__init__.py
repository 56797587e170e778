"""3x3 convolutions and the BatchNorm behind them, most of a round's time on a CPU, compiled for the machine.

torch does nine multiplications per output, near the peak speed of a core. Minimal filtering (S. Winograd, Arithmetic
Complexity of Computations, 1980; A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016)
does 2.25, and its additions are cheap once compiled. The arithmetic is float32 in another order than torch's: results
differ in the last digits, and are bit-identical in all processes of a machine. Without a C compiler, torch does all of
the work.

| file | what |
|---|---|
| `winograd.c`, `tiles.py` | the convolution, its gradients, and its weight gradients for single images |
| `few.c`, `few.py` | the same without filtering, for the few channels of a first layer |
| `sums.c` | sums over the pixels of an image, for a convolution folded with its BatchNorm |
| `norm.c`, `normalise.py` | BatchNorm with ReLU and 2x2 max-pooling in training, as a function of autograd |
| `vectors.h` | what the C files share |
| `compiler.py`, `library.py` | from C to functions: compiled once, stored in the user's cache |
| `convolve.py` | the convolution as a function of autograd |
| `layer.py` | an `nn.Conv2d` that uses it |
| `sequence.py` | an `nn.Sequential` that normalises in one pass |
"""

from isfl.kernels.layer import FastConv2d, suits, with_fast_convolutions
from isfl.kernels.library import available, why_unavailable
from isfl.kernels.sequence import FastSequential, with_fast_sequences

__all__ = [
    "FastConv2d",
    "FastSequential",
    "available",
    "suits",
    "why_unavailable",
    "with_fast_convolutions",
    "with_fast_sequences",
]
