"""Write explain.html, the source of explain_not_returned.png, into a folder.

Then: ``chromium --headless --screenshot=explain_not_returned.png --window-size=820,470
explain.html``.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from mnemotrace import Memory

NOW = datetime(2026, 11, 2, 9, tzinfo=UTC)
OCTOBER, NOVEMBER = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
RECORDS = [
    ("pilot5", "The pilot with the Busan branch starts on 12 January.", 0.5, OCTOBER),
    ("pilot9", "The pilot phase of the new scanners ended in May.", 0.9, NOVEMBER),
    ("park", "Pilots may park in row C.", 0.9, NOVEMBER),
    ("call", "Who starts the weekly call: Ana, then Min-ji, in turn.", 0.9, NOVEMBER),
    ("alarm", "When the alarm starts, leave by the north stairs.", 0.9, NOVEMBER),
]

with Memory(llm=None, storage=":memory:", embedder="bundled") as memory:
    for name, text, importance, created in RECORDS:
        memory.remember(
            text,
            scope="/plans",
            categories=["plan"],
            importance=importance,
            created_at=created,
            record_id=name,
        )
    told = memory.explain("When does the pilot start?", "pilot5", limit=2, now=NOW)

page = f'<meta charset="utf-8"><body style="margin:12px">{told._repr_html_()}'
(Path(sys.argv[1]) / "explain.html").write_text(page, encoding="utf-8")
