"""The embedded engine's folder: who owns it, what survives a crash, what is refused."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mnemotrace.errors import (
    ConfigurationError,
    MemoryClosedError,
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreNotWritableError,
)
from mnemotrace.stores import edge, folder, space
from mnemotrace.stores.backend import NewVersion, WriteBatch
from mnemotrace.stores.open import open_store
from mnemotrace.stores.qdrant import QdrantStore
from mnemotrace.stores.selection import Selection

from .building import (
    DEFAULT,
    EMBEDDER,
    EVERYTHING,
    MANIFEST,
    listed,
    save,
    supersede,
    terms,
    version,
)

HERE = Path(__file__).parent


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file under a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def written(folder: Path, *names: str) -> None:
    """Make a store that holds these records, and close it."""
    store = open_store(folder)
    store.initialise(MANIFEST)
    save(store, *(version(name) for name in names))
    store.close()


def contents(folder: Path) -> set[str]:
    """Return the ids a store holds, opening and closing it."""
    store = open_store(folder)
    try:
        return listed(store, EVERYTHING, limit=100_000)
    finally:
        store.close()


def in_process(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a script in a process of its own; `building` is imported for it."""
    prelude = f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
    text = prelude + textwrap.dedent(script).replace("from .building", "from building")
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# -- nothing is written before the first write -------------------------------------------------


