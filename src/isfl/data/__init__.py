"""Where samples come from (`sources/`), what they are (`dataset.py`), how clients share them (`splits/`)."""

from isfl.data.dataset import Dataset
from isfl.data.sources import SOURCES, DataSettings, Source, keep, load
from isfl.data.splits import Partition, partition

__all__ = ["SOURCES", "DataSettings", "Dataset", "Partition", "Source", "keep", "load", "partition"]
