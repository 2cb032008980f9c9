"""ScopeTree: the scopes with their counts; children are made when their scope is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from mnemotrace import scopes

from .showing import one_line

OPENED = 40
"""Scopes that are shown at first, at most, besides those right below the root."""


class ScopeTree(Tree[str]):
    """The scopes of a memory. The data of each node is its path."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "cursor_up", "Up", show=False),
        Binding("j", "cursor_down", "Down", show=False),
        Binding("right,l", "open", "Open", show=False),
        Binding("left,h", "close", "Close", show=False),
        Binding("home,g", "scroll_home", "First", show=False),
        Binding("end,G", "scroll_end", "Last", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(Text("/"), data=scopes.ROOT, id=id)
        self.auto_expand = False
        self.guide_depth = 2
        self._counts: dict[str, int] = {}
        self._below: dict[str, list[str]] = {}

    @property
    def selected(self) -> str:
        """The path under the cursor; the root when there is none."""
        node = self.cursor_node
        return scopes.ROOT if node is None or node.data is None else node.data

    def show(self, counts: Mapping[str, int]) -> None:
        """Show these scopes; what was open stays open, and the cursor stays on its scope."""
        first = not self._counts
        opened = {node.data for node in self._made() if node.is_expanded and node.data}
        chosen = self.selected
        self._counts = dict(counts)
        self._below = {}
        for path in sorted(counts):
            if path != scopes.ROOT:
                self._below.setdefault(scopes.parent(path), []).append(path)
        if first:
            opened = self._first_levels()
        self.clear()
        self.root.set_label(self._label(scopes.ROOT))
        self.root.expand()
        self._fill(self.root, opened)
        self.go_to(chosen)

    def _first_levels(self) -> set[str]:
        """Return the scopes to open at first: whole levels, as long as they are short."""
        opened: set[str] = set()
        level, shown = [scopes.ROOT], 1
        while level:
            below = [child for path in level for child in self._below.get(path, ())]
            shown += len(below)
            if shown > OPENED:
                break
            opened.update(level)
            level = below
        return opened

    def go_to(self, path: str) -> None:
        """Open what leads to a scope and put the cursor on it, or on the nearest one above it."""
        node: TreeNode[str] = self.root
        for step in scopes.ancestors(path):
            self._fill(node)
            node.expand()
            found = next((child for child in node.children if child.data == step), None)
            if found is None:
                break
            node = found
        if self.last_line >= 0:  # which also gives every node its line
            self.move_cursor(node)

    def _made(self) -> list[TreeNode[str]]:
        found, waiting = [], [self.root]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(node.children)
        return found

    def _fill(self, node: TreeNode[str], opened: set[str] | frozenset[str] = frozenset()) -> None:
        """Make the children of a node, unless they are there; those in `opened` are opened too."""
        if node.data is None or node.children:
            return
        for path in self._below.get(node.data, ()):
            leaf = path not in self._below
            child = node.add(self._label(path), path, allow_expand=not leaf)
            if path in opened and not leaf:
                self._fill(child, opened)
                child.expand()

    def _label(self, path: str) -> Text:
        name = one_line(path.rsplit("/", 1)[-1]) if path != scopes.ROOT else "/"
        label = Text(name)
        return label.append(f" {self._counts.get(path, 0):,}", "dim")

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[str]) -> None:
        """Make the children of a scope that is opened."""
        self._fill(event.node)

    def action_open(self) -> None:
        """Open the scope; when it is open, go to the first one below."""
        node = self.cursor_node
        if node is None or not node.allow_expand:
            return
        if node.is_expanded:
            self.action_cursor_down()
        else:
            self._fill(node)
            node.expand()

    def action_close(self) -> None:
        """Close the scope; when it is closed, go to the one above."""
        node = self.cursor_node
        if node is None:
            return
        if node.allow_expand and node.is_expanded and node is not self.root:
            node.collapse()
        elif node.parent is not None:
            self.move_cursor(node.parent)