def test_opening_a_missing_folder_makes_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path / "deep" / "store")
    assert store.count(EVERYTHING) == 0
    assert store.sidecar == tmp_path / "deep" / "store" / "outbox"
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_opening_an_empty_folder_leaves_it_empty(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.manifest() is None
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_an_outbox_from_before_the_first_write_is_no_foreign_file(tmp_path: Path) -> None:
    (tmp_path / "outbox").mkdir()
    (tmp_path / "outbox" / "outbox.sqlite3").write_bytes(b"accepted")
    written(tmp_path, "a")
    assert contents(tmp_path) == {"a"}
    assert (tmp_path / "outbox" / "outbox.sqlite3").read_bytes() == b"accepted"


# -- one store per folder and process ------------------------------------------------------------


def test_every_spelling_of_a_folder_is_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probe 21: one sees what another committed, at once."""
    folder = tmp_path / "store"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    spellings: list[str | Path] = [
        str(folder),
        folder,
        "store",
        "./store/../store/",
        tmp_path / "link",
        "~/store",
    ]
    stores = [open_store(spelling) for spelling in spellings]
    stores[0].initialise(MANIFEST)
    for n, store in enumerate(stores):
        assert store.place is stores[0].place
        save(store, version(str(n)))
        assert all(str(n) in listed(other) for other in stores)
    for store in stores:
        assert store.count(Selection()) == len(stores)
        store.close()
    assert contents(folder) == {str(n) for n in range(len(stores))}


def test_closing_one_store_leaves_the_others_open(tmp_path: Path) -> None:
    first, second = open_store(tmp_path), open_store(tmp_path)
    first.initialise(MANIFEST)
    save(first, version("a"))
    first.close()
    first.close()
    with pytest.raises(MemoryClosedError):
        first.count(Selection())
    save(second, version("b"))
    assert listed(second) == {"a", "b"}
    second.close()
    third = open_store(tmp_path)
    assert listed(third) == {"a", "b"}
    third.close()


def test_a_reset_by_one_is_a_reset_for_all_and_they_go_on(tmp_path: Path) -> None:
    """Probe 21: one resets while the other writes; both stay consistent."""
    first, second = open_store(tmp_path / "s"), open_store(tmp_path / "s")
    first.initialise(MANIFEST)
    stop = threading.Event()
    trouble: list[StoreError] = []
    written_by_second = 0

    def write() -> None:
        nonlocal written_by_second
        while not stop.is_set():
            try:
                second.initialise(MANIFEST)
                save(second, version(f"w{written_by_second}"))
                written_by_second += 1
            except StoreError as error:
                if "not initialised" not in str(error):  # the reset came in between
                    trouble.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(5):
        time.sleep(0.05)
        first.drop()
        assert first.count(EVERYTHING) <= 3
    stop.set()
    writer.join()
    assert trouble == []
    assert written_by_second > 0
    first.initialise(MANIFEST)
    save(first, version("end"))
    assert listed(first) == listed(second) >= {"end"}
    first.close()
    second.close()
    assert "end" in contents(tmp_path / "s")


def test_a_reset_leaves_nothing_of_the_records_on_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.initialise(MANIFEST)
    save(store, version("a", content="unmistakable words"))
    store.flush()
    store.drop()
    store.close()
    left = snapshot(tmp_path)
    assert set(left) == {"mnemotrace.lock"}
    assert b"unmistakable" not in b"".join(left.values())


# -- other processes -------------------------------------------------------------------------------

HOLD = """
    import sys
    from building import *
    from mnemotrace.stores.open import open_store
    store = open_store(sys.argv[1])
    store.initialise(MANIFEST)
    save(store, version("theirs"))
    store.flush()
    print("ready", flush=True)
    for line in sys.stdin:
        save(store, version(line.strip()))
        store.flush()
        print(store.count(Selection()), flush=True)
    store.close()
"""


@contextlib.contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold a store."""
    with in_process(HOLD, folder) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(60)


@pytest.mark.slow
def test_a_folder_in_use_elsewhere_is_refused_and_its_owner_is_not_disturbed(
    tmp_path: Path,
) -> None:
    with holder(tmp_path / "s") as process:
        before = snapshot(tmp_path)
        for _ in range(3):
            with pytest.raises(StoreLockedError, match=str(process.pid)) as caught:
                open_store(tmp_path / "s")
        assert "storage=" in str(caught.value) and "server" in str(caught.value)
        assert snapshot(tmp_path) == before
        assert process.stdin is not None and process.stdout is not None
        for n in range(2, 5):  # the owner still writes and flushes
            process.stdin.write(f"more {n}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{n}\n"
    assert process.returncode == 0
    assert contents(tmp_path / "s") == {"theirs", "more 2", "more 3", "more 4"}


@pytest.mark.slow
def test_a_store_opened_before_it_existed_learns_of_its_owner(tmp_path: Path) -> None:
    early = open_store(tmp_path / "s")
    assert early.count(EVERYTHING) == 0
    with holder(tmp_path / "s") as process:
        with pytest.raises(StoreLockedError, match=str(process.pid)):
            early.initialise(MANIFEST)
        with pytest.raises(StoreLockedError):
            early.count(EVERYTHING)
    assert listed(early) == {"theirs"}  # its owner has closed it
    early.close()


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with in_process(HOLD, tmp_path / "s") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.wait(60)
    assert contents(tmp_path / "s") == {"theirs"}


COMMIT_UNTIL_KILLED = """
    import sys
    from building import *
    from mnemotrace.stores.open import open_store
    store = open_store(sys.argv[1])
    store.initialise(MANIFEST)
    save(store, version("a"), version("b"))
    n = 1
    while True:
        print(n, flush=True)
        changes = [version(name, version=n + 1, content="x" * 3000) for name in "ab"]
        batch = WriteBatch(changes, [Retirement(name, n, NOW) for name in "ab"])
        assert store.commit(batch)
        n += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 40, 333])
def test_a_commit_survives_sigkill_whole(tmp_path: Path, after: int) -> None:
    """Acknowledged commits are there, the last one whole or not at all (probe 20)."""
    with in_process(COMMIT_UNTIL_KILLED, tmp_path / "s") as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < after:
            pass
        process.send_signal(signal.SIGKILL)
        acknowledged = [int(line) for line in process.stdout.read().split()] or [after]
        process.wait(60)
    store = open_store(tmp_path / "s")
    current = store.get(Selection(), ["a", "b"])
    assert len(current) == 2
    assert current[0].version == current[1].version
    assert current[0].version in (acknowledged[-1], acknowledged[-1] + 1)
    assert store.count(EVERYTHING) == 2 * current[0].version
    store.close()


KILLED_WHILE_REINDEXING = """
    import os, signal, sys
    import numpy as np
    from building import *
    from mnemotrace.stores.open import open_store
    step = sys.argv[2]
    store = open_store(sys.argv[1])
    target = store.begin_reindex({**EMBEDDER, "model": "toy-2", "dimension": 3})
    for number in range(10):
        if step == "filling" and number == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        record = store.get(Selection(), [f"r{number}"])[0]
        target.commit(WriteBatch([NewVersion(record, "h", np.ones(3, dtype=np.float32))]))
    if step == "filled":
        os.kill(os.getpid(), signal.SIGKILL)
    engine = store.place.engine
    discard, engine.discard = engine.discard, lambda number: os.kill(os.getpid(), signal.SIGKILL)
    store.finish_reindex()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "dimension", "done"), [("filling", 4, 5), ("filled", 4, 10), ("switched", 3, 10)]
)
def test_a_reindex_survives_sigkill_at_any_step(
    tmp_path: Path, step: str, dimension: int, done: int
) -> None:
    """Probe 22: the old store answers until the switch, the new one after it."""
    folder = tmp_path / "s"
    written(folder, *(f"r{n}" for n in range(10)))
    with in_process(KILLED_WHILE_REINDEXING, folder, step) as process:
        process.wait(60)
        assert process.stderr is not None
        assert process.returncode == -signal.SIGKILL, process.stderr.read()
    store = open_store(folder)
    manifest = store.manifest()
    assert manifest is not None and manifest.dimension == dimension
    assert store.count(EVERYTHING) == 10
    generations = sorted(path.name for path in (folder / "generations").iterdir())
    if step == "switched":
        assert generations == ["2"]  # the leftover was removed
    else:
        assert generations == ["1", "2"]
        target = store.begin_reindex({**EMBEDDER, "model": "toy-2", "dimension": 3})
        assert target.count(EVERYTHING) == done
        for number in range(done, 10):
            record = store.get(Selection(), [f"r{number}"])[0]
            new = NewVersion(record, "h", np.ones(3, dtype=np.float32))
            assert target.commit(WriteBatch([new]))
        store.finish_reindex()
        assert store.count(EVERYTHING) == 10
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s")
    store.initialise(MANIFEST)
    save(store, version("a"))
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[str] = context.Queue()

    def child() -> None:
        for attempt in (
            lambda: store.count(Selection()),
            lambda: save(store, version("b")),
            lambda: open_store(tmp_path / "s").count(Selection()),
        ):
            try:
                attempt()
                answers.put("done")
            except StoreError as error:
                answers.put(f"{type(error).__name__}: {error}")
        store.close()
        other = open_store(tmp_path / "other")
        other.initialise(MANIFEST)
        save(other, version("mine"))
        other.close()

    process = context.Process(target=child)
    process.start()
    replies = [answers.get(timeout=60) for _ in range(3)]
    process.join(60)
    assert process.exitcode == 0
    assert all("before the process forked" in reply for reply in replies[:2])
    assert replies[2].startswith("StoreLockedError") and str(os.getpid()) in replies[2]
    save(store, version("c"))
    store.flush()
    store.close()
    assert contents(tmp_path / "s") == {"a", "c"}
    assert contents(tmp_path / "other") == {"mine"}


