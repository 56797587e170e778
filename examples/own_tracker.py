"""A tracker of your own: `isfl run experiment.toml --track own_tracker:Csv`, from the directory this file is in.

Writes round and accuracy into `accuracy.csv` of the run directory; a resumed run goes on with the file.
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
