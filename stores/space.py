"""What all store objects on one place share: the engine, one lock, and facts about the data."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from mnemotrace.errors import MemoryClosedError, StoreCorruptError, StoreError
from mnemotrace.records import utc_now

from .attributes import Attributes
from .backend import Manifest
from .engine import Collection, Engine, PointId, Where
from .filters import CLOCKS_DIFFER, STATE_FIELDS, present, time_range
from .points import SCHEMA_VERSION, copy_of
from .turns import ReadWriteLock

FLUSH_AFTER = 10_000
"""Points written between two flushes. On the embedded engine a flush stops every Python thread
for 60 to 600 ms (measured), so it is rare; a reopened store replays at most this many points,
about two seconds."""
SYNC_SECONDS = 1.0
"""How long a write may wait to be made safe against power loss (a killed process loses nothing)."""
_FRESH_SECONDS = 5.0
"""How long the manifest of a shared server is believed."""
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MARKS = STATE_FIELDS - {"valid_from"}
_SAME_CANARY = 0.999
_PAGE = 1_000
_COPIES = 2
"""How often a copy is begun anew because of a write in between, before writers must wait."""

_log = logging.getLogger("mnemotrace.stores")


class Generation:
    """One collection with what is known about its data."""

    def __init__(self, manifest: Manifest, collection: Collection, exclusive: bool) -> None:
        self.number = manifest.generation
        self.dimension = manifest.dimension
        self.schema = manifest.schema_version
        self.collection = collection
        self.attributes = Attributes(collection, exclusive)
        self._held: dict[str, bool] | None = None
        self._last_begin = -math.inf
        """The last ``valid_from`` that was to come when it was seen, in microseconds."""
        if not exclusive:  # anybody may write anything at any time
            self._held, self._last_begin = dict.fromkeys(_MARKS, True), math.inf

    @property
    def held(self) -> frozenset[str]:
        """The state fields that rows may have; what no row has, filters need not ask for.

        ``valid_from`` is among them until the last record that is to come has come.
        """
        if self._held is None:
            self._held = {name: self._any_has(name) for name in _MARKS}
            for row in self.collection.ordered("valid_from", 1, fields=False):
                self._note_begin(row.order)
        names = [name for name, held in self._held.items() if held]
        return frozenset([*names, "valid_from"] if self._is_to_come(self._last_begin) else names)

    def _any_has(self, name: str) -> bool:
        sought = time_range(name, gte=_EARLIEST) if name == "expires_at" else present(name)
        return self.collection.count(Where(must=(sought,))) > 0

    def note(self, payload: Mapping[str, Any]) -> None:
        """Remember which of the fields a point was written with."""
        if self._held is None:
            return  # they will be looked for
        for name in _MARKS.intersection(payload):
            self._held[name] = True
        if "valid_from" in payload:
            self._note_begin(_micros(datetime.fromisoformat(payload["valid_from"])))

    def _note_begin(self, begin: float) -> None:
        if self._is_to_come(begin):
            self._last_begin = max(self._last_begin, begin)

    def _is_to_come(self, begin: float) -> bool:
        return begin > _micros(utc_now() + CLOCKS_DIFFER)


def _micros(moment: datetime) -> float:
    """Return a time as engines order by it, in microseconds since the epoch."""
    return (moment - _EPOCH) / timedelta(microseconds=1)


class Space:
    """One place, shared by every store object on it in this process.

    Its lock makes a change atomic for readers: whoever changes data, the manifest or the set of
    collections holds it for writing; whoever reads holds it for reading during the whole read.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lock = ReadWriteLock()
        self.sequence = 0
        self._pid = os.getpid()
        self._closed = False
        self._manifest: Manifest | None = None
        self._read_at = -math.inf
        self._generations: dict[int, Generation] = {}
        self._loading = threading.RLock()
        self._keeper = _Keeper(self)
        self._load()

    @property
    def usable(self) -> bool:
        """Whether it is open and belongs to this process."""
        return not self._closed and os.getpid() == self._pid

    def check(self) -> None:
        """Refuse use after close, and in a forked child."""
        if self._closed:
            raise MemoryClosedError()
        if os.getpid() != self._pid:
            raise StoreError(
                "This store was opened before the process forked, and belongs to the parent. Open "
                "the memory in the child instead, on another folder or on a Qdrant server."
            )

    def claim(self) -> None:
        """Take the place for this process, where only one may use it."""
        self.check()
        with self._loading:  # two threads must not both open the lock
            self.engine.claim()

    # The manifest. It is None until the first write; another process may write it meanwhile.

    def manifest(self) -> Manifest | None:
        """Return the manifest in force; None while nothing was written."""
        if self._manifest is not None and (
            self.engine.exclusive or time.monotonic() - self._read_at < _FRESH_SECONDS
        ):
            return self._manifest
        with self._loading:
            self._load()
        return self._manifest

    def _load(self) -> None:
        data = self.engine.read_manifest()
        self._read_at = time.monotonic()
        if data is None:
            self._manifest = None
            return
        if "state" in data:
            # The process ended while it made or dropped the store: what is there is not in use.
            self._discard_all()
            self.engine.write_manifest(None)
            self._manifest = None
            return
        manifest = _parse(data)
        if self._manifest != manifest:
            self._generations.clear()
            self.generation(manifest)  # it must be there before anything else is thrown away
            if self.engine.exclusive:
                self._remove_leftovers(manifest)
        self._manifest = manifest

    def _remove_leftovers(self, manifest: Manifest) -> None:
        keep = {manifest.generation}
        if manifest.reindex is not None:
            keep.add(int(manifest.reindex["generation"]))
        for number in self.engine.generations():
            if number not in keep:
                self.engine.discard(number)

    def _put(self, manifest: Manifest) -> None:
        self.engine.write_manifest(asdict(manifest))
        self._manifest, self._read_at = manifest, time.monotonic()

    def generation(self, manifest: Manifest) -> Generation:
        """Return the collection a manifest names."""
        known = self._generations.get(manifest.generation)
        if known is None:
            collection = self.engine.open(manifest.generation, manifest.dimension)
            known = Generation(manifest, collection, self.engine.exclusive)
            self._generations[manifest.generation] = known
        return known

    # Changes; the caller holds the lock for writing.

    def initialise(self, manifest: Manifest) -> Manifest:
        """Make the store unless it exists; return the manifest in force."""
        with self._loading:  # nobody may take what is half made for a leftover
            self.engine.claim()
            current = self.manifest()  # another process may have made it until just now
            if current is not None:
                return current
            self.engine.write_manifest({"state": "being made"})
            try:
                self.engine.create(manifest.generation, manifest.dimension)
            except StoreError:
                self._discard_all()
                self.engine.write_manifest(None)
                raise
            self._put(manifest)
            return manifest

    def changed(self, points: int) -> None:
        """Note a change, so that caches are dropped and it is made safe in a while."""
        self.sequence += 1
        self._keeper.note(points)

    def drop(self) -> None:
        """Erase everything."""
        with self._loading:
            if self.manifest() is None:
                return
            self.engine.write_manifest({"state": "dropped"})
            self._discard_all()
            self.engine.write_manifest(None)
            self._manifest = None
            self.sequence += 1

    def _discard_all(self) -> None:
        self._generations.clear()
        for number in self.engine.generations():
            self.engine.discard(number)

    def _discard(self, number: int) -> None:
        self._generations.pop(number, None)
        self.engine.discard(number)

    def begin_reindex(self, embedder: Mapping[str, Any]) -> Manifest:
        """Make the next generation, or keep one begun for the same embedder."""
        current = self.manifest()
        if current is None:
            raise StoreError("There is nothing to reindex: the store is empty.")
        begun = next_manifest(current)
        if begun is not None:
            if same_embedder(begun.embedder, embedder):
                return begun
            self._put(replace(current, reindex=None))
            self._discard(begun.generation)
        number = self._unused_number()
        self.engine.create(number, int(embedder["dimension"]))
        current = replace(current, reindex={"generation": number, "embedder": dict(embedder)})
        self._put(current)
        begun = next_manifest(current)
        assert begun is not None
        return begun

    def finish_reindex(self) -> None:
        """Put the next generation in force with one write, then erase the old one."""
        current = self.manifest()
        begun = None if current is None else next_manifest(current)
        if current is None or begun is None:
            raise StoreError("No reindex was begun; call begin_reindex first.")
        self.generation(begun).collection.flush()
        self._put(begun)
        self.sequence += 1
        self._discard(current.generation)

    def compact(self) -> None:
        """Write every row anew and erase the old files. The caller holds no lock.

        The engine's own optimizer is not used: it stops every Python thread for its whole run
        (31 s at 50,000 records), for the sake of an index that exact searches do not use.
        """
        if not self.engine.exclusive:
            return
        for _ in range(_COPIES):
            with self.lock.read():  # others read on meanwhile
                copied = self._copy()
            if copied is None:
                return
            with self.lock.write():
                if self.sequence == copied[1]:
                    self._replace(copied[0])
                    return
                self._discard(copied[0])
        with self.lock.write():  # somebody always writes: let them wait
            copied = self._copy()
            if copied is not None:
                self._replace(copied[0])

    def _copy(self) -> tuple[int, int] | None:
        """Copy every row to a new collection; return its number and the sequence it is of."""
        manifest = self.manifest()
        if manifest is None:
            return None
        source, sequence = self.generation(manifest).collection, self.sequence
        number = self._unused_number()
        target = self.engine.create(number, manifest.dimension)
        offset: PointId | None = None
        while True:
            rows, offset = source.scroll(_PAGE, offset=offset, vectors=True)
            if rows:
                target.upsert([copy_of(row) for row in rows])
            if offset is None:
                target.flush()
                return number, sequence

    def _replace(self, number: int) -> None:
        """Put a copy of the collection in force in its place."""
        current = self._manifest
        assert current is not None
        self._put(replace(current, generation=number))
        self._discard(current.generation)

    def _unused_number(self) -> int:
        return max(self.engine.generations(), default=0) + 1

    # Safety against power loss.

    def sync(self) -> None:
        """Make the log of changes safe against power loss; readers and writers go on meanwhile."""
        for generation in list(self._generations.values()):
            generation.collection.sync()

    def flush(self) -> None:
        """Make everything safe and shorten the log."""
        try:
            with self.lock.read():
                for generation in list(self._generations.values()):
                    generation.collection.flush()
            return
        except StoreError as error:
            _log.warning("A flush failed (%s); reopening the store once.", error)
        with self.lock.write():
            for generation in list(self._generations.values()):
                generation.collection.recover()

    def close(self) -> None:
        """Flush and release the engine; safe to call twice."""
        if os.getpid() != self._pid:
            self._closed = True
            return
        self._keeper.stop()
        with self.lock.write():
            if not self._closed:
                self._closed = True
                self._generations.clear()
                self.engine.close()


