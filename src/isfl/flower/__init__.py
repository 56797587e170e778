"""isfl on Flower: the same configuration, the same functions, the same bits, on other machines.

`wire.py` turns values into messages, `client.py` answers them at a node (`node.py`), `engine.py` asks the nodes that
`node_registry.py` knows, through `messages.py`; `server.py` puts a run directory around it. `simulation.py` runs all of
it in this process, `app.py` is the app for `flwr run`, `deployment.py` starts a federation on this machine (`keys.py`,
`processes.py`), `submission.py` sends a run to one. `strategy.py` is for Flower apps of others.
"""