# -- folders that are refused ------------------------------------------------------------------


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not touch")
    before = snapshot(tmp_path)
    with pytest.raises(StoreCorruptError, match=r"thesis\.txt"):
        open_store(tmp_path)
    assert snapshot(tmp_path) == before


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreCorruptError, match="folder"):
        open_store(tmp_path / "file")
    store = open_store(tmp_path / "file" / "below")
    with pytest.raises((StoreCorruptError, StoreNotWritableError)):
        store.initialise(MANIFEST)
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which nothing can be made")
@pytest.mark.parametrize("place", ["/proc/x", "/proc/x/below", "/dev/null/x"])
def test_a_folder_that_cannot_be_made_is_told_as_that(place: str) -> None:
    store = open_store(place)
    with pytest.raises(StoreError, match=rf"{place} cannot be made.*(pass|Pass) another") as told:
        store.initialise(MANIFEST)
    assert "removed" not in str(told.value)
    store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
def test_a_new_folder_is_its_users_own_and_one_that_is_there_keeps_its_mode(
    tmp_path: Path,
) -> None:
    written(tmp_path / "above" / "new", "a")
    assert stat.S_IMODE((tmp_path / "above" / "new").stat().st_mode) == 0o700
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    written(tmp_path / "shared", "a")
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755


