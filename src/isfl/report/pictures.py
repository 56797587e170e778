"""Writing a picture down."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from isfl.errors import UserError


def save(figure: Figure, out: Path, dpi: int = 150) -> Path:
    """Write a figure and let go of it; the ending of the name says the format."""
    try:
        figure.savefig(out, dpi=dpi)
    except (OSError, ValueError) as error:
        raise UserError(f"{out}: the picture cannot be written ({error})") from None
    finally:
        plt.close(figure)
    return out
