"""Counting what a store holds, in a process of its own.

`main` opens a *copy* of a store and prints what it found as one line of JSON. The engine maps files
into memory: where they are damaged it may end the process, and that must not be the process that
asks.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mnemotrace.errors import StoreError
from mnemotrace.records import pending_fields
from mnemotrace.stores.backend import StorageBackend
from mnemotrace.stores.open import open_store
from mnemotrace.stores.outbox import Outbox
from mnemotrace.stores.selection import Selection

_PAGE = 500
_NAMED = 20
_EVERYTHING = Selection(include_private=True, history=True)
_CURRENT = Selection(include_private=True, upcoming=True, now=datetime.min.replace(tzinfo=UTC))
"""Every current version: those whose time is over or still to come, too."""


def count_records(store: StorageBackend) -> dict[str, Any]:
    """Return what a store holds, in numbers, and the ids of what is wrong in it.

    Raises:
        StoreError: it cannot be read.
    """
    found: Counter[str] = Counter()
    living: Counter[str] = Counter()
    without: list[str] = []
    cursor: str | None = None
    while True:
        page, cursor = store.dump(_PAGE, cursor)
        current = [record.id for record in page if record.is_current]
        vectors = store.vectors(_CURRENT, current) if current else {}
        without += [record_id for record_id in current if record_id not in vectors]
        living.update(current)
        for record in page:
            found["versions"] += 1
            found["retired"] += not record.is_current
            found["private"] += record.is_current and record.private
            found["awaiting_analysis"] += record.is_current and bool(
                pending_fields(record.analysis)
            )
        if cursor is None:
            break
    doubled = sorted(record_id for record_id, count in living.items() if count > 1)
    stored = store.count(_EVERYTHING)
    return {
        "records": len(living),
        "versions": found["versions"],
        "retired": found["retired"],
        "private": found["private"],
        "awaiting_analysis": found["awaiting_analysis"],
        "unreadable": max(stored - found["versions"], 0),
        "doubled": doubled[:_NAMED],
        "without_vector": sorted(set(without) - set(doubled))[:_NAMED],
    }


def count_queued(folder: Path | None) -> dict[str, Any]:
    """Return what waits in an outbox, in numbers.

    Raises:
        StoreError: it cannot be read.
    """
    with Outbox(folder) as outbox:
        letters = outbox.dead_letters()
        batches = outbox.batches()
        return {
            "waiting": outbox.count(),
            "failed_once": sum(1 for batch in batches if batch.attempts),
            "dead": sum(len(letter.items) for letter in letters),
            "dead_errors": sorted({letter.error.partition(":")[0] for letter in letters})[:_NAMED],
        }


def inspect(folder: Path) -> dict[str, Any]:
    """Return what the copy of a store holds; under ``error`` what could not be read, and why."""
    found: dict[str, Any] = {}
    try:
        found["outbox"] = count_queued(folder / "outbox")
    except StoreError as error:
        found["outbox_error"] = str(error)
    try:
        store = open_store(folder)
        try:
            if store.manifest() is not None:
                found["records"] = count_records(store)
        finally:
            store.close()
    except StoreError as error:
        found["error"] = str(error)
    return found


def main() -> None:
    """Inspect the folder that the command line names, and print what was found."""
    sys.stdout.write(json.dumps(inspect(Path(sys.argv[1]))) + "\n")
