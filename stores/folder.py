"""The folder of an embedded store: its lock, its manifest file and its layout.

```
<folder>/mnemotrace.lock   who owns the folder (the process id is inside)
<folder>/manifest.json     what the store is; replaced at once, never edited
<folder>/generations/<n>/  the engine's files, one folder per embedder generation
<folder>/outbox/           accepted saves that are not yet encoded
```
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mnemotrace.errors import StoreCorruptError, StoreLockedError, StoreNotWritableError

LOCK_NAME = "mnemotrace.lock"
MANIFEST_NAME = "manifest.json"
GENERATIONS = "generations"
OUTBOX = "outbox"
_OWNER_BYTES = 32
_OURS = frozenset({LOCK_NAME, MANIFEST_NAME, MANIFEST_NAME + ".tmp", GENERATIONS, OUTBOX})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_WRITABLE = _FULL | {errno.EACCES, errno.EPERM, errno.EROFS}

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


class FolderLock:
    """The right to write in a folder, held by one process at a time.

    It is taken before the engine sees the folder, because an engine that is refused a folder
    another process holds damages that process's files. The operating system frees it when the
    owner ends, however it ends.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self._file: int | None = None
        _locks.add(self)

    @property
    def held(self) -> bool:
        """Whether this process holds the lock."""
        return self._file is not None

    @property
    def exists(self) -> bool:
        """Whether anybody ever took it: the file stays when the lock is given back."""
        return self._path.exists()

    @property
    def in_place(self) -> bool:
        """Whether the lock that is held is still that of the folder: neither was replaced."""
        if self._file is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except OSError:
            return False

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: when another process has it; names that process.
            StoreNotWritableError: when the folder is read-only.
        """
        if self._file is not None:
            return
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except PermissionError as error:
            raise closed_to_us(
                self._path.parent, error, "its lock file cannot be written"
            ) from error
        except OSError as error:
            raise not_writable(self._path.parent, error) from error
        try:
            _lock_file(file)
        except OSError as error:
            owner = _read_owner(file)
            os.close(file)
            raise StoreLockedError(
                f"The memory folder {self._path.parent} is in use by process {owner}. Close the "
                "memory there first, or give this one another storage= folder; to share one "
                "memory between processes, run a Qdrant server and pass its URL as storage=."
            ) from error
        try:
            os.lseek(file, 0, os.SEEK_SET)
            os.write(file, f"{os.getpid()}\n".ljust(_OWNER_BYTES).encode())
        except OSError as error:
            os.close(file)
            raise not_writable(self._path.parent, error) from error
        self._file = file

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


_locks: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _abandon_all() -> None:
    # A forked child lets go of what it inherited; the parent keeps its locks.
    for lock in list(_locks):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


if sys.platform == "win32":
    import msvcrt

    def _lock_file(file: int) -> None:
        os.lseek(file, 1024, os.SEEK_SET)  # beyond the process id, which others must read
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock_file(file: int) -> None:
        # flock, not POSIX record locks: those are lost when any descriptor of the file closes.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read_owner(file: int) -> str:
    with contextlib.suppress(OSError):
        os.lseek(file, 0, os.SEEK_SET)
        text = os.read(file, _OWNER_BYTES).decode("ascii", "replace").strip()
        if text.isdigit():
            return text
    return "(unknown id)"


def closed_to_us(
    folder: Path, error: OSError, what: str = "it cannot be read"
) -> StoreNotWritableError:
    """Return the error for a folder that cannot even be opened."""
    return StoreNotWritableError(
        f"The memory folder {folder} cannot be opened: {what} ({error.strerror or error}). Nothing "
        "was changed. Check its permissions and those of the folders above it, or pass another "
        "folder as storage=."
    )


def removed(folder: Path) -> StoreNotWritableError:
    """Return the error for a folder that went away while it was open."""
    return StoreNotWritableError(
        f"The memory folder {folder} was removed or replaced while it was open; nothing more can be "
        "stored in it. Put it back from a backup and open the memory again; a new one can be "
        "opened there after this one is closed."
    )


def is_folder(folder: Path) -> bool:
    """Tell whether a folder is there.

    Raises:
        StoreNotWritableError: when that cannot be told.
    """
    try:
        return folder.is_dir()
    except PermissionError as error:
        raise closed_to_us(folder, error) from error


def not_writable(folder: Path, error: OSError) -> StoreNotWritableError:
    """Return the error for a folder that cannot be written."""
    if isinstance(error, FileNotFoundError):
        return removed(folder)
    full = error.errno in _FULL
    reason = "its disk is full" if full else f"it cannot be written ({error.strerror or error})"
    remedy = "Free some space" if full else "Check its permissions"
    return StoreNotWritableError(
        f"Nothing was stored in the memory folder {folder}: {reason}. {remedy}, or pass another "
        "folder as storage=."
    )


def is_shortage(message: str) -> bool:
    """Tell whether an engine's message tells of too little memory or too many open files."""
    return _os_error(message) in _SHORTAGES or message.startswith("Out of memory")


def not_writable_message(folder: Path, message: str) -> StoreNotWritableError | None:
    """Return that error when an engine's message tells of one; None when it does not."""
    code = _os_error(message)
    return not_writable(folder, OSError(code, os.strerror(code))) if code in _NOT_WRITABLE else None


