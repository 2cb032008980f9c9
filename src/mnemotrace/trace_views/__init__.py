"""Views of a trace: terminal tree, notebook HTML, a drawing, its JSON schema, live progress.

Everything shown may come from a memory, a prompt or a model. It is data: control characters are
made visible, markup and escape sequences are never interpreted.
"""

from .drawing import Drawing, draw
from .live import progress
from .page import trace_html
from .results import extraction_html, reanalyzed_html, recall_html, receipt_html, record_html
from .schema import trace_schema
from .tree import TraceTree, trace_text, trace_tree
from .values import format_value, visible

__all__ = [
    "Drawing",
    "TraceTree",
    "draw",
    "extraction_html",
    "format_value",
    "progress",
    "reanalyzed_html",
    "recall_html",
    "receipt_html",
    "record_html",
    "trace_html",
    "trace_schema",
    "trace_text",
    "trace_tree",
    "visible",
]