GOOD = {"schema_version": 1, "embedder": EMBEDDER, "lexical": "toy-1", "generation": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "manifest"),
        ("{", "manifest"),
        ("[]", "manifest"),
        ("{}", "damaged"),
        (json.dumps({**GOOD, "embedder": {}}), "damaged"),
        (json.dumps({**GOOD, "generation": "one"}), "damaged"),
        (json.dumps({**GOOD, "schema_version": 99}), "newer"),
        (json.dumps({**GOOD, "generation": 7}), "missing"),
        (b"\xff\xfe", "manifest"),
    ],
)
def test_a_damaged_manifest_is_refused_and_nothing_is_changed(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    written(tmp_path, "a")
    manifest = tmp_path / "manifest.json"
    good = manifest.read_bytes()
    manifest.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = snapshot(tmp_path)
    del before["mnemotrace.lock"]
    with pytest.raises(StoreCorruptError, match=said):
        open_store(tmp_path)
    after = snapshot(tmp_path)
    del after["mnemotrace.lock"]
    assert after == before
    manifest.write_bytes(good)
    assert contents(tmp_path) == {"a"}


def test_a_store_that_lost_its_manifest_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    written(tmp_path, "a")
    manifest = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(StoreCorruptError, match="lost"):
        open_store(tmp_path)
    (tmp_path / "manifest.json").write_bytes(manifest)
    assert contents(tmp_path) == {"a"}


@pytest.mark.parametrize("state", ["being made", "dropped"])
def test_a_store_whose_making_or_dropping_was_cut_short_starts_anew(
    tmp_path: Path, state: str
) -> None:
    written(tmp_path, "a")
    (tmp_path / "manifest.json").write_text(json.dumps({"state": state}))
    store = open_store(tmp_path)
    assert store.manifest() is None
    assert not list((tmp_path / "generations").iterdir())
    store.initialise(MANIFEST)
    assert store.count(EVERYTHING) == 0
    store.close()


@pytest.mark.parametrize("damage", ["segment.json", "version.info", "open-1", "edge_config.json"])
def test_damaged_engine_files_are_one_clear_error(tmp_path: Path, damage: str) -> None:
    written(tmp_path, "a")
    (path,) = tmp_path.rglob(damage)
    path.write_bytes(b"\x00" * 64)
    with pytest.raises(StoreCorruptError, match="damaged"):
        open_store(tmp_path)
    with pytest.raises(StoreCorruptError, match="damaged"):  # the lock was given back
        open_store(tmp_path)


def test_a_panic_of_the_engine_is_one_clear_error(tmp_path: Path) -> None:
    written(tmp_path, "a")
    for path in tmp_path.rglob("has_values/status.dat"):
        os.truncate(path, 8)
    with pytest.raises(StoreCorruptError, match="damaged"):
        open_store(tmp_path)


def test_damage_that_is_met_while_reading_is_told_as_that(tmp_path: Path) -> None:
    """The engine opens it, and calls what it cannot decode a plain error of its service."""
    written(tmp_path, *(f"record {number}" for number in range(20)))
    (path,) = tmp_path.rglob("payload_storage/page_0.dat")
    with open(path, "r+b") as file:
        file.write(b"\xa5" * 65536)  # every record, in whatever order they were written
    store = open_store(tmp_path)
    told = rf"{re.escape(str(tmp_path))}.* damaged .*doctor.*backup"
    with pytest.raises(StoreCorruptError, match=told):
        store.list_records(EVERYTHING, 100)
    with pytest.raises(StoreCorruptError, match=told):
        store.get(EVERYTHING, ["record 3"])
    store.close()


@pytest.mark.parametrize(
    ("message", "opening", "kind"),
    [
        ("Service runtime error: Failed to decode value: cut short", False, StoreCorruptError),
        ("Inconsistent storage: point 3 has no vector", False, StoreCorruptError),
        ("failed to load segment", True, StoreCorruptError),
        ("Service runtime error: Too many open files (os error 24)", False, StoreError),
        ("Service runtime error: Too many open files (os error 24)", True, StoreError),
        ("Out of memory, free: 3", False, StoreError),
        ("Validation failed: limit", False, StoreError),
        (
            "Service runtime error: Read-only file system (os error 30)",
            False,
            StoreNotWritableError,
        ),
    ],
)
def test_errors_of_the_engine_are_told_apart(
    tmp_path: Path, message: str, opening: bool, kind: type[StoreError]
) -> None:
    with pytest.raises(StoreError) as told, edge._EngineErrors(tmp_path, opening=opening):
        raise Exception(message)  # noqa: TRY002  the engine has no other kind
    assert type(told.value) is kind
    assert str(tmp_path) in str(told.value)


def test_lost_indexes_are_made_again(tmp_path: Path) -> None:
    written(tmp_path, "a", "b")
    (path,) = tmp_path.rglob("payload_index/config.json")
    path.unlink()
    assert contents(tmp_path) == {"a", "b"}


# -- disks -------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 700 MB in main memory, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=700m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if not mounted or mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_the_write_and_keeps_the_rest(small_disk: Path) -> None:
    store = open_store(small_disk / "s")
    store.initialise(MANIFEST)
    save(store, version("a"))
    fill = small_disk / "fill"
    with open(fill, "wb") as file:
        file.write(b"x" * (shutil.disk_usage(small_disk).free - 2**20))
    with pytest.raises(StoreNotWritableError, match="full"):
        save(store, version("b"))
    with pytest.raises(StoreNotWritableError, match="full"):
        supersede(store, "a", 1, version("a", version=2))
    assert [(r.id, r.version) for r in store.list_records(EVERYTHING, 10)] == [("a", 1)]
    new = open_store(small_disk / "new")
    with pytest.raises(StoreNotWritableError):
        new.initialise(MANIFEST)
    assert new.manifest() is None
    fill.unlink()
    save(store, version("b"))
    new.initialise(MANIFEST)
    save(new, version("c"))
    for each in (store, new):
        each.close()
    assert contents(small_disk / "s") == {"a", "b"}


OPENING = """
    import sys
    from mnemotrace.errors import StoreNotWritableError
    from mnemotrace.stores.open import open_store
    try:
        open_store(sys.argv[1]).close()
    except StoreNotWritableError as error:
        print(error)
"""


@pytest.mark.parametrize("free", [0, 32, 96])
def test_a_disk_that_filled_up_meanwhile_is_told_at_opening_and_kills_nobody(
    small_disk: Path, free: int
) -> None:
    """The engine maps files with holes; on a RAM disk reading one without room is a SIGBUS."""
    written(small_disk / "s", "a")
    # A copy has its holes again, as after a restart from an image or a backup.
    archive = small_disk.parent / "s.tar"
    for command in (["-cSf", str(archive), "s"], ["-xSf", str(archive)]):
        subprocess.run(["tar", "-C", str(small_disk), *command], check=True)
        if "-cSf" in command:
            shutil.rmtree(small_disk / "s")
    with open(small_disk / "fill", "wb") as file:
        file.write(b"x" * (shutil.disk_usage(small_disk).free - free * 2**20))
    opened = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OPENING), str(small_disk / "s")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert opened.returncode == 0, opened.stderr
    assert "nearly full" in opened.stdout
    (small_disk / "fill").unlink()
    assert contents(small_disk / "s") == {"a"}


