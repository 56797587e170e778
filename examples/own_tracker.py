"""Your own tracker: `isfl run experiment.toml --track own_tracker:Csv`, from the directory of this file.

It writes round and accuracy to `accuracy.csv` in the run directory; a resumed run appends to the file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Csv:
    def begin(self, config: Mapping[str, Any], directory: Path) -> None:
        self.file = (directory / "accuracy.csv").open("a", encoding="utf-8")

    def on_round(self, line: Mapping[str, Any]) -> None:
        print(line["round"], line["accuracy_standard"], sep=",", file=self.file, flush=True)

    def end(self) -> None:
        self.file.close()