def _os_error(message: str) -> int:
    """Return the number of the system's error that a message names; 0 when it names none."""
    found = re.search(r"os error (\d+)|Os \{ code: (\d+)", message)
    return 0 if found is None else int(found[1] or found[2])


def check_room(folder: Path, least: int) -> None:
    """Refuse to go on when the disk has less room than `least` bytes.

    Raises:
        StoreNotWritableError: naming how much is free, or saying that the folder is gone.
    """
    try:
        free = shutil.disk_usage(folder).free
    except FileNotFoundError as error:
        raise removed(folder) from error
    if free < least:
        raise StoreNotWritableError(
            f"Nothing was stored in the memory folder {folder}: its disk is nearly full "
            f"({free // 2**20} MB free, {least // 2**20} MB wanted). Free some space, or pass "
            "another folder as storage=."
        )


def holes(folder: Path) -> int:
    """Return how many bytes the files below a folder would still take if all were written."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            found = path.lstat()
            if stat.S_ISREG(found.st_mode):
                total += max(0, found.st_size - getattr(found, "st_blocks", 0) * 512)
    return total


def on_ram_disk(folder: Path) -> bool:
    """Tell whether a folder lies in main memory (tmpfs, as /dev/shm), as far as Linux tells.

    There, unlike on a disk, even reading a hole of a mapped file takes room, and the process is
    killed (SIGBUS) when there is none.
    """
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    place = os.path.realpath(folder)
    best, kind = "", ""
    for line in mounts.splitlines():
        point, name = line.split(" ")[1:3]
        point = point.replace("\\040", " ")
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind in ("tmpfs", "ramfs")


def make_folder(folder: Path) -> None:
    """Make the folder, for this user alone, and those above it, with the usual permissions.

    Raises:
        StoreNotWritableError: when that is not possible.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise StoreCorruptError(
            f"The memory folder {folder} cannot be made: a file is in its place. Pass another "
            "folder as storage=."
        ) from error
    except OSError as error:
        if error.errno in _FULL:
            raise not_writable(folder, error) from error
        raise StoreNotWritableError(
            f"The memory folder {folder} cannot be made ({error.strerror or error}). Nothing was "
            "stored. Check the folder above it and its permissions, or pass another folder as "
            "storage=."
        ) from error


def check_layout(folder: Path) -> None:
    """Refuse a folder that is in use for something else; nothing is changed.

    Raises:
        StoreCorruptError: when the folder holds foreign files, or a store without its manifest.
        StoreNotWritableError: when it cannot be read.
    """
    try:
        if not folder.exists():
            return
        if not folder.is_dir():
            raise StoreCorruptError(f"{folder} is a file, but storage= wants a folder.")
        names = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise closed_to_us(folder, error) from error
    if MANIFEST_NAME in names:
        return
    foreign = sorted(names - _OURS)
    if foreign:
        raise StoreCorruptError(
            f"The folder {folder} is not a mnemotrace store: it has no {MANIFEST_NAME}, but holds "
            f"{foreign[0]!r}. Nothing was changed. Pass an empty or new folder as storage=."
        )
    if list_generations(folder):
        raise StoreCorruptError(
            f"The store in {folder} has lost its {MANIFEST_NAME}. Nothing was changed. Put the "
            "file back from a backup, or move the folder away to start anew."
        )


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest file's content; None when there is none.

    Raises:
        StoreCorruptError: when it is not readable JSON.
    """
    path = folder / MANIFEST_NAME
    try:
        data = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise closed_to_us(folder, error, f"its {MANIFEST_NAME} cannot be read") from error
    except (OSError, ValueError) as error:
        raise StoreCorruptError(
            f"The manifest {path} cannot be read ({error}). Nothing was changed. Put the file "
            "back from a backup, or move the folder away to start anew."
        ) from error
    if not isinstance(data, dict):
        raise StoreCorruptError(f"The manifest {path} is not a JSON object. Nothing was changed.")
    return data


def write_manifest(folder: Path, manifest: Mapping[str, Any] | None) -> None:
    """Replace the manifest file: after a crash it is the old one or the new one, whole.

    Raises:
        StoreNotWritableError: when the disk is full or the folder read-only.
    """
    path = folder / MANIFEST_NAME
    try:
        if manifest is None:
            path.unlink(missing_ok=True)
        else:
            temporary = path.with_name(MANIFEST_NAME + ".tmp")
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(manifest, file, ensure_ascii=False, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        if sys.platform != "win32":  # a folder cannot be opened there
            sync_file(folder)
    except OSError as error:
        raise not_writable(folder, error) from error


def sync_file(path: Path) -> None:
    """Write what is in memory of a file to the disk; on Linux that includes memory maps."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def generation_folder(folder: Path, generation: int) -> Path:
    """Return the folder of one generation's engine files."""
    return folder / GENERATIONS / str(generation)


def list_generations(folder: Path) -> list[int]:
    """Return the numbers of the generations that have a folder."""
    base = folder / GENERATIONS
    try:
        if not base.is_dir():
            return []
        return sorted(int(entry.name) for entry in base.iterdir() if entry.name.isdigit())
    except PermissionError as error:
        raise closed_to_us(folder, error) from error


def remove_tree(folder: Path) -> None:
    """Delete a folder and what is in it.

    Raises:
        StoreNotWritableError: when that is not possible.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise not_writable(folder, error) from error