def test_only_what_lies_in_main_memory_is_a_ram_disk(small_disk: Path, tmp_path: Path) -> None:
    assert folder.on_ram_disk(small_disk)
    assert folder.on_ram_disk(small_disk / "not" / "there")
    assert not folder.on_ram_disk(Path(sys.prefix))


def test_holes_are_counted(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(10 * 2**20)
        file.write(b"x" * 4096)
    assert 9 * 2**20 < folder.holes(tmp_path) <= 10 * 2**20


def test_a_read_only_disk_is_refused_and_left_as_it_was(small_disk: Path) -> None:
    written(small_disk / "s", "a")
    before = snapshot(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreNotWritableError, match="permissions"):
        open_store(small_disk / "s")
    new = open_store(small_disk / "new")
    with pytest.raises(StoreNotWritableError, match="permissions"):
        new.initialise(MANIFEST)
    assert new.count(EVERYTHING) == 0
    new.close()
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert snapshot(small_disk) == before
    assert contents(small_disk / "s") == {"a"}


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere"
)
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    store = open_store(tmp_path / "s")
    with pytest.raises(StoreNotWritableError):
        store.initialise(MANIFEST)
    store.close()
    tmp_path.chmod(0o700)


@contextlib.contextmanager
def not_ours(path: Path) -> Iterator[None]:
    """Make a file or folder unreadable: nobody's rights are enough, and root becomes nobody."""
    if not hasattr(os, "geteuid"):
        pytest.skip("no such permissions here")
    mode = path.stat().st_mode
    path.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        path.chmod(mode)


