"""isfl from Python: runs and comparisons as calls (`calls.py`), their directories as objects (`results.py`).

`isfl` itself offers these names; `docs/api.md` lists all that is public.
"""

from isfl.api.calls import ConfigLike, compare, load_config, resume, run
from isfl.api.results import Comparison, Record, Run

__all__ = ["Comparison", "ConfigLike", "Record", "Run", "compare", "load_config", "resume", "run"]
