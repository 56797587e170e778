"""The setting of `isfl demo`."""

from __future__ import annotations

from importlib import resources

from isfl.problem.config import Config, parse_config


def demo_config() -> Config:
    """Read the configuration that ships with the package."""
    text = resources.files("isfl.experiment").joinpath("presets/demo.toml").read_text(encoding="utf-8")
    return parse_config(text, "demo.toml")