@pytest.mark.parametrize("name", ["", "manifest.json", "mnemotrace.lock", "generations"])
def test_what_may_not_be_read_is_told_as_that(name: str) -> None:
    """Opening stores nothing, so the message does not speak of storing; nor is it damage."""
    with tempfile.TemporaryDirectory() as outside:  # pytest's own folders are closed to nobody
        store = Path(outside) / "s"
        written(store, "a")
        for path in (Path(outside), store, *store.rglob("*")):
            path.chmod(0o777)
        with (
            not_ours(store / name),
            pytest.raises(StoreNotWritableError, match=r"opened: .*Permission denied") as told,
        ):
            open_store(store)
        assert "stored" not in str(told.value) and "Check its permissions" in str(told.value)
        assert contents(store) == {"a"}


def test_a_folder_below_an_unreadable_one_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    with (
        not_ours(tmp_path / "closed"),
        pytest.raises(StoreNotWritableError, match="folders above it"),
    ):
        open_store(tmp_path / "closed" / "s")


def test_nothing_is_made_in_the_place_of_a_folder_that_was_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "s")
    store.initialise(MANIFEST)
    save(store, version("a"))
    shutil.rmtree(tmp_path / "s")
    for change in (
        lambda: save(store, version("b")),
        store.claim,
        store.compact,
        store.drop,
        store.flush,
        lambda: store.begin_reindex({**EMBEDDER, "model": "other"}),
        store.close,
    ):
        with pytest.raises(StoreNotWritableError, match="removed or replaced while it was open"):
            change()
        assert not (tmp_path / "s").exists()
    written(tmp_path / "s", "c")  # closed in spite of it
    assert contents(tmp_path / "s") == {"c"}


def test_a_relative_path_in_a_folder_that_is_gone_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    with pytest.raises(ConfigurationError, match="current folder is gone"):
        open_store("s")


LIMITED = """
    import resource, sys
    from building import *
    from mnemotrace.errors import StoreNotWritableError
    from mnemotrace.stores.open import open_store
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
    store = open_store(sys.argv[1])
    try:
        store.initialise(MANIFEST)
    except StoreNotWritableError as error:
        print(error, store.manifest())
"""


@pytest.mark.slow
def test_a_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    with in_process(LIMITED, tmp_path / "s") as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "full" in out and out.strip().endswith("None")
    written(tmp_path / "s", "a")  # nothing is left of the attempt
    assert contents(tmp_path / "s") == {"a"}


# -- keeping changes safe ------------------------------------------------------------------------------


def break_flushing(folder: Path) -> None:
    """Do to a shard what the engine does to it when a second process tries to open it."""
    (journal,) = folder.rglob("payload_storage/tracker_journal.dat")
    journal.unlink()


