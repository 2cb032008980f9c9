"""Where a save goes: what a model suggests, made to fit the scopes and categories there are.

Plain computation. A model spells a scope anew each time (``/Project/Alpha``, ``/project/alpha ``),
digs too deep, or answers a path from another tree; without this, one project ends up in many
scopes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from itertools import takewhile

from mnemotrace import scopes
from mnemotrace.errors import ScopeError

from .answers import SaveAnalysis

MAX_LEVELS = 3
"""Levels of a new scope, below the writer's own: deeper ones hold too little to be found in."""
MAX_CATEGORIES = 8
LONGEST_LABEL = 60
"""Characters. What a model writes beyond that is a sentence, not a label."""

LONGEST_NAME, MOST_WORDS = 40, 5
"""Of one name of a new scope; the same."""

_SEPARATORS = re.compile(r"[\s_\-‐‑–]+")


_COUNT = re.compile(r"\s*\(\d+\)\s*$")
_PLACEHOLDER = re.compile(r"[{<\[].*[\]}>]")
_NOTHING = frozenset({"none", "null", "nil", "n/a", "na", "(none)", "unknown", "undefined"})


def spelling(name: str) -> str:
    """Return what names have in common that differ in case, width, spaces, ``-`` and ``_`` only."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return _SEPARATORS.sub(" ", plain).strip() or plain


class Filing:
    """The scopes and categories that analyses of one batch are fitted to; it learns new ones.

    Args:
        scope_counts: the visible scopes with the records of their subtrees.
        categories: the visible categories with their counts.
    """

    def __init__(self, scope_counts: Mapping[str, int], categories: Mapping[str, int]) -> None:
        self.categories = sorted(categories, key=lambda name: (-categories[name], name))
        """Commonest first."""
        self._labels: dict[str, str] = {}
        for name in self.categories:
            self._labels.setdefault(spelling(name), name)
        self._known: set[str] = set()
        self._children: dict[tuple[str, str], str] = {}
        """An existing scope by its parent and the spelling of its last name."""
        for path in sorted(scope_counts, key=lambda path: (-scope_counts[path], path)):
            self._learn(path)

    def settle(self, answer: SaveAnalysis, base: str) -> SaveAnalysis:
        """Return an analysis that can be followed as it is.

        - The scope lies within `base`; a path from elsewhere is read as relative to it.
        - It is an existing one where it differs from that only in case, width, spaces or hyphens,
          name by name from the top. What is new about it ends at the third level below `base`,
          and before a name that is a sentence.
        - Categories are spelled as existing ones that differ only in this way; distinct, at most
          8, none longer than 60 characters.

        Args:
            base: the writer's own scope.

        Raises:
            ScopeError: the suggested scope is none (``..``, control characters, too long).
        """
        path = self._fitted(base, self._meant(answer.scope))
        self._learn(path)
        labels: dict[str, str] = {}
        for name in answer.categories:
            if len(name) <= LONGEST_LABEL and spelling(name) not in _NOTHING:
                key = spelling(name)
                labels.setdefault(key, self._labels.setdefault(key, name))
        kept = list(labels.values())[:MAX_CATEGORIES]
        return answer.model_copy(update={"scope": path, "categories": kept})

    def _meant(self, scope: str) -> list[str]:
        """Return the names of a suggested scope without what models copy along with it.

        That is: quotes, the record count behind a listed scope, the placeholders of the pattern
        in the prompt, and words for "none".
        """
        plain = scopes.normalise(scope)
        names = _names(plain)
        if plain not in self._known:
            names = _names(_COUNT.sub("", plain).replace('"', "").replace("`", ""))
        kept = [name for name in map(str.strip, names) if not _PLACEHOLDER.fullmatch(name)]
        kept = [name for name in kept if name not in ("", ".", "..")]
        return [] if spelling("/".join(kept)) in _NOTHING else kept

    def _fitted(self, base: str, names: list[str]) -> str:
        """Return the scope below `base` that the names lead to, along existing ones."""
        own = _names(base)
        if [spelling(name) for name in names[: len(own)]] == [spelling(name) for name in own]:
            names = names[len(own) :]
        at = base
        for level, name in enumerate(names):
            child = f"{at.rstrip('/')}/{name}"
            if child not in self._known:
                child = self._children.get((at, spelling(name)), "")
            if not child:
                return _joined(at, list(takewhile(_is_a_name, names[level:MAX_LEVELS])))
            at = child
        return at

    def _learn(self, path: str) -> None:
        for step in scopes.ancestors(path):
            if step not in self._known:
                self._known.add(step)
                key = (scopes.parent(step), spelling(step.rsplit("/", 1)[1]))
                self._children.setdefault(key, step)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _is_a_name(name: str) -> bool:
    return len(name) <= LONGEST_NAME and len(name.split()) <= MOST_WORDS


def _joined(base: str, names: list[str]) -> str:
    """Return a scope below `base`; `base` itself where that would be too deep or too long."""
    try:
        return scopes.join(base, "/".join(names))
    except ScopeError:
        return base
