"""Reach: which scopes a memory or a view of it may read and write, and how its paths are read."""

from __future__ import annotations

from dataclasses import dataclass

from . import scopes
from .errors import ScopePermissionError


@dataclass(frozen=True, slots=True)
class Reach:
    """What one handle on a memory may touch.

    Attributes:
        roots: the subtrees, in normal form.
        base: paths are relative to it; None for a slice, whose paths are absolute.
        read_only: writing is refused.
    """

    roots: tuple[str, ...]
    base: str | None
    read_only: bool = False

    def path(self, path: str) -> str:
        """Return a path as the absolute scope it means here.

        In a scope view, paths are relative to the view. An absolute path that already lies in
        the view, such as the `scope` of a recalled record, is taken as it is.
        """
        absolute = scopes.normalise(path)
        if self.base is None or self.base == scopes.ROOT:
            return absolute
        if path.strip().startswith("/") and scopes.contains(self.base, absolute):
            return absolute
        return scopes.join(self.base, path)

    def reading(self, path: str | None) -> tuple[str, ...]:
        """Return the subtrees to read.

        Raises:
            ScopePermissionError: the path lies wholly outside.
        """
        if path is None:
            return self.roots
        absolute = self.path(path)
        inside = scopes.intersect(self.roots, (absolute,))
        if not inside:
            raise ScopePermissionError(
                f"Scope {absolute!r} is outside this view. It may read: {', '.join(self.roots)}."
            )
        return inside

    def writing(self, path: str | None) -> str | None:
        """Return the absolute scope to write to; None when it is to be inferred.

        Raises:
            ScopePermissionError: the view is read-only, the path lies outside, or a slice was
                given no path.
        """
        self.require_writable()
        if path is None:
            if self.base is None:
                raise ScopePermissionError(
                    "A slice needs to know where to write: pass scope=, one of "
                    f"{', '.join(self.roots)} or a scope below. Nothing was stored."
                )
            return None
        absolute = self.path(path)
        if not any(scopes.contains(root, absolute) for root in self.roots):
            raise ScopePermissionError(
                f"Scope {absolute!r} is outside this view. It may write to: "
                f"{', '.join(self.roots)}. Nothing was stored."
            )
        return absolute

    def require_writable(self) -> None:
        """Raise ScopePermissionError when the view is read-only."""
        if self.read_only:
            raise ScopePermissionError(
                f"This view of {', '.join(self.roots)} is read-only; nothing was changed. Use "
                "the memory itself, or slice(..., read_only=False)."
            )
