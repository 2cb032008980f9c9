"""MemoryView and its kinds: all methods together, and the narrower views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mnemotrace import scopes
from mnemotrace.checks import checked_flag, shortened
from mnemotrace.errors import InvalidInputError, ScopeError
from mnemotrace.reach import Reach
from mnemotrace.twins import direct

from .curating import Curating
from .discovering import Discovering
from .exchanging import Exchanging
from .explaining import Explaining
from .recalling import Recalling
from .saving import Saving

if TYPE_CHECKING:
    from mnemotrace.core import MemoryCore


class MemoryView(Saving, Recalling, Explaining, Curating, Discovering, Exchanging):
    """What can be done with the part of a memory that is in reach.

    Every method has an async twin with the prefix ``a`` (`aremember`, `arecall`, ...); both run
    on mnemotrace's own loop, so neither blocks the caller's event loop.
    """

    @direct
    def scope(self, path: str) -> MemoryScope:
        """Return a view of one subtree, which sees and writes nothing outside of it.

        Paths in the view are relative to it: in a view of ``/a``, ``scope="/b"`` and ``scope="b"``
        mean ``/a/b``. A path that begins with the view's own, such as the scope of a recalled
        record, is taken as it is: ``scope="/a/b"`` means ``/a/b``, too.

        Args:
            path: the scope; it need not hold anything yet.

        Raises:
            ScopeError: it is no path.
            ScopePermissionError: it lies outside of a slice.
        """
        absolute = self._reach.path(_checked_path(path))
        self._reach.reading(path)
        return MemoryScope(self._core, absolute, read_only=self._reach.read_only)

    @direct
    def slice(self, scopes: Iterable[str], read_only: bool = True) -> MemorySlice:
        """Return a view of several subtrees at once.

        Args:
            scopes: at least one path in reach. Paths in a slice are absolute.
            read_only: refuse writing. A writable slice must be told where to write.

        Raises:
            InvalidInputError: no scope was given, or what is no list of paths.
            ScopePermissionError: a scope lies outside this view.
        """
        checked_flag(read_only, "read_only")
        if isinstance(scopes, str):
            scopes = [scopes]
        if not isinstance(scopes, Iterable) or isinstance(scopes, (bytes, Mapping)):
            raise InvalidInputError(
                f"slice() takes a list of scope paths as scopes, not {shortened(scopes)}."
            )
        paths = list(scopes)
        if not paths:
            raise InvalidInputError("A slice needs at least one scope.")
        for path in paths:
            if not isinstance(path, str):
                raise ScopeError(f"scopes must hold scope paths, not {shortened(path)}.")
        inside = [root for path in paths for root in self._reach.reading(path)]
        return MemorySlice(self._core, inside, read_only=read_only or self._reach.read_only)


def _checked_path(path: Any) -> str:
    """Return the path of a view; None is none, for it would mean all."""
    if not isinstance(path, str):
        raise ScopeError(f"path must be a scope path such as '/team/alpha', not {shortened(path)}.")
    return path


class MemoryScope(MemoryView):
    """A view of one subtree. It sees and writes nothing outside."""

    def __init__(self, core: MemoryCore, path: str, *, read_only: bool = False) -> None:
        self._core = core
        self.path = scopes.normalise(path)
        self._reach = Reach((self.path,), self.path, read_only)

    @direct
    def subscope(self, path: str) -> MemoryScope:
        """Return a view of a subtree below this one."""
        return self.scope(path)

    def __repr__(self) -> str:
        return f"MemoryScope({self.path!r})"


class MemorySlice(MemoryView):
    """A view of several subtrees at once. Paths in it are absolute."""

    def __init__(self, core: MemoryCore, roots: Iterable[str], *, read_only: bool = True) -> None:
        self._core = core
        self.scopes = scopes.cover(roots)
        self.read_only = read_only
        self._reach = Reach(self.scopes, None, read_only)

    def __repr__(self) -> str:
        return f"MemorySlice({list(self.scopes)!r}, read_only={self.read_only})"
