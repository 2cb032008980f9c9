"""What scopes, categories and records there are: read from counts and facets, never by a scan."""

from __future__ import annotations

from . import scopes
from .records import ScopeInfo
from .stores.backend import Facet, Order, StorageBackend
from .stores.selection import Selection


def info(store: StorageBackend, selection: Selection, path: str) -> ScopeInfo:
    """Summarise the selected subtree; a count of 0 and no times when nothing is there."""
    count = store.count(selection)
    if not count:
        return ScopeInfo(path=path)
    oldest = store.list_records(selection, 1, 0, Order.OLDEST)
    newest = store.list_records(selection, 1)
    return ScopeInfo(
        path=path,
        record_count=count,
        categories=sorted(store.facet(selection, Facet.CATEGORIES)),
        oldest_record=oldest[0].created_at if oldest else None,
        newest_record=newest[0].created_at if newest else None,
        child_scopes=children(store, selection, path),
    )


def children(store: StorageBackend, selection: Selection, path: str) -> list[str]:
    """Return the immediate child scopes of a path, sorted; ``[]`` when there are none.

    A slice of several subtrees has, at the root, those of them that hold anything.
    """
    counts = store.facet(selection, Facet.SCOPES)
    if path == scopes.ROOT and selection.roots != (scopes.ROOT,):
        return [root for root in selection.roots if root in counts]
    level = scopes.depth(path) + 1
    return sorted(
        child
        for child in counts
        if scopes.depth(child) == level
        and scopes.contains(path, child)
        and any(scopes.contains(root, child) for root in selection.roots)
    )


def categories(store: StorageBackend, selection: Selection) -> dict[str, int]:
    """Return categories with their counts, commonest first."""
    counts = store.facet(selection, Facet.CATEGORIES)
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def tree(store: StorageBackend, selection: Selection, max_depth: int) -> str:
    """Return the scopes of each selected subtree with record counts, indented by level."""
    counts = store.facet(selection, Facet.SCOPES)
    lines: list[str] = []
    for top in selection.roots:
        total = store.count(selection) if top == scopes.ROOT else counts.get(top, 0)
        lines.append(_line(top, total, 0))
        below = (path for path in counts if path != top and scopes.contains(top, path))
        for path in sorted(below, key=lambda path: path.split("/")):
            level = scopes.depth(path) - scopes.depth(top)
            if level <= max_depth:
                lines.append(_line(path, counts[path], level))
    return "\n".join(lines)


def _line(path: str, count: int, level: int) -> str:
    return f"{'  ' * level}{path} ({count} record{'' if count == 1 else 's'})"
