"""Execute `examples/tour.ipynb` in a new kernel and write it back with its outputs.

python scripts/execute_tour.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples/tour.ipynb"


def executed(directory: Path) -> nbformat.NotebookNode:
    """Return the notebook with new outputs; its runs go to `directory`."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(directory)}}
    NotebookClient(notebook, timeout=280, kernel_name="python3", resources=place, record_timing=False).execute()
    notebook.metadata.language_info = {"name": "python"}  # without versions, which change with every machine
    return notebook


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        nbformat.write(executed(Path(scratch)), NOTEBOOK)


if __name__ == "__main__":
    main()