class _Keeper:
    """A daemon thread that makes changes safe some time after they were made.

    It is started by the first change, and only where the engine lives in this process.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._points = 0
        self._changed = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, points: int) -> None:
        """Note that points were written."""
        if not self._space.engine.capabilities.embedded:
            return
        self._points += points
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mnemotrace-keeper", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._changed.wait() and not self._stop.wait(SYNC_SECONDS):
            self._changed.clear()
            if self._stop.is_set():  # what was cleared may have been the call to stop
                return
            try:
                if self._points >= FLUSH_AFTER:
                    self._points = 0
                    self._space.flush()
                else:
                    self._space.sync()
            except Exception:  # noqa: BLE001
                # Nobody waits for this thread. The data is in the log all the same, and the next
                # flush or close raises what is wrong.
                _log.exception("Changes could not be made safe against power loss.")

    def stop(self) -> None:
        """End the thread; it does not touch the engine afterwards."""
        self._stop.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join()


def next_manifest(current: Manifest) -> Manifest | None:
    """Return the manifest of the generation being filled; None when no reindex was begun."""
    if current.reindex is None:
        return None
    return replace(
        current,
        generation=int(current.reindex["generation"]),
        embedder=dict(current.reindex["embedder"]),
        reindex=None,
    )


def same_embedder(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Tell whether two fingerprints are of one embedder: same names, same canary vector."""
    if any(left.get(key) != right.get(key) for key in ("provider", "model", "dimension")):
        return False
    a, b = left.get("canary"), right.get("canary")
    if not a or not b:
        return a == b
    if len(a) != len(b):
        return False
    length = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return length > 0 and sum(x * y for x, y in zip(a, b, strict=True)) >= _SAME_CANARY * length


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
            f"The store's manifest is damaged ({error!r}). Nothing was changed. Put it back from "
            "a backup, or move the store away to start anew."
        ) from error
    if manifest.schema_version > SCHEMA_VERSION:
        raise StoreCorruptError(
            f"The store was written by a newer mnemotrace (schema {manifest.schema_version}; this "
            f"one reads {SCHEMA_VERSION}). Upgrade mnemotrace to open it."
        )
    return manifest
