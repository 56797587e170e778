"""Experiments: configuration, run directories, comparisons."""
