"""The queue in one outbox file: every query on its tables.

Each function is one transaction on a `QueueFile`. Times are kept as microseconds since 1970 UTC.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mnemotrace import scopes
from mnemotrace.errors import InvalidInputError, RecordError
from mnemotrace.records import as_utc, utc_now

from .outbox_file import QueueFile, damaged
from .outbox_items import (
    DeadLetter,
    PendingBatch,
    PendingSave,
    decode_options,
    encode_options,
    require_text,
)

ItemRow = tuple[str, str, int | None, str]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NO_DETAILS = "The attempt failed; the details went with a text that was forgotten."
_ITEM = "items.record_id, items.content, items.position, items.options"
_ADD_ITEM = (
    "INSERT INTO items (batch, record_id, content, position, options) VALUES (?, ?, ?, ?, ?)"
)
_OLDEST_FIRST = "ORDER BY batches.accepted_at, batches.seq"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which saves a purge removes; the conditions intersect, None sets none."""

    record_ids: frozenset[str] | None = None
    roots: tuple[str, ...] | None = None
    where: Callable[[PendingSave], bool] | None = None

    def holds(self, item: PendingSave) -> bool:
        """Tell whether the save is one of the chosen."""
        return (
            (self.record_ids is None or item.record_id in self.record_ids)
            and (self.roots is None or any(scopes.contains(r, _place(item)) for r in self.roots))
            and (self.where is None or self.where(item))
        )


def checked_rows(items: Sequence[PendingSave]) -> list[ItemRow]:
    """Return the items as rows.

    Raises:
        InvalidInputError: there are none.
        RecordError: one cannot be stored.
    """
    if not items:
        raise InvalidInputError("There is nothing to accept: the batch holds no texts.")
    seen: set[str] = set()
    rows: list[ItemRow] = []
    for number, item in enumerate(items, start=1):
        if item.record_id in seen:
            raise RecordError(
                f"Record id {item.record_id!r} is in the batch twice. Nothing was accepted; give "
                "each text an id of its own."
            )
        seen.add(item.record_id)
        options = encode_options(item.options)
        require_text(item.record_id, f"The record id of text {number} of the batch")
        require_text(item.content, f"Text {number} of the batch")
        require_text(options, f"An option of text {number} of the batch")
        rows.append((item.record_id, item.content, item.position, options))
    return rows


def add(file: QueueFile, batch_id: str, rows: Sequence[ItemRow]) -> None:
    """Put a new batch at the end."""
    with file.write("accepting saves") as db:
        seq = db.execute(
            "INSERT INTO batches (id, accepted_at) VALUES (?, ?)",
            (batch_id, _to_micros(utc_now())),
        ).lastrowid
        db.executemany(_ADD_ITEM, [(seq, *row) for row in rows])


def count(file: QueueFile) -> int:
    """Return the number of waiting texts."""
    with file.read("counting saves") as db:
        row = db.execute(
            "SELECT count(*) FROM items"
            " WHERE batch IN (SELECT seq FROM batches WHERE failed_at IS NULL)"
        ).fetchone()
    return int(row[0])


def batches(file: QueueFile) -> list[PendingBatch]:
    """Return the waiting batches, oldest first."""
    with file.read("listing batches") as db:
        rows = db.execute(
            "SELECT batches.id, count(*), accepted_at, attempts, next_attempt_at, error"
            " FROM batches JOIN items ON items.batch = batches.seq"
            f" WHERE failed_at IS NULL GROUP BY batches.seq {_OLDEST_FIRST}"
        ).fetchall()
    return [
        PendingBatch(
            id=batch_id,
            size=size,
            accepted_at=_from_micros(accepted_at),
            attempts=attempts,
            next_attempt_at=None if retry_at is None else _from_micros(retry_at),
            error=error,
        )
        for batch_id, size, accepted_at, attempts, retry_at, error in rows
    ]


def load(file: QueueFile, batch_id: str) -> list[PendingSave]:
    """Return what is left of a batch, in order."""
    with file.read("reading a batch") as db:
        rows = db.execute(
            f"SELECT {_ITEM} FROM items JOIN batches ON batches.seq = items.batch"
            " WHERE batches.id = ? ORDER BY items.seq",
            (batch_id,),
        ).fetchall()
    return [_item(file, row) for row in rows]


