"""Writes the pages that the pictures in docs/tracing.md were taken of, into the folder given.

A browser turns them into pictures, for instance
``chromium --headless --screenshot=notebook.png --window-size=1000,900 notebook.html``.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from mnemotrace import Memory, Recall
from mnemotrace.testing import ScriptedLLM

QUESTION = (
    "We are about to move the shop to new machines. Before we start I would like to know which "
    "database we decided on, on which port the staging environment listens, and who may deploy "
    "the payment service on a Friday, if anybody may do that at all."
)
ANSWERS: dict[str, Any] = {
    "query_analysis": {
        "keywords": ["database", "staging port", "deploy payment"],
        "sub_queries": ["database decision", "port of the staging environment"],
        "scopes": ["/shop/decisions"],
        "complexity": "complex",
    },
    "exploration": {
        "gaps": ["who may deploy on a Friday"],
        "sub_queries": ["deploying the payment service"],
        "scopes": ["/shop/releases"],
    },
}
TEXTS = [
    ("We decided to use PostgreSQL for the user database.", "/shop/decisions"),
    ("The staging environment listens on port 8080.", "/shop/environments"),
    ("결제 서비스는 매주 화요일에 배포합니다.", "/shop/releases"),
    ("Invoices are kept for ten years.", "/shop/accounting"),
]


def recalled() -> Recall:
    """Return a deep recall that went round once more."""
    llm = ScriptedLLM(ANSWERS, delay=0.012, model="gpt-4o-mini")
    with Memory(storage=":memory:", llm=llm, confidence_threshold_high=1.0,
                complex_query_threshold=1.0) as memory:  # fmt: skip
        for text, scope in TEXTS:
            memory.remember(text, scope, ["shop"], importance=0.6)
        memory.recall("warm up")
        return memory.recall(QUESTION, limit=3)


def page(body: str, style: str = "") -> str:
    """Return a whole HTML page."""
    return f'<!doctype html><meta charset="utf-8"><body style="margin:16px;{style}">{body}'


def main(folder: Path) -> None:
    """Write the pages."""
    answer = recalled()
    trace = answer.trace
    assert trace is not None
    shown = answer._repr_html_().replace('<details class="mnt-part">', "<details open>", 1)
    (folder / "notebook.html").write_text(page(shown), encoding="utf-8")
    dark = page(shown, "background:#111;color:#e8e8e8")
    (folder / "notebook_dark.html").write_text(dark, encoding="utf-8")
    (folder / "drawing.svg").write_text(trace.draw(), encoding="utf-8")
    console = Console(record=True, width=118, file=io.StringIO(), force_terminal=True)
    console.print(trace)
    svg = console.export_svg(title="rich.print(answer.trace)", font_aspect_ratio=0.61)
    (folder / "terminal.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
