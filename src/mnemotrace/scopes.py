"""Scope paths: one normal form, used on every write and on every read.

A scope is a path such as ``/agent/researcher``. In normal form it starts with a slash, has no
trailing slash, no empty or dot segments, and is in Unicode NFC. Letters of any script are kept,
so two Korean or Chinese names never fall together.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from .checks import shortened
from .errors import ScopeError

ROOT = "/"
MAX_LENGTH = 1024
MAX_DEPTH = 32

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def normalise(path: str) -> str:
    """Return the normal form of a scope path.

    Args:
        path: any spelling of a scope: with or without the leading slash, doubled slashes,
            single-dot segments, any Unicode form. ``""`` is the root.

    Raises:
        ScopeError: for ``..`` segments, control characters, lone surrogates, or a path past the
            length (1,024 characters) or depth (32 segments) limit.
    """
    if not isinstance(path, str):
        raise ScopeError(f"scope must be a string such as '/team/alpha', not {shortened(path)}.")
    return _normal(path)


@lru_cache(maxsize=8192)
def _normal(path: str) -> str:
    text = unicodedata.normalize("NFC", path)
    if _CONTROL.search(text):
        raise ScopeError(f"Scope {path!r} holds a control character or a lone surrogate. Use text.")
    segments = [part.strip() for part in text.split("/")]
    kept = [part for part in segments if part not in ("", ".")]
    if ".." in kept:
        raise ScopeError(f"Scope {path!r} holds '..'. Write the path from the root instead.")
    if len(kept) > MAX_DEPTH:
        raise ScopeError(f"Scope {path[:80]!r}... has {len(kept)} levels; {MAX_DEPTH} are allowed.")
    result = ROOT + "/".join(kept)
    if len(result) > MAX_LENGTH:
        raise ScopeError(
            f"Scope {path[:80]!r}... has {len(result)} characters; {MAX_LENGTH} are allowed."
        )
    return result


def join(base: str, path: str) -> str:
    """Return `path` read as relative to `base`, in normal form."""
    return normalise(f"{base}/{path}")


@lru_cache(maxsize=8192)
def ancestors(path: str) -> tuple[str, ...]:
    """Return the scope itself and every scope above it but the root, outermost first.

    The root has none: ``ancestors("/") == ()`` and ``ancestors("/a/b") == ("/a", "/a/b")``.
    """
    segments = normalise(path)[1:].split("/")
    if segments == [""]:
        return ()
    return tuple(ROOT + "/".join(segments[: i + 1]) for i in range(len(segments)))


def contains(root: str, path: str) -> bool:
    """Tell whether `path` is `root` or lies below it (both in normal form)."""
    return root == ROOT or path == root or path.startswith(root + "/")


def cover(roots: Iterable[str]) -> tuple[str, ...]:
    """Return the smallest set of subtrees that covers all of `roots`, sorted."""
    kept: list[str] = []
    for path in sorted({normalise(root) for root in roots}):
        if not any(contains(root, path) for root in kept):
            kept.append(path)
    return tuple(kept)


def intersect(left: Iterable[str], right: Iterable[str]) -> tuple[str, ...]:
    """Return the subtrees that lie in both sets of subtrees; ``()`` when there are none."""
    found: set[str] = set()
    rights = tuple(right)
    for a in left:
        for b in rights:
            if contains(a, b):
                found.add(b)
            elif contains(b, a):
                found.add(a)
    return cover(found)


def depth(path: str) -> int:
    """Return the number of segments; 0 for the root."""
    return len(ancestors(path))


def parent(path: str) -> str:
    """Return the scope one level up; the root is its own parent."""
    return normalise(path).rsplit("/", 1)[0] or ROOT