def pending(file: QueueFile, limit: int | None) -> list[PendingSave]:
    """Return the waiting saves, oldest first."""
    with file.read("reading saves") as db:
        rows = db.execute(
            f"SELECT {_ITEM} FROM items JOIN batches ON batches.seq = items.batch"
            f" WHERE failed_at IS NULL {_OLDEST_FIRST}, items.seq LIMIT ?",
            (-1 if limit is None else max(limit, 0),),
        ).fetchall()
    return [_item(file, row) for row in rows]


def waiting(file: QueueFile, record_ids: Iterable[str]) -> set[str]:
    """Return which of these records wait."""
    with file.read("looking for saves") as db:
        return {
            record_id
            for record_id in record_ids
            if db.execute(
                "SELECT 1 FROM items JOIN batches ON batches.seq = items.batch"
                " WHERE record_id = ? AND failed_at IS NULL",
                (record_id,),
            ).fetchone()
        }


def remove(file: QueueFile, batch_id: str, record_ids: Iterable[str] | None) -> bool:
    """Remove finished saves of a batch (None: all); tell whether nothing waits any more."""
    with file.write("removing finished saves") as db:
        seq = _seq(db, batch_id)
        if record_ids is None:
            db.execute("DELETE FROM items WHERE batch = ?", (seq,))
        else:
            db.executemany(
                "DELETE FROM items WHERE batch = ? AND record_id = ?",
                [(seq, record_id) for record_id in record_ids],
            )
        _drop_if_empty(db, [] if seq is None else [seq])
        left = db.execute("SELECT 1 FROM batches WHERE failed_at IS NULL LIMIT 1").fetchone()
    if seq is not None:
        file.removed()
    return left is None


def note_failure(file: QueueFile, batch_id: str, error: str, retry_at: datetime | None) -> int:
    """Count a failed attempt of a waiting batch; return how many there were, 0 for no batch."""
    with file.write("noting a failed attempt") as db:
        db.execute(
            "UPDATE batches SET attempts = attempts + 1, error = ?, next_attempt_at = ?"
            " WHERE id = ? AND failed_at IS NULL",
            (_printable(error), None if retry_at is None else _to_micros(retry_at), batch_id),
        )
        row = db.execute(
            "SELECT attempts FROM batches WHERE id = ? AND failed_at IS NULL", (batch_id,)
        ).fetchone()
    return 0 if row is None else int(row[0])


def bury(file: QueueFile, batch_id: str, error: str) -> None:
    """Make a waiting batch a dead letter; the attempt that failed for good counts."""
    with file.write("setting a failed batch aside") as db:
        db.execute(
            "UPDATE batches SET failed_at = ?, error = ?, attempts = attempts + 1, next_attempt_at = NULL"
            " WHERE id = ? AND failed_at IS NULL",
            (_to_micros(utc_now()), _printable(error), batch_id),
        )


def dead_letters(file: QueueFile) -> list[DeadLetter]:
    """Return the dead letters, oldest first."""
    with file.read("listing dead letters") as db:
        found = db.execute(
            "SELECT seq, id, error, attempts, accepted_at, failed_at FROM batches"
            f" WHERE failed_at IS NOT NULL {_OLDEST_FIRST}"
        ).fetchall()
        rows = {
            seq: db.execute(
                f"SELECT {_ITEM} FROM items WHERE batch = ? ORDER BY seq", (seq,)
            ).fetchall()
            for seq, *_ in found
        }
    return [
        DeadLetter(
            batch_id=batch_id,
            items=tuple(_item(file, row) for row in rows[seq]),
            error=error,
            attempts=attempts,
            accepted_at=_from_micros(accepted_at),
            failed_at=_from_micros(failed_at),
        )
        for seq, batch_id, error, attempts, accepted_at, failed_at in found
    ]


def revive(file: QueueFile, batch_ids: Iterable[str] | None) -> list[str]:
    """Put dead letters (None: all) back in line; return their ids."""
    with file.write("retrying dead letters") as db:
        back = _dead(db, batch_ids)
        db.executemany(
            "UPDATE batches SET failed_at = NULL, attempts = 0 WHERE seq = ?",
            [(seq,) for seq, _ in back],
        )
    return [batch_id for _, batch_id in back]


