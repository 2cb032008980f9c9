"""`mnemotrace doctor`: what it prints, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mnemotrace.stores.folder import FolderLock

from .conftest import Cli


@pytest.mark.slow
def test_a_healthy_memory_is_code_0(cli: Cli, remember: Callable[..., str]) -> None:
    remember("The harbour closes at nine.")
    done = cli("doctor")
    assert done.err == ""
    assert any(
        line.startswith("ok       records       1 record in 1 version") for line in done.lines
    )
    assert done.lines[-1] == ".mnemotrace/memory: healthy, 0 problems."


def test_a_damaged_one_is_code_1_and_a_locked_one_3(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "s\x1b[31mtore"
    store.mkdir()
    lock = FolderLock(store)
    lock.acquire()
    report = cli("doctor", "--storage", str(store), "--json", code=3).json
    assert (report["status"], report["exit_code"]) == ("incomplete", 3)
    lock.release()
    (store / "manifest.json").write_text("{", "utf-8")
    done = cli("doctor", "--storage", str(store), code=1)
    assert any(line.startswith("PROBLEM  manifest") for line in done.lines)
    assert "\x1b" not in done.out
    assert done.lines[-1].endswith("problems, 1 problem.")


def test_a_place_without_a_memory_is_code_0_and_a_wrong_one_1(cli: Cli, tmp_path: Path) -> None:
    report = cli("doctor", "--json", "--offline").json
    names = [check["name"] for check in report["checks"]]
    assert names == ["libraries", "keys", "tokenizer", "folder", "disk"]
    assert list(tmp_path.iterdir()) == []
    assert "cannot be examined" in cli("doctor", "--storage", ":memory:", code=1).err
