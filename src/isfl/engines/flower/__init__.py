"""Clients as Flower nodes: the same functions and the same bits, on other machines.

`wire.py` turns values into records, `client.py` answers messages at a node (`node.py`), and `engine.py` sends tasks
through `messages.py` to the nodes in `node_registry.py`. `simulation.py` simulates nodes in this process;
`deployment.py` starts a federation on this machine (`keys.py`, `processes.py`, `control.py`). A secured one has
`superlink.py` and `supernode.py`, which let in accounts (`access.py`) and signed apps (`apps.py`), started by
`executor.py`. `strategy.py` is for other Flower apps.
"""
