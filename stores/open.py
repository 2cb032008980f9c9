"""open_store: from what the user wrote as ``storage=`` to a store."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Hashable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from mnemotrace.checks import encodable, shortened
from mnemotrace.errors import ConfigurationError

from .backend import StorageBackend
from .edge import EdgeEngine
from .engine import Engine
from .qdrant import QdrantStore
from .space import Space

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

ENVIRONMENT = "MNEMOTRACE_STORAGE_DIR"
DEFAULT_FOLDER = Path(".mnemotrace")
DEFAULT_NAME = "mnemotrace"
_OTHER_DATABASES = frozenset(
    [
        *("chroma", "chromadb", "duckdb", "elasticsearch", "faiss", "lance", "lancedb", "milvus"),
        *("mongodb", "mysql", "opensearch", "pgvector", "pinecone", "postgres", "postgresql"),
        *("redis", "sqlite", "sqlite3", "weaviate"),
    ]
)
_URL = re.compile(r"https?://", re.IGNORECASE)
_HOST_AND_PORT = re.compile(
    r"(?:(?:[a-z0-9-]+\.)+[a-z0-9-]+|[a-z0-9-]{2,}):\d{2,5}/?", re.IGNORECASE
)

_spaces: dict[Hashable, tuple[Space, int]] = {}
"""The spaces open in this process and how many store objects use each."""
_spaces_lock = threading.Lock()


_inherited: list[object] = []
"""In a forked child: what the parent had open. It is kept, because letting go of an engine whose
threads did not come along could hang."""


def _after_fork() -> None:
    global _spaces_lock
    _spaces_lock = threading.Lock()
    _inherited.extend(space for space, _ in _spaces.values())
    _spaces.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def open_store(
    storage: str | os.PathLike[str] | StorageBackend | None = None,
    *,
    api_key: str | None = None,
    prefer_grpc: bool = False,
    client: QdrantClient | None = None,
    name: str = DEFAULT_NAME,
) -> StorageBackend:
    """Return the store that `storage` names. Opening a new one writes nothing yet.

    Stores opened on one folder in one process share the engine, however the path is spelled, and
    see each other's changes at once; the folder is released when the last of them is closed.

    Args:
        storage: None for ``$MNEMOTRACE_STORAGE_DIR/memory`` or ``./.mnemotrace/memory``; a folder
            path; ``":memory:"`` for a temporary folder, removed when the store is closed or the
            process ends; the ``http(s)://`` URL of a Qdrant server; or a store, returned as is.
        api_key: of the Qdrant server.
        prefer_grpc: talk gRPC to the Qdrant server.
        client: a ready `qdrant_client.QdrantClient` to use instead of `storage`.
        name: begins the names of the collections on a Qdrant server; one name is one memory.

    Raises:
        ConfigurationError: `storage` is not one of these.
        StoreLockedError: another process owns the folder.
        StoreCorruptError: the folder holds something else, or a damaged store.
        StoreNotWritableError: the folder holds a store that cannot be written.
        StoreUnavailableError: the server does not answer.
    """
    if api_key is not None and (not isinstance(api_key, str) or not api_key.strip()):
        raise ConfigurationError("api_key must be the Qdrant server's key as text, or None.")
    if not isinstance(prefer_grpc, bool):
        raise ConfigurationError(
            f"prefer_grpc must be True or False, not {shortened(prefer_grpc)}."
        )
    if client is not None:
        from .server import ServerEngine

        engine = ServerEngine(client, name)
        return _shared((id(client), name), lambda: engine)
    if storage is None:
        return _in_folder(default_folder() / "memory")
    if isinstance(storage, (str, os.PathLike)):
        text = os.fspath(storage)
        if not isinstance(text, str) or not text.strip() or not encodable(text):
            raise ConfigurationError(
                f"storage={shortened(storage)} is not a path. Pass a folder or a URL."
            )
        if text == ":memory:":
            return _in_temporary_folder()
        if _URL.match(text):
            return _on_server(text, api_key, prefer_grpc, name)
        if text.lower() in _OTHER_DATABASES:
            raise ConfigurationError(
                f"storage={text!r} names another database, but mnemotrace stores in Qdrant. Pass "
                f"the path of a folder (if you mean one of this name: './{text}'), the URL of a "
                "Qdrant server, or a StorageBackend of your own."
            )
        if "://" in text:
            raise ConfigurationError(
                f"storage={text!r} is a URL of an unknown kind. A Qdrant server's begins with "
                "http:// or https://."
            )
        if _HOST_AND_PORT.fullmatch(text):
            raise ConfigurationError(
                f"storage={text!r} looks like a host and port. A Qdrant server's URL begins with "
                f"http:// or https://, as in 'http://{text}'; for a folder of this name pass "
                f"'./{text}'."
            )
        return _in_folder(Path(text))
    if isinstance(storage, StorageBackend):
        return storage
    raise ConfigurationError(
        f"storage={shortened(storage)} cannot be used. Pass a folder path, ':memory:', the URL of a Qdrant "
        "server, or an object with every method of mnemotrace.stores.backend.StorageBackend."
    )


def default_folder() -> Path:
    """Return the folder under which stores live that were not given a place."""
    chosen = os.environ.get(ENVIRONMENT)
    return Path(chosen) if chosen else DEFAULT_FOLDER


def _shared(key: Hashable, make: Callable[[], Engine]) -> QdrantStore:
    """Return a new store object over the space of this key; the first one makes the engine."""
    with _spaces_lock:
        space, users = _spaces.get(key, (None, 0))
        if space is None or not space.usable:
            space, users = _space_over(make()), 0
        _spaces[key] = (space, users + 1)
    return QdrantStore(space, on_close=lambda: _leave(key, space))


def _space_over(engine: Engine) -> Space:
    try:
        return Space(engine)
    except BaseException:
        engine.close()  # which gives the folder's lock back
        raise


def _leave(key: Hashable, space: Space) -> None:
    with _spaces_lock:
        current, users = _spaces.get(key, (None, 0))
        if current is space and users > 1:
            _spaces[key] = (space, users - 1)
            return
        if current is space:
            del _spaces[key]
        space.close()


def _in_folder(path: Path) -> QdrantStore:
    # One folder has one key, whatever symbolic links and relative spellings lead to it.
    try:
        real = Path(os.path.realpath(path.expanduser()))
    except OSError as error:
        raise ConfigurationError(
            f"storage={str(path)!r} cannot be found ({error.strerror}): it is relative, and the "
            "current folder is gone. Pass an absolute path."
        ) from error
    except RuntimeError as error:  # no home folder for ~
        raise ConfigurationError(f"storage={str(path)!r} cannot be found: {error}") from error
    return _shared(real, lambda: EdgeEngine(real))


def _in_temporary_folder() -> QdrantStore:
    folder = tempfile.mkdtemp(prefix="mnemotrace-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child must not take its parent's files away
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    key = Path(os.path.realpath(folder))
    space = _space_over(EdgeEngine(key, persistent=False))
    with _spaces_lock:
        _spaces[key] = (space, 1)

    def leave() -> None:
        _leave(key, space)
        if key not in _spaces:
            remove()
            atexit.unregister(remove)

    return QdrantStore(space, on_close=leave)


def _on_server(url: str, api_key: str | None, prefer_grpc: bool, name: str) -> QdrantStore:
    from .server import ServerEngine, connect

    def make() -> Engine:
        digest = sha256(f"{url.rstrip('/')}\n{name}".encode()).hexdigest()[:16]
        sidecar = default_folder().absolute() / "servers" / digest / "outbox"
        return ServerEngine(connect(url, api_key, prefer_grpc), name, sidecar=sidecar, owned=True)

    return _shared((url.rstrip("/"), api_key, prefer_grpc, name), make)