def test_a_failed_flush_reopens_the_store_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    store.initialise(MANIFEST)
    save(store, version("a"))
    store.flush()
    break_flushing(tmp_path)
    save(store, version("b"))
    store.flush()
    assert "flush failed" in caplog.text
    save(store, version("c"))
    store.flush()
    assert listed(store) == {"a", "b", "c"}
    store.close()
    assert contents(tmp_path) == {"a", "b", "c"}


def test_a_failed_flush_at_the_end_loses_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.initialise(MANIFEST)
    save(store, version("a"))
    store.flush()
    break_flushing(tmp_path)
    save(store, version("b"))
    store.close()
    assert contents(tmp_path) == {"a", "b"}


def keepers() -> set[threading.Thread]:
    """The flushing threads there are; other tests may have left stores open."""
    return {thread for thread in threading.enumerate() if thread.name == "mnemotrace-keeper"}


def test_changes_are_flushed_in_the_background_once_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log that a reopened store replays stays short, without a flush per write."""
    monkeypatch.setattr(space, "SYNC_SECONDS", 0.01)
    monkeypatch.setattr(space, "FLUSH_AFTER", 50)
    others = keepers()
    store = open_store(tmp_path)
    store.initialise(MANIFEST)
    save(store, version("first"))
    store.flush()
    (journal,) = tmp_path.rglob("payload_storage/tracker_journal.dat")
    before = journal.stat().st_mtime_ns
    save(store, version("a"))
    time.sleep(0.3)
    assert journal.stat().st_mtime_ns == before
    save(store, *(version(str(n)) for n in range(60)))
    deadline = time.monotonic() + 20
    while journal.stat().st_mtime_ns == before:
        assert time.monotonic() < deadline, "no flush came"
        time.sleep(0.01)
    (keeper,) = keepers() - others
    store.close()
    assert not keeper.is_alive()


def test_reading_starts_no_thread_and_writes_nothing(tmp_path: Path) -> None:
    """Probe 45, at the store."""
    written(tmp_path, *(f"r{n}" for n in range(50)))
    others = keepers()
    store = open_store(tmp_path)
    store.list_records(Selection(), 1)
    before = snapshot(tmp_path)
    for _ in range(200):
        store.get(Selection(), ["r1"])
        store.nearest(Selection(), np.ones(4, dtype=np.float32), 5, 0.0)
    assert snapshot(tmp_path) == before
    assert keepers() <= others
    store.close()


def test_compacting_keeps_everything_and_leaves_nothing_erased_on_disk(tmp_path: Path) -> None:
    """Probe 30, at the store."""
    store, other = open_store(tmp_path), open_store(tmp_path)
    store.initialise(MANIFEST)
    save(store, *(version(f"r{n}", (1, n), terms(n), content=f"kept {n}") for n in range(300)))
    assert supersede(store, "r1", 1, version("r1", None, version=2, content="kept anew"))
    save(store, version("secret", content="unmistakable words", metadata={"k": "unmistakable"}))
    store.erase(Selection(record_ids=("secret", *(f"r{n}" for n in range(0, 300, 2)))))
    before = sorted(store.list_records(EVERYTHING, 1000), key=lambda r: (r.id, r.version))
    query = (np.array([1, 7, 0, 0], dtype=np.float32), terms(7), DEFAULT, 5)
    hits = [(c.record.id, c.score) for c in store.search(Selection(), *query).candidates]
    sequence = store.sequence()
    assert b"unmistakable" in b"".join(snapshot(tmp_path).values())
    store.compact()
    assert b"unmistakable" not in b"".join(snapshot(tmp_path).values())
    for each in (store, other):
        after = sorted(each.list_records(EVERYTHING, 1000), key=lambda r: (r.id, r.version))
        assert after == before
        found = each.search(Selection(), *query).candidates
        assert [c.record.id for c in found] == [name for name, _ in hits]
    assert store.sequence() == sequence
    save(other, version("after"))
    store.close()
    other.close()
    assert contents(tmp_path) == {r.id for r in before} | {"after"}


def test_compacting_beside_writers_loses_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.initialise(MANIFEST)
    save(store, *(version(f"r{n}") for n in range(500)))
    stop = threading.Event()
    written_meanwhile: list[str] = []

    def write() -> None:
        while not stop.is_set():
            name = f"w{len(written_meanwhile)}"
            save(store, version(name))
            written_meanwhile.append(name)

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(2):
        store.compact()
    stop.set()
    writer.join()
    assert written_meanwhile
    assert store.count(EVERYTHING) == 500 + len(written_meanwhile)
    store.close()
    assert len(contents(tmp_path)) == 500 + len(written_meanwhile)


def test_compacting_keeps_a_reindex_that_was_begun(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.initialise(MANIFEST)
    save(store, version("a"))
    embedder = {**EMBEDDER, "model": "toy-2"}
    target = store.begin_reindex(embedder)
    save(target, version("a"))
    store.compact()
    assert store.begin_reindex(embedder).count(EVERYTHING) == 1
    store.finish_reindex()
    assert listed(store) == {"a"}
    store.close()
    assert contents(tmp_path) == {"a"}


# -- temporary stores --------------------------------------------------------------------------------


def test_memory_stores_are_apart_and_go_with_their_closing() -> None:
    first, second = open_store(":memory:"), open_store(":memory:")
    folders = []
    for store in (first, second):
        store.initialise(MANIFEST)
        assert store.sidecar is not None
        folders.append(store.sidecar.parent)
        assert folders[-1].is_dir()
        assert not store.capabilities.persistent
    save(first, version("a"))
    assert second.count(EVERYTHING) == 0
    assert folders[0] != folders[1]
    first.close()
    assert not folders[0].exists()
    save(second, version("b"))
    second.close()
    assert not folders[1].exists()


LEAVE_OPEN = """
    from building import *
    from mnemotrace.stores.open import open_store
    store = open_store(":memory:")
    store.initialise(MANIFEST)
    save(store, version("a"))
    print(store.sidecar.parent)
