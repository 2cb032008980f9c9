"""One SQLite file of the outbox: whose it is, its tables, its errors, and wiping what was removed.

The lock file beside it says which process encodes what the file holds. It does not guard the
tables, SQLite does that, so that forgetting reaches the files of other processes too.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mnemotrace.errors import (
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreNotWritableError,
)

if TYPE_CHECKING:
    from filelock import BaseFileLock

FILE_NAME = "outbox.sqlite3"
BUSY_SECONDS = 10.0

_APPLICATION_ID = 0x6D6E6F62
"""``mnob`` in ASCII: tells an outbox from any other SQLite file."""
_SCHEMA_VERSION = 1
_SCHEMA = (
    """CREATE TABLE batches (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        accepted_at INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        next_attempt_at INTEGER,
        error TEXT,
        failed_at INTEGER
    )""",
    """CREATE TABLE items (
        seq INTEGER PRIMARY KEY,
        batch INTEGER NOT NULL REFERENCES batches (seq),
        record_id TEXT NOT NULL,
        position INTEGER,
        content TEXT NOT NULL,
        options TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX items_of_batch ON items (batch, record_id)",
    "CREATE INDEX items_by_record ON items (record_id)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)
_NAME = re.compile(r"outbox(?:-([1-9][0-9]*))?\.sqlite3")
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_UNWRITABLE = (
    "SQLITE_CANTOPEN",
    "SQLITE_FULL",
    "SQLITE_IOERR_WRITE",
    "SQLITE_PERM",
    "SQLITE_READONLY",
)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)

_log = logging.getLogger("mnemotrace.outbox")


