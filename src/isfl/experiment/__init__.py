"""Runs and what is made of many: run directories, checkpoints, comparisons, the paper's experiments."""