"""


@pytest.mark.slow
def test_a_memory_store_left_open_goes_with_the_process() -> None:
    with in_process(LEAVE_OPEN) as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "mnemotrace-" in out
    assert not Path(out.strip()).exists()


def test_a_store_that_closes_while_its_keeper_wakes_up_does_not_hang() -> None:
    """Closing and the keeper's clearing of what woke it up may come at the same moment."""
    keeper = space._Keeper(cast("Any", SimpleNamespace(sync=lambda: None)))

    class Late(threading.Event):
        def clear(self) -> None:
            keeper._stop.set()  # close() comes just before the keeper clears its call
            self.set()
            super().clear()

    keeper._changed = Late()
    keeper._changed.set()
    thread = threading.Thread(target=keeper._run, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_filter_for_what_is_to_come_goes_when_it_has_come(
    embedded: QdrantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unfiltered searches are quicker: a record of the future costs that until it is present."""

    def held() -> frozenset[str]:
        generation = embedded._generation()
        assert generation is not None
        return generation.held

    save(embedded, version("now"))
    assert "valid_from" not in held()
    later = datetime.now(UTC) + timedelta(days=2)
    save(embedded, version("later", valid_from=later), version("sooner", valid_from=later))
    assert "valid_from" in held()
    assert listed(embedded) == {"now"}
    monkeypatch.setattr("mnemotrace.stores.space.utc_now", lambda: later - timedelta(minutes=1))
    assert "valid_from" in held()
    monkeypatch.setattr("mnemotrace.stores.space.utc_now", lambda: later + timedelta(minutes=1))
    assert "valid_from" not in held()
    assert listed(embedded) == {"later", "now", "sooner"}


def test_what_is_to_come_is_hidden_when_the_store_is_opened_again(tmp_path: Path) -> None:
    with contextlib.closing(open_store(tmp_path)) as store:
        store.initialise(MANIFEST)
        later = datetime.max.replace(tzinfo=UTC)
        save(store, version("now"), version("later", valid_from=later))
    with contextlib.closing(open_store(tmp_path)) as store:
        assert listed(store) == {"now"}
