"""What this machine offers to isfl: versions, cores, compiler, caches, Flower, a browser."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import torch

from isfl.data.cache import MANIFEST
from isfl.engines.local.worker_pool import cores
from isfl.files import cache_directory
from isfl.kernels import compiler, library

PACKAGES = ("isfl", "torch", "numpy", "flwr", "ray", "playwright")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Convolutions:
    """Compiled 3x3 convolutions: the compiler, the length of its vectors, or why there are none."""

    compiler: str | None
    vector_length: int | None
    problem: str | None


@dataclass(frozen=True)
class Cache:
    directory: str
    bytes: int
    data_sets: list[str]


@dataclass(frozen=True)
class Facts:
    system: str
    python: str
    versions: dict[str, str | None]
    cores: int
    cuda_devices: int
    convolutions: Convolutions
    cache: Cache | None
    """None if there is no home directory."""
    flower: bool
    flower_simulation: bool
    browser: str | None
    browser_tests: bool


def collect() -> Facts:
    """Return the facts; the convolutions are compiled if they are not in the cache yet."""
    versions = {name: _version(name) for name in PACKAGES}
    problem, browser = library.why_unavailable(), browser_path()
    return Facts(
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        versions=versions,
        cores=cores(),
        cuda_devices=torch.cuda.device_count(),
        convolutions=Convolutions(
            compiler=compiler.compiler_path(),
            vector_length=library.lanes() if problem is None else None,
            problem=problem,
        ),
        cache=_cache(),
        flower=find_spec("flwr") is not None,
        flower_simulation=find_spec("flwr") is not None and find_spec("ray") is not None,
        browser=browser,
        browser_tests=browser is not None and find_spec("playwright") is not None,
    )


def browser_path() -> str | None:
    """Return the path of an installed Chromium or Chrome."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cache() -> Cache | None:
    try:
        directory = cache_directory()
    except RuntimeError:
        return None
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    return Cache(str(directory), size, sorted(file.parent.name for file in directory.glob(f"*/{MANIFEST}")))


def described(facts: Facts) -> list[tuple[str, str, str]]:
    """Return one line per fact: its name, its value, and what it means for the user."""
    return [
        ("isfl", facts.versions["isfl"] or "not installed", "the version to name in a bug report"),
        ("system", f"{facts.system}, Python {facts.python}", "Linux and macOS are supported"),
        ("torch", facts.versions["torch"] or "-", "the same versions give the same bits on the same machine"),
        ("numpy", facts.versions["numpy"] or "-", "as for torch"),
        ("cores", str(facts.cores), "worker processes of a run, unless --jobs says otherwise"),
        (
            "CUDA",
            f"{facts.cuda_devices} devices",
            "one worker per device" if facts.cuda_devices else "runs use the CPU",
        ),
        _convolutions(facts.convolutions),
        *_caches(facts.cache),
        _flower(facts),
        _simulation(facts),
        _browser(facts),
    ]


def _convolutions(found: Convolutions) -> tuple[str, str, str]:
    if found.problem is not None:
        return "convolutions", found.problem, "torch's are used: 3x3 convolutions take about twice the time"
    value = f"{found.compiler}, vectors of {found.vector_length} float32"
    return "convolutions", value, "3x3 convolutions are compiled for this processor"


def _caches(cache: Cache | None) -> list[tuple[str, str, str]]:
    if cache is None:
        return [("cache", "no home directory", "set ISFL_CACHE to keep data sets and compiled code")]
    size = f"{cache.directory}, {cache.bytes / 1e6:.1f} MB"
    names = ", ".join(cache.data_sets) or "none"
    return [
        ("cache", size, "safe to delete; ISFL_CACHE moves it"),
        ("data sets", names, "in the cache, so they need no network; isfl data list shows all"),
    ]


def _flower(facts: Facts) -> tuple[str, str, str]:
    if facts.flower:
        return "Flower", facts.versions["flwr"] or "installed", "--engine flower and isfl flower work"
    return "Flower", "not installed", "for --engine flower: pip install 'isfl[flower]'"


def _simulation(facts: Facts) -> tuple[str, str, str]:
    if facts.flower_simulation:
        return "ray", facts.versions["ray"] or "installed", "Flower's simulation works"
    return "ray", "not installed", "for Flower's simulation: pip install 'isfl[flower]'"


def _browser(facts: Facts) -> tuple[str, str, str]:
    if facts.browser_tests:
        return "browser", str(facts.browser), "the tests of the report in a browser can run"
    missing = "Playwright is missing" if facts.browser else "no Chromium or Chrome"
    return "browser", missing, "needed only for isfl's own browser tests; reports open in any browser"
