"""isfl from Python: runs and comparisons as calls (`calls.py`), their directories as objects (`results.py`,
`comparison.py`).

`isfl` itself offers these names; `docs/api.md` lists all that is public.
"""

from isfl.api.callbacks import Callback
from isfl.api.calls import ConfigLike, compare, load_config, resume, run
from isfl.api.comparison import Comparison
from isfl.api.records import Record
from isfl.api.results import Run

__all__ = ["Callback", "Comparison", "ConfigLike", "Record", "Run", "compare", "load_config", "resume", "run"]