def discard(file: QueueFile, batch_ids: Iterable[str]) -> list[str]:
    """Remove dead letters and wipe the file; return their ids."""
    with file.write("discarding dead letters") as db:
        gone = _dead(db, batch_ids)
        db.executemany("DELETE FROM items WHERE batch = ?", [(seq,) for seq, _ in gone])
        db.executemany("DELETE FROM batches WHERE seq = ?", [(seq,) for seq, _ in gone])
    if gone:
        file.removed()
        file.wipe()
    return [batch_id for _, batch_id in gone]


def purge(file: QueueFile, chosen: Chosen) -> list[str]:
    """Remove the chosen saves, waiting and dead, and wipe the file; return their record ids."""
    every = f"SELECT items.seq, batch, {_ITEM} FROM items"
    with file.read("looking for saves to remove") as db:
        if chosen.record_ids is None:
            rows = db.execute(every).fetchall()
        else:
            rows = []
            for record_id in sorted(chosen.record_ids):
                rows += db.execute(f"{every} WHERE record_id = ?", (record_id,))
    gone = [(seq, batch, row[0]) for seq, batch, *row in rows if chosen.holds(_item(file, row))]
    if gone:
        touched = sorted({batch for _, batch, _ in gone})
        with file.write("removing saves") as db:
            # The owner may have removed a row meanwhile and given its number to another.
            db.executemany(
                "DELETE FROM items WHERE seq = ? AND record_id = ?",
                [(seq, record_id) for seq, _, record_id in gone],
            )
            # An error message may quote a text.
            db.executemany(
                "UPDATE batches SET error = ? WHERE seq = ? AND error IS NOT NULL",
                [(_NO_DETAILS, batch) for batch in touched],
            )
            _drop_if_empty(db, touched)
        file.removed()
    file.wipe()
    return [record_id for _, _, record_id in gone]


def move(source: QueueFile, target: QueueFile) -> None:
    """Take the batches of one file into another, and delete the first. Both must be owned.

    Killed half-way, both files hold a batch; the next move finds its id in place and skips it.
    """
    columns = "id, accepted_at, attempts, next_attempt_at, error, failed_at"
    with source.read("taking over saves") as db:
        found = db.execute(f"SELECT seq, {columns} FROM batches ORDER BY seq").fetchall()
        rows = db.execute(
            "SELECT batch, record_id, content, position, options FROM items ORDER BY seq"
        ).fetchall()
    if found:
        with target.write("taking over saves") as db:
            seqs = {
                seq: db.execute(
                    f"INSERT INTO batches ({columns}) VALUES (?, ?, ?, ?, ?, ?)", values
                ).lastrowid
                for seq, *values in found
                if _seq(db, values[0]) is None
            }
            db.executemany(
                _ADD_ITEM, [(seqs[batch], *row) for batch, *row in rows if batch in seqs]
            )
    source.delete()


def _place(item: PendingSave) -> str:
    reach = item.options.get("reach") or (scopes.ROOT,)
    return scopes.normalise(item.options.get("scope") or reach[0])


def _item(file: QueueFile, row: Sequence[Any]) -> PendingSave:
    record_id, content, position, options = row
    try:
        return PendingSave(record_id, content, position, decode_options(options))
    except (ValueError, TypeError) as error:
        raise damaged(file.path, f"the options of record {record_id!r} cannot be read") from error


def _seq(db: sqlite3.Connection, batch_id: str) -> int | None:
    row = db.execute("SELECT seq FROM batches WHERE id = ?", (batch_id,)).fetchone()
    return None if row is None else int(row[0])


def _dead(db: sqlite3.Connection, batch_ids: Iterable[str] | None) -> list[tuple[int, str]]:
    wanted = None if batch_ids is None else frozenset(batch_ids)
    rows = db.execute(f"SELECT seq, id FROM batches WHERE failed_at IS NOT NULL {_OLDEST_FIRST}")
    return [(seq, batch_id) for seq, batch_id in rows if wanted is None or batch_id in wanted]


def _drop_if_empty(db: sqlite3.Connection, seqs: Iterable[int]) -> None:
    db.executemany(
        "DELETE FROM batches WHERE seq = ?"
        " AND NOT EXISTS (SELECT 1 FROM items WHERE batch = batches.seq)",
        [(seq,) for seq in seqs],
    )


def _printable(error: str) -> str:
    """Return an error message in a form the file can hold, lone surrogates written as escapes."""
    return error.encode("utf-8", "backslashreplace").decode()


def _to_micros(moment: datetime) -> int:
    return (as_utc(moment) - _EPOCH) // _MICROSECOND


def _from_micros(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND
