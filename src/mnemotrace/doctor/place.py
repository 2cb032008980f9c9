"""Checks of an embedded store's folder, made by looking at files only."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemotrace.checks import counted
from mnemotrace.embedders.lexical import LEXICAL_NAME
from mnemotrace.errors import StoreError
from mnemotrace.stores import folder as disk
from mnemotrace.stores.edge import RESERVED_BYTES
from mnemotrace.stores.points import SCHEMA_VERSION

from .report import Report

_MB = 2**20
_ROOMY = 8
"""So many times the room that a write must leave free is plenty."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What later checks need to know of the folder.

    Attributes:
        manifest: what the manifest file says, as far as it is one; None when there is none.
        owner: the process that has the folder open, in words; None when nobody has.
    """

    manifest: Mapping[str, Any] | None = None
    owner: str | None = None


def check_folder(report: Report, folder: Path) -> Findings | None:
    """Look at the folder; None when there is nothing more to look at."""
    if not folder.exists():
        report.add(
            "folder",
            "note",
            f"There is no memory at {folder}; the first remember makes it.",
            exists=False,
        )
        _disk(report, _existing(folder))
        return None
    try:
        disk.check_layout(folder)
    except StoreError as error:
        report.add("folder", "problem", str(error), exists=True)
        return None
    report.add("folder", "ok", f"The folder {folder} is a memory's.", exists=True)
    _permissions(report, folder)
    _disk(report, folder)
    owner = _owner(report, folder)
    manifest = _manifest(report, folder)
    if manifest is not None:
        _generations(report, folder, manifest)
    return Findings(manifest, owner)


def _existing(folder: Path) -> Path:
    """Return the nearest folder above that exists."""
    return next(path for path in (*folder.absolute().parents,) if path.is_dir())


def _permissions(report: Report, folder: Path) -> None:
    closed: list[str] = []
    for path in (folder, *sorted(folder.rglob("*"))):
        wanted = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
        if not os.access(path, wanted):
            closed.append(str(path.relative_to(folder.parent)))
    if closed:
        report.add(
            "permissions",
            "problem",
            f"{counted(len(closed), 'file')} cannot be read and written, first {closed[0]}.",
            "Give this user the right to read and write everything in the folder.",
            files=closed[:20],
        )
        return
    if sys.platform != "win32" and folder.stat().st_mode & 0o077:
        report.add(
            "permissions",
            "note",
            "The folder can be written; other users of this machine may be able to read it.",
            f"If it holds private texts: chmod -R go= {folder}",
        )
    else:
        report.add("permissions", "ok", "The folder can be written, by its owner only.")


def _disk(report: Report, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    told = f"{free // _MB} MB are free on the disk of {folder}."
    if free < RESERVED_BYTES:
        report.add(
            "disk",
            "problem",
            f"{told} Saves are refused below {RESERVED_BYTES // _MB} MB.",
            "Free some space.",
            free_bytes=free,
        )
    else:
        few = free < _ROOMY * RESERVED_BYTES
        report.add("disk", "note" if few else "ok", told, free_bytes=free)


def _owner(report: Report, folder: Path) -> str | None:
    path = folder / disk.LOCK_NAME
    try:
        held = _is_held(path)
        text = path.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        report.add("lock", "ok", "Nobody has the folder open.")
        return None
    except OSError as error:
        report.add("lock", "unknown", f"The lock {path} cannot be read ({error.strerror}).")
        return "an unknown process"
    pid = int(text) if text.isdigit() else None
    if not held:
        report.add("lock", "ok", "Nobody has the folder open.", last_owner=pid)
        return None
    owner = f"process {pid}" if pid != os.getpid() else "this process"
    report.add(
        "lock",
        "note",
        f"The folder is in use by {owner}; what the engine holds is not checked meanwhile.",
        "Close the memory there to have everything checked.",
        owner=pid,
    )
    return owner


if sys.platform == "win32":
    import msvcrt

    def _is_held(path: Path) -> bool:
        file = os.open(path, os.O_RDWR)
        try:
            os.lseek(file, 1024, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
            os.lseek(file, 1024, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
        except PermissionError:
            return True
        finally:
            os.close(file)
        return False

else:
    import fcntl

    def _is_held(path: Path) -> bool:
        """Tell whether a process owns the folder: then a shared lock is refused."""
        file = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False


def disk_bytes(folder: Path) -> int:
    """Return how much of the disk the files in a folder take; the engine's are mostly holes."""
    sizes = (path.stat() for path in folder.rglob("*") if path.is_file())
    return sum(
        status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size
        for status in sizes
    )


def _manifest(report: Report, folder: Path) -> Mapping[str, Any] | None:
    restore = "Put the file back from a backup, or move the folder away to start anew."
    try:
        data = disk.read_manifest(folder)
    except StoreError as error:
        report.add("manifest", "problem", str(error))
        return None
    if data is None:
        report.add("manifest", "note", "Nothing was stored here yet.")
        return None
    if "state" in data:
        report.add(
            "manifest",
            "note",
            f"A process ended while the memory was {data['state']}; opening it cleans up.",
            state=str(data["state"]),
        )
        return None
    embedder = data.get("embedder")
    numbers = (data.get("schema_version"), data.get("generation"))
    if (
        not all(type(number) is int for number in numbers)
        or not isinstance(embedder, dict)
        or type(embedder.get("dimension")) is not int
    ):
        report.add("manifest", "problem", "The manifest lacks fields or has wrong ones.", restore)
        return None
    facts = {
        "schema_version": data["schema_version"],
        "generation": data["generation"],
        "lexical": data.get("lexical"),
        "embedder": f"{embedder.get('provider')}/{embedder.get('model')}",
        "dimension": embedder["dimension"],
    }
    if data["schema_version"] > SCHEMA_VERSION:
        report.add(
            "manifest",
            "problem",
            f"The memory has schema {data['schema_version']}; this mnemotrace reads up to "
            f"{SCHEMA_VERSION}.",
            "Upgrade mnemotrace.",
            **facts,
        )
        return None
    if data.get("lexical") != LEXICAL_NAME:
        report.add(
            "manifest",
            "problem",
            f"The memory's words were split by {data.get('lexical')!r}, and this mnemotrace has "
            f"{LEXICAL_NAME!r}.",
            "Reindex the memory, or open it with the release that wrote it.",
            **facts,
        )
        return None
    if data.get("reindex"):
        report.add(
            "manifest",
            "note",
            "A reindex was begun and not finished; the memory works as before.",
            "Call reindex again with the same embedder to finish it.",
            **facts,
        )
    else:
        report.add(
            "manifest",
            "ok",
            f"Schema {data['schema_version']}, embedder {facts['embedder']} "
            f"({embedder['dimension']} dimensions).",
            **facts,
        )
    return data


def _generations(report: Report, folder: Path, manifest: Mapping[str, Any]) -> None:
    there = disk.list_generations(folder)
    wanted = {int(manifest["generation"])}
    if manifest.get("reindex"):
        wanted.add(int(manifest["reindex"]["generation"]))
    missing = sorted(wanted - set(there))
    if int(manifest["generation"]) in missing:
        report.add(
            "files",
            "problem",
            f"The folder of generation {manifest['generation']}, which holds the records, is "
            "missing.",
            "Restore it from a backup.",
            generations=there,
        )
        return
    size = disk_bytes(folder)
    left = sorted(set(there) - wanted)
    if left:
        report.add(
            "files",
            "note",
            f"Generations {', '.join(map(str, left))} are left over; opening the memory removes "
            "them.",
            generations=there,
            bytes=size,
        )
    else:
        report.add("files", "ok", f"{size / _MB:.1f} MB in files.", generations=there, bytes=size)