def queue_paths(folder: Path) -> list[Path]:
    """Return the outbox files in a folder by number; none when there is no such folder."""
    if not folder.is_dir():
        return []
    found = [(match, path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted((int(match[1] or 1), path) for match, path in found)]


def free_paths(folder: Path) -> Iterator[Path]:
    """Return the names an outbox file may have, in the order they are to be tried."""
    yield folder / FILE_NAME
    number = 2
    while True:
        yield folder / f"outbox-{number}.sqlite3"
        number += 1


@contextmanager
def store_errors(
    path: Path, doing: str, outcome: str = "Nothing was changed in it."
) -> Iterator[None]:
    """Turn what SQLite or the file system raises into the store errors.

    Args:
        path: the file, to be named in the message.
        doing: what was being done, to follow "while".
        outcome: a sentence that says what state this leaves.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path, doing, outcome) from error
    except OSError as error:
        raise StoreNotWritableError(
            f"The outbox {path} could not be used while {doing}: {error}. {outcome} "
            "Make its folder writable and free disk space, then try again."
        ) from error


def _translated(error: sqlite3.Error, path: Path, doing: str, outcome: str) -> StoreError:
    code = getattr(error, "sqlite_errorname", "")
    if code.startswith(_DAMAGED):
        return damaged(path, f"{error} while {doing}")
    if code.startswith(_UNWRITABLE):
        return StoreNotWritableError(
            f"The outbox {path} could not be written while {doing}: {error}. {outcome} "
            "Make its folder writable and free disk space, then try again."
        )
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreLockedError(
            f"The outbox {path} was in use for more than {BUSY_SECONDS:.0f} s while {doing}. "
            f"{outcome} Close other programs that have it open, then try again."
        )
    return StoreError(
        f"The outbox {path} failed while {doing}: {error} ({code or type(error).__name__}). "
        f"{outcome} Check the disk, then try again."
    )


def damaged(path: Path, fact: str) -> StoreCorruptError:
    """Return the error for a file that cannot be read."""
    return StoreCorruptError(
        f"The outbox {path} is damaged or is not an outbox: {fact}. Nothing was deleted. It holds "
        "only saves that were accepted and not yet encoded; move it, with its -wal and -shm files, "
        "out of the folder to go on without them, and keep the copy for recovery with sqlite3."
    )


class QueueFile:
    """An open outbox file. Not thread-safe: `Outbox` holds its lock around every use."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: BaseFileLock | None):
        self.path = path
        self.connection = connection
        self._lock = lock
        self._residue = True
        """Removed text may still be in the file. So it may in one left by a killed process."""
        self._inode = _inode(path)

    @classmethod
    def claim(cls, path: Path, *, create: bool) -> QueueFile | None:
        """Open a file as its owner.

        Args:
            path: the file.
            create: make the file when it does not exist.

        Returns:
            None when another owner has it, or when it does not exist and is not to be made.

        Raises:
            StoreCorruptError: it is not a readable outbox; it is left as it is.
            StoreNotWritableError: it or its folder cannot be written.
            StoreError: it was written by a newer version.
        """
        from filelock import FileLock, Timeout  # costs more to import than all of this package

        lock = FileLock(f"{path}.lock", thread_local=False)
        with store_errors(path, "locking it"):
            try:
                lock.acquire(blocking=False)
            except Timeout:
                return None
        try:
            if not create and not path.exists():
                lock.release()
                return None
            return cls(path, _connect(path, create=create), lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def visit(cls, path: Path) -> QueueFile:
        """Open another owner's file, to remove rows from it.

        Raises:
            StoreError: as for `claim`.
        """
        return cls(path, _connect(path, create=False), None)

    @contextmanager
    def write(self, doing: str) -> Iterator[sqlite3.Connection]:
        """Run a transaction that is on disk when this returns, or has not happened at all."""
        with store_errors(self.path, doing):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:  # SQLite itself rolls back on a full disk
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self, doing: str) -> Iterator[sqlite3.Connection]:
        """Run queries that see one state of the file."""
        with store_errors(self.path, doing):
            self.connection.execute("BEGIN")
            try:
                yield self.connection
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("COMMIT")

    def require_in_place(self) -> None:
        """Refuse to write to a file that was deleted or replaced under its open connection.

        Raises:
            StoreError: it was; what would be written now would be gone with the process.
        """
        if self._inode is not None and _inode(self.path) != self._inode:
            raise StoreError(
                f"The outbox {self.path} was deleted or replaced while in use, so nothing can be "
                "accepted durably. Close this memory and open it again."
            )

    def removed(self) -> None:
        """Note that rows were removed, so that `wipe` has something to do."""
        self._residue = True

    def wipe(self) -> None:
        """Leave no byte of removed rows in the file or its log.

        ``secure_delete`` alone does not: when SQLite rebalances a page it leaves copies in the
        page's unused part (seen in 9 of 60 random workloads). Rewriting the file does.
        """
        outcome = "The texts are out of the queue, but traces may be left in the file until then."
        wal = Path(f"{self.path}-wal")
        with store_errors(self.path, "wiping removed texts", outcome):
            if self._residue:
                self.connection.execute("VACUUM")
            elif not wal.exists() or wal.stat().st_size == 0:
                return
            (busy, _, _) = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreLockedError(
                f"The outbox {self.path} was in use for more than {BUSY_SECONDS:.0f} s while "
                f"wiping removed texts. {outcome} Close other programs that have it open, then "
                "try again."
            )
        self._residue = False

    def close(self) -> None:
        """Close the file and give up the lock."""
        try:
            with store_errors(self.path, "closing it"):
                self.connection.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def delete(self) -> None:
        """Delete the file with its log, and give up the lock. Only for a file one owns."""
        with store_errors(self.path, "deleting it"):
            self.connection.close()
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.release()


def claim_existing(path: Path) -> QueueFile | None:
    """Take over a file that a process left behind; None when it is owned or cannot be owned.

    In a folder that cannot be written nothing can be encoded either: its files stay as they are,
    a warning is logged, and reading the store goes on.
    """
    try:
        return QueueFile.claim(path, create=False)
    except StoreNotWritableError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _REFUSED:
            _log.warning("Saves that wait in %s are left there: %s", path, cause)
            return None
        raise


def _connect(path: Path, *, create: bool) -> sqlite3.Connection:
    with store_errors(path, "opening it"):
        mode = "rwc" if create else "rw"
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_SECONDS,
        )
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Check what the file is before anything is changed in it; make the tables in a new one."""
    application = _pragma(connection, "application_id")
    version = _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    is_new = tables == 0 and application == 0
    if not is_new:
        if application != _APPLICATION_ID:
            raise damaged(path, "it is a SQLite file of another program")
        if version != _SCHEMA_VERSION:
            raise StoreError(
                f"The outbox {path} has schema version {version}; this mnemotrace reads "
                f"{_SCHEMA_VERSION}. Nothing was changed; open it with the version that wrote it."
            )
        faults = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if faults != "ok":
            raise damaged(path, str(faults))
    connection.execute("PRAGMA temp_store = MEMORY")  # VACUUM's copy holds texts
    connection.execute("PRAGMA secure_delete = ON").fetchone()
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = FULL")
    if is_new:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA if _pragma(connection, "user_version") == 0 else ():
            connection.execute(statement)
        connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _inode(path: Path) -> tuple[int, int] | None:
    """Identify a file; None where the system has no inode numbers, or the file is missing."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return (status.st_dev, status.st_ino) if status.st_ino else None
