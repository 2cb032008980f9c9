"""What all store objects on one place share: the engine, one lock, and facts about the data."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from mnemotrace.errors import MemoryClosedError, StoreCorruptError, StoreError

from .backend import Manifest
from .engine import Collection, Engine, Where
from .filters import time_range

SCHEMA_VERSION = 1
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


class ReadWriteLock:
    """Many readers or one writer; a waiting writer goes before new readers."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._readers = 0
        self._writing = False
        self._waiting = 0

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Hold the lock together with other readers; not reentrant."""
        with self._condition:
            while self._writing or self._waiting:
                self._condition.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                if not self._readers:
                    self._condition.notify_all()

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """Hold the lock alone; not reentrant."""
        with self._condition:
            self._waiting += 1
            while self._writing or self._readers:
                self._condition.wait()
            self._waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._condition:
                self._writing = False
                self._condition.notify_all()


class Space:
    """One place, shared by every store object on it in this process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lock = ReadWriteLock()
        self.sequence = 0
        self._pid = os.getpid()
        self._closed = False
        self._manifest: Manifest | None = None
        self._expiring: dict[int, bool] = {}
        self._load()

    def _load(self) -> None:
        data = self.engine.read_manifest()
        self._manifest = None if data is None else _parse(data)
        if self._manifest is not None:
            self._remove_leftovers(self._manifest)
            self.engine.open(self._manifest.generation)

    def _remove_leftovers(self, manifest: Manifest) -> None:
        keep = {manifest.generation}
        if manifest.reindex is not None:
            keep.add(int(manifest.reindex["generation"]))
        for generation in self.engine.generations():
            if generation not in keep:
                self.engine.discard(generation)

    def check(self) -> None:
        """Refuse use after close, and in a forked child."""
        if self._closed:
            raise MemoryClosedError("This store was closed. Open it again with open_store().")
        if os.getpid() != self._pid:
            raise StoreError(
                "This store was opened before the process forked, and belongs to the parent. Open "
                "the memory in the child instead, on another folder or on a Qdrant server."
            )

    def manifest(self) -> Manifest | None:
        """Return the manifest in force; None while nothing was written."""
        if self._manifest is None and self.engine.read_manifest() is not None:
            self._load()
        return self._manifest

    def put_manifest(self, manifest: Manifest | None) -> None:
        """Write a manifest and put it in force."""
        self.engine.write_manifest(None if manifest is None else asdict(manifest))
        self._manifest = manifest

    def collection(self, generation: int) -> Collection:
        """Return the collection of a generation."""
        return self.engine.open(generation)

    def expiring(self, generation: int) -> bool:
        """Tell whether the generation may hold records with ``expires_at``."""
        if not self.engine.exclusive:
            return True
        known = self._expiring.get(generation)
        if known is None:
            anything = Where(must=(time_range("expires_at", gte=_EARLIEST),))
            known = self.collection(generation).count(anything) > 0
            self._expiring[generation] = known
        return known

    def note_expiring(self, generation: int) -> None:
        """Remember that a record with ``expires_at`` was written."""
        self._expiring[generation] = True

    def drop(self) -> None:
        """Erase everything; the caller holds the lock for writing."""
        if self.manifest() is None:
            return
        self.put_manifest(None)
        for generation in self.engine.generations():
            self.engine.discard(generation)
        self.forget_facts()
        self.sequence += 1

    def begin_reindex(self, embedder: Mapping[str, Any]) -> None:
        """Make the next generation, or keep one begun for the same embedder."""
        current = self.manifest()
        if current is None:
            raise StoreError("There is nothing to reindex: the store is empty.")
        begun = current.reindex
        if begun is not None and dict(begun["embedder"]) == dict(embedder):
            self.engine.open(int(begun["generation"]))
            return
        if begun is not None:
            self.put_manifest(replace(current, reindex=None))
            self.engine.discard(int(begun["generation"]))
            self._expiring.pop(int(begun["generation"]), None)
        generation = current.generation + 1
        self.engine.create(generation, int(embedder["dimension"]))
        note = {"generation": generation, "embedder": dict(embedder)}
        self.put_manifest(replace(current, reindex=note))

    def finish_reindex(self) -> None:
        """Put the next generation in force and erase the old one."""
        current = self.manifest()
        if current is None or current.reindex is None:
            raise StoreError("No reindex was begun.")
        generation = int(current.reindex["generation"])
        self.engine.open(generation).flush()
        self.put_manifest(
            replace(
                current,
                generation=generation,
                embedder=dict(current.reindex["embedder"]),
                reindex=None,
            )
        )
        self.sequence += 1
        self.engine.discard(current.generation)
        self._expiring.pop(current.generation, None)

    def forget_facts(self) -> None:
        """Drop what is cached about the data."""
        self._expiring.clear()

    def close(self) -> None:
        """Release the engine."""
        with self.lock.write():
            if not self._closed:
                self._closed = True
                if os.getpid() == self._pid:
                    self.engine.close()


def _parse(data: Mapping[str, Any]) -> Manifest:
    try:
        manifest = Manifest(
            schema_version=int(data["schema_version"]),
            embedder=dict(data["embedder"]),
            lexical=str(data["lexical"]),
            generation=int(data["generation"]),
            reindex=data.get("reindex"),
        )
        int(manifest.embedder["dimension"])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreCorruptError(
            f"The store's manifest is damaged ({error!r}). Nothing was changed."
        ) from error
    if manifest.schema_version > SCHEMA_VERSION:
        raise StoreCorruptError(
            f"The store was written by a newer mnemotrace (schema {manifest.schema_version}, this "
            f"one reads {SCHEMA_VERSION}). Upgrade mnemotrace to open it."
        )
    return manifest
