"""open_store: from what the user wrote as ``storage=`` to a store."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

from mnemotrace.errors import ConfigurationError

from .backend import StorageBackend
from .edge import EdgeEngine
from .qdrant import QdrantStore
from .space import Space

ENVIRONMENT = "MNEMOTRACE_STORAGE_DIR"
_OTHER_STORES = frozenset({"lancedb", "chroma", "chromadb", "sqlite", "faiss", "redis", "postgres"})

_registry: dict[Path, tuple[Space, int]] = {}
_registry_lock = threading.Lock()


def open_store(
    storage: str | os.PathLike[str] | StorageBackend | None = None,
    *,
    api_key: str | None = None,
    prefer_grpc: bool = False,
    client: Any = None,
) -> StorageBackend:
    """Return the store `storage` names."""
    if isinstance(storage, StorageBackend):
        return storage
    if storage == ":memory:":
        return _temporary()
    if storage is None:
        base = os.environ.get(ENVIRONMENT)
        storage = Path(base) / "memory" if base else Path(".mnemotrace") / "memory"
    if isinstance(storage, str) and storage.lower() in _OTHER_STORES:
        raise ConfigurationError(
            f"storage={storage!r} names another database. mnemotrace stores in Qdrant: pass a "
            "folder path (or './" + storage + "' if that is one), or the URL of a Qdrant server."
        )
    return _folder(Path(storage))


def _folder(path: Path) -> QdrantStore:
    real = Path(os.path.realpath(path.expanduser()))
    with _registry_lock:
        known = _registry.get(real)
        if known is None:
            space, users = Space(EdgeEngine(real)), 0
        else:
            space, users = known
        _registry[real] = (space, users + 1)
    return QdrantStore(space, on_close=lambda: _leave(real))


def _leave(real: Path) -> None:
    with _registry_lock:
        space, users = _registry[real]
        if users > 1:
            _registry[real] = (space, users - 1)
            return
        del _registry[real]
        space.close()


def _temporary() -> QdrantStore:
    folder = tempfile.mkdtemp(prefix="mnemotrace-")
    store = _folder(Path(folder))
    leave = store._on_close

    def remove() -> None:
        leave()
        shutil.rmtree(folder, ignore_errors=True)

    store._on_close = remove
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return store
