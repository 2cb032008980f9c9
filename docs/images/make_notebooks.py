"""Takes the pictures of notebooks/03 that docs/tracing.md shows out of the notebook.

``python docs/images/make_notebooks.py FOLDER`` writes the plots as they are, and a page that a
browser turns into the third picture, for instance
``chromium --headless --screenshot=notebook_compare.png --window-size=760,560 notebook_compare.html``.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import nbformat

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "03_anatomy_of_a_deep_recall.ipynb"
PLOTS = {"ax.scatter(": "notebook_confidence.png", "label=": "notebook_thresholds.png"}
"""What the cell that draws a plot has in it, and the file that the plot is kept in."""


def main(folder: Path) -> None:
    """Write the pictures and the page into the folder."""
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:  # type: ignore[no-untyped-call]
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            for mark, name in PLOTS.items():
                if "image/png" in data and mark in cell.source:
                    (folder / name).write_bytes(base64.b64decode(data["image/png"]))
            if "text/html" in data and "compare(" in cell.source:
                style = "margin:16px;background:white"
                page = f'<!doctype html><meta charset="utf-8"><body style="{style}">'
                (folder / "notebook_compare.html").write_text(page + data["text/html"], "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
