"""The scope tree as text for a prompt, within a number of tokens.

Pure functions; every path is written in full, so that a model can copy it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from . import scopes
from .quoting import label
from .tokens import count_tokens, estimate_tokens

SCOPE_TOKENS = 1500
"""The room for the tree in a prompt: about 150 scopes of three levels."""

NO_SCOPES = "(none)"
_WIDEST = 8
"""A scope whose line alone would take more than this part of the room is not shown."""


@dataclass(slots=True, eq=False)
class _Node:
    path: str
    count: int
    children: list[_Node] = field(default_factory=list)
    level: int = 0
    """Levels of shown scopes above it."""
    cost: int = 0


def scope_tree(counts: Mapping[str, int], budget_tokens: int = SCOPE_TOKENS) -> str:
    r"""Return the scopes with their record counts, indented by level, within a budget.

    The whole tree when there is room. Else the largest scopes of every branch and level: a
    scope's turn comes by its rank among its siblings plus the ranks of the scopes above it, and
    the largest scope of each level comes first of all. What is left out is counted where it would
    stand (``+ 12 more``). A scope that holds nothing but one other has no line of its own.

    Args:
        counts: records in the subtree of each scope; missing ancestors are filled in.
        budget_tokens: the most tokens (``o200k_base``) of the text.

    Returns:
        The same text for the same counts, in whatever order they come; ``(none)`` when there are
        no scopes, ``""`` when not even a count fits.
    """
    tops = _tree(counts)
    if not tops:
        return NO_SCOPES

    def fits(shown: Iterable[_Node]) -> str | None:
        text = _render(tops, {id(node) for node in shown})
        return text if count_tokens(text) <= budget_tokens else None

    if len(counts) <= budget_tokens:
        whole = fits(_walk(tops, lambda node: True))
        if whole is not None:
            return whole
    order = _by_turn(tops, budget_tokens)
    return _longest(lambda shown: fits(order[:shown]), min(len(order), max(budget_tokens, 0)))


def _longest(fits: Callable[[int], str | None], most: int) -> str:
    """Return the text with the most scopes that fits, by bisection."""
    whole = fits(most)
    if whole is not None:
        return whole
    best = fits(0) or ""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        text = fits(middle)
        if text is None:
            high = middle
        else:
            low, best = middle, text
    return best


def _tree(counts: Mapping[str, int]) -> list[_Node]:
    """Return the top scopes with all below them, siblings by size, then name."""
    known = {path: count for path, count in counts.items() if path != scopes.ROOT}
    for path, count in counts.items():
        for above in scopes.ancestors(path)[:-1]:
            if above not in counts:
                known[above] = known.get(above, 0) + count
    nodes = {path: _Node(path, count) for path, count in known.items()}
    tops: list[_Node] = []
    for path in sorted(nodes):
        parent = scopes.parent(path)
        siblings = tops if parent == scopes.ROOT else nodes[parent].children
        siblings.append(nodes[path])
    return _sorted(tops, 0, 0)


def _sorted(siblings: list[_Node], level: int, cost: int) -> list[_Node]:
    """Order siblings, skip those that only hold one other scope, and note whose turn is when."""
    siblings = [_first_of_its_own(node) for node in siblings]
    siblings.sort(key=lambda node: (-node.count, node.path))
    for rank, node in enumerate(siblings):
        node.level = level
        node.cost = cost + rank + 1
        node.children = _sorted(node.children, level + 1, node.cost)
    return siblings


def _first_of_its_own(node: _Node) -> _Node:
    while len(node.children) == 1 and node.children[0].count == node.count:
        node = node.children[0]
    return node


def _by_turn(tops: list[_Node], budget_tokens: int) -> list[_Node]:
    """Return the scopes in the order in which they get room; those above always before."""
    widest = budget_tokens // _WIDEST
    candidates = list(_walk(tops, lambda node: _is_narrow(node.path, widest)))
    candidates.sort(key=lambda node: (node.cost, node.level, -node.count, node.path))
    largest: dict[int, _Node] = {}
    for node in candidates:
        held = largest.setdefault(node.level, node)
        if (-node.count, node.cost, node.path) < (-held.count, held.cost, held.path):
            largest[node.level] = node
    by_path = {node.path: node for node in candidates}
    first: dict[str, _Node] = {}
    for _, node in sorted(largest.items()):
        for path in scopes.ancestors(node.path):
            if path in by_path:
                first[path] = by_path[path]
    return [*first.values(), *(node for node in candidates if node.path not in first)]


def _walk(siblings: Iterable[_Node], keep: Callable[[_Node], bool]) -> Iterable[_Node]:
    for node in siblings:
        if keep(node):
            yield node
            yield from _walk(node.children, keep)


def _is_narrow(path: str, tokens: int) -> bool:
    return len(path) <= 2 * tokens or estimate_tokens(path) <= tokens


def _render(tops: list[_Node], shown: set[int]) -> str:
    lines: list[str] = []

    def add(siblings: list[_Node], level: int) -> None:
        indent = "  " * level
        kept = [node for node in siblings if id(node) in shown]
        for node in kept:
            lines.append(f"{indent}{label(node.path)} ({node.count})")
            if node.children:
                add(node.children, level + 1)
        if len(kept) < len(siblings):
            lines.append(f"{indent}+ {len(siblings) - len(kept)} more")

    add(tops, 0)
    return "\n".join(lines)
