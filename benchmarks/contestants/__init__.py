"""The same federated round by different programs, each run in a separate process by `benchmarks.contest`.

They share `work.py` (the data, the model, local training) and `clock.py` (how they talk to the harness).
"""
