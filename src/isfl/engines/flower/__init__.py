"""Clients as Flower nodes: the same functions and the same bits, on other machines.

`wire.py` turns values into records, `client.py` answers messages at a node (`node.py`), `engine.py` asks the nodes that
`node_registry.py` knows, through `messages.py`. `simulation.py` simulates nodes in this process; `deployment.py` starts
a federation on this machine (`keys.py`, `processes.py`). `strategy.py` is for Flower apps of others.
"""
