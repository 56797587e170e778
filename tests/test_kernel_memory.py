"""The C functions stay inside of their memory, compile without a warning, and work with every vector length."""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from isfl.kernels import compiler, library
from tests.convolutions import needs_compiler


@pytest.mark.skipif(library._ADVISE is None, reason="the system has no large pages to ask for")
def test_only_whole_pages_of_large_tensors_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(library, "_ADVISE", lambda start, length, _: asked.append((start.value, length.value)))
    library.in_large_pages(torch.empty(1000))
    tensor = torch.empty((library.LARGE >> 2) + 5000)[1:]
    assert library.in_large_pages(tensor) is tensor
    ((start, length),) = asked
    first, last = tensor.data_ptr(), tensor.data_ptr() + 4 * tensor.numel()
    assert start % mmap.PAGESIZE == length % mmap.PAGESIZE == 0
    assert first <= start < first + mmap.PAGESIZE and last - mmap.PAGESIZE < start + length <= last


PROBE = """
    import torch
    import torch.nn.functional as F
    from isfl.kernels import compiler, few, library, tiles
    from isfl.kernels.convolve import convolve
    from isfl.kernels.normalise import normalise

    compiler.FLAGS = (*compiler.FLAGS, {flags})
    tiles.scratch = few.scratch = lambda size: torch.empty(size - {short})
    assert library.available(), library.why_unavailable()
    sizes = ((1, 16, 16, 1, 1), (3, 16, 32, 5, 7), (5, 48, 16, 9, 4), (2, 32, 64, 16, 14))
    for tiles.CACHED in (1, 1 << 18):
        for n, c, o, height, width in sizes:
            leaves = [torch.randn(n, c, height, width), torch.randn(o, c, 3, 3), torch.randn(o)]
            doubles = [leaf.double().requires_grad_() for leaf in leaves]
            images, gradients = library.as_images(leaves[0]), torch.randn(n, height, width, o)
            for leaf in leaves:
                leaf.requires_grad_()
            found = torch.autograd.grad((convolve(*leaves) ** 2).sum(), leaves)
            truth = torch.autograd.grad((F.conv2d(*doubles, padding=1) ** 2).sum(), doubles)
            for one, other in zip(found, truth):
                assert float((one - other).abs().max()) <= 1e-4 * float(other.abs().max())
            plain = F.conv2d(*doubles, padding=1).detach().relu()
            for then, expected in ((1, plain), *([(2, F.max_pool2d(plain, 2))] if min(height, width) > 1 else [])):
                done = tiles.forward(images, leaves[1].detach(), leaves[2].detach(), tiles.Then(then))
                assert done.shape == expected.shape and float((done - expected).abs().max()) <= 1e-3
            for scale in (None, torch.randn(o)):
                blocks = tiles.weight_gradients(gradients, images, scale)
                assert float(tiles.squared_differences(gradients, images, blocks, scale).max()) == 0.0
                squares = tiles.squared_differences(gradients, images, None, scale)
                assert torch.allclose(squares, blocks.double().flatten(1).square().sum(1), rtol=1e-5)
            values, shift = torch.randn(n, height, width, o), torch.randn(o)
            sums, products = tiles.channel_sums(gradients, values, shift)
            assert torch.allclose(sums, gradients.sum((1, 2)), atol=1e-4)
            assert torch.allclose(products, (gradients * (values - shift)).sum((1, 2)), atol=1e-3)
    for channels, height, width in ((16, 1, 2), (32, 5, 7), (48, 6, 3), (64, 19, 14)):
        for pool in (False, height > 1):
            x = torch.randn(3, channels, height, width).contiguous(memory_format=torch.channels_last)
            leaves = [x, torch.randn(channels), torch.randn(channels)]
            doubles = [leaf.double().requires_grad_() for leaf in leaves]
            found, _ = normalise(*(leaf.requires_grad_() for leaf in leaves), 1e-5, pool)
            truth = F.relu(F.batch_norm(doubles[0], None, None, *doubles[1:], training=True, eps=1e-5))
            truth = F.max_pool2d(truth, 2) if pool else truth
            ours = torch.autograd.grad(found.square().sum(), leaves)
            for one, other in zip((found, *ours), (truth, *torch.autograd.grad(truth.square().sum(), doubles))):
                assert float((one - other).abs().max()) <= 1e-4 * float(other.abs().max())
    for n, c, o, height, width in ((1, 1, 16, 1, 1), (3, 3, 32, 5, 7), (2, 4, 48, 9, 8), (2, 2, 16, 3, 17)):
        leaves = [torch.randn(n, c, height, width), torch.randn(o, c, 3, 3), torch.randn(o)]
        doubles = [leaf.double().requires_grad_() for leaf in leaves]
        found = torch.autograd.grad((convolve(*(leaf.requires_grad_() for leaf in leaves)) ** 2).sum(), leaves)
        truth = torch.autograd.grad((F.conv2d(*doubles, padding=1) ** 2).sum(), doubles)
        for one, other in zip(found, truth):
            assert float((one - other).abs().max()) <= 1e-4 * float(other.abs().max())
    print("lanes", library.lanes())
"""


def probe(
    tmp_path: Path, flags: tuple[str, ...], short: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run all functions on sizes with edges in a new process, compiled with these flags."""
    code = textwrap.dedent(PROBE).format(flags="".join(f"{flag!r}, " for flag in flags), short=short)
    chosen = {**os.environ, "ISFL_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, "-c", code], env=chosen, capture_output=True, text=True, timeout=120)


x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of x86")
SHORTER = {"-mno-avx512f": 8, "-mno-avx": 4}
"""Compiler flags for processors with shorter vectors, and the vector lengths."""


@needs_compiler
@x86
@pytest.mark.parametrize(("flag", "lanes"), SHORTER.items())
def test_processors_with_shorter_vectors(flag: str, lanes: int, tmp_path: Path) -> None:
    done = probe(tmp_path, (flag,))
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) <= lanes


@needs_compiler
@pytest.mark.parametrize("flag", ["-O3", *(pytest.param(flag, marks=x86) for flag in SHORTER)])
def test_the_compiler_gives_no_warning(flag: str, tmp_path: Path) -> None:
    strict = ("-Wall", "-Wextra", "-Werror", flag)
    sources = sorted(Path(library.__file__).parent.glob("*.c"))
    command = ["cc", *compiler.FLAGS, *strict, *map(str, sources), "-o", str(tmp_path / "strict.so")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@needs_compiler
@pytest.mark.parametrize("flag", ["-g", *(pytest.param(flag, marks=x86) for flag in SHORTER)])
@pytest.mark.parametrize("short", [0, 16], ids=["as it is", "scratch too small"])
def test_nothing_outside_of_its_memory_is_touched(short: int, flag: str, tmp_path: Path) -> None:
    """Under AddressSanitizer, which does detect a buffer that is one vector too short."""
    name = "libasan.so"
    found = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, timeout=20)
    sanitizer = found.stdout.strip()
    if found.returncode != 0 or sanitizer in ("", name):
        pytest.skip("the compiler has no AddressSanitizer")
    flags = ("-O1", "-g", "-fsanitize=address", flag)
    done = probe(tmp_path, flags, short, LD_PRELOAD=sanitizer, ASAN_OPTIONS="detect_leaks=0")
    if short:
        assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr
    else:
        assert done.returncode == 0, done.stderr[-2000:]
