"""Measurements with bars, on real data: `make bench`. `run.py` calls the parts, one file each."""
