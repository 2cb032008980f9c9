"""Checks of what a store holds: records, queued saves, the embedder that fits them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mnemotrace.checks import counted
from mnemotrace.embedders.resolve import resolve_embedder
from mnemotrace.errors import ConfigurationError, EmbedderError, EmbedderMismatchError
from mnemotrace.flows.runtime import get_runtime
from mnemotrace.stores import folder as disk

from .place import disk_bytes
from .report import Report

SECONDS = 600.0
"""How long counting may take; a store of a million versions takes about two minutes."""
_RESTORE = "Restore the folder from a backup, or import the last export into a new one."


def check_contents(report: Report, folder: Path, generation: int | None) -> None:
    """Count what a store that nobody has open holds, on a copy.

    Args:
        generation: the one in force; None when nothing was stored, and only the queue is looked at.
    """
    with tempfile.TemporaryDirectory(prefix="mnemotrace-doctor-") as name:
        copy = Path(name, "store")
        try:
            _copy(folder, copy, generation)
        except OSError as error:
            report.add(
                "records",
                "unknown",
                f"The memory cannot be copied to be counted ({error.strerror or error}).",
                "Free some space in the folder for temporary files (TMPDIR).",
            )
            return
        found = _inspected(copy)
    shown = {key: value for key, value in found.items() if key.endswith("error")}
    for key, text in shown.items():
        found[key] = text.replace(str(copy), str(folder))
    _tell_queued(report, found)
    if generation is not None:
        _tell_records(report, found)


def _copy(folder: Path, copy: Path, generation: int | None) -> None:
    """Copy what is in force; a lock or a leftover stays behind."""
    copy.mkdir()
    parts = [] if generation is None else [disk.generation_folder(folder, generation)]
    wanted = sum(disk_bytes(path) for path in parts)
    free = shutil.disk_usage(copy).free
    if wanted > free:
        raise OSError(errno.ENOSPC, f"it takes {wanted} bytes, and {free} are free")
    outbox = folder / disk.OUTBOX
    if outbox.is_dir():
        shutil.copytree(outbox, copy / disk.OUTBOX, ignore=shutil.ignore_patterns("*.lock"))
    for source in parts:
        shutil.copy2(folder / disk.MANIFEST_NAME, copy)
        target = copy / source.relative_to(folder)
        shutil.copytree(source, target, copy_function=_copy_sparse)


def _copy_sparse(source: str, target: str) -> None:
    """Copy a file and leave its holes: the engine's files are mostly holes."""
    seek_data = getattr(os, "SEEK_DATA", None)
    if seek_data is None:
        shutil.copy2(source, target)
        return
    with open(source, "rb") as old, open(target, "wb") as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        end = 0
        while end < size:
            try:
                start = os.lseek(old.fileno(), end, seek_data)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole is left
                    return
                raise
            end = os.lseek(old.fileno(), start, os.SEEK_HOLE)
            old.seek(start)
            new.seek(start)
            left = end - start
            while left > 0 and (piece := old.read(min(left, 1 << 20))):
                new.write(piece)
                left -= len(piece)


def _inspected(copy: Path) -> dict[str, Any]:
    """Run the counting in a process of its own; what ends that process is a finding, too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = "from mnemotrace.doctor.inspect import main; main()"
    command = [sys.executable, "-c", program, str(copy)]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=SECONDS, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"error": f"counting the records took more than {SECONDS:g} s"}
    except OSError as error:
        return {"error": f"no process could be started to count the records ({error})"}
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    if done.returncode == 0 and lines:
        found: dict[str, Any] = json.loads(lines[-1])
        return found
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    why = f": {said[0]}" if said else ""
    return {"error": f"the engine ended while it read the files (code {done.returncode}){why}"}


def _tell_records(report: Report, found: Mapping[str, Any]) -> None:
    if "records" not in found:
        report.add(
            "records",
            "problem",
            f"The records cannot be read: {found.get('error', 'the store is empty')}",
            _RESTORE,
        )
        return
    tell_counts(report, found["records"])


def tell_counts(report: Report, counts: Mapping[str, Any]) -> None:
    """Tell what `inspect.count_records` counted."""
    wrong = []
    if counts["unreadable"]:
        wrong.append(f"{counted(counts['unreadable'], 'stored row')} that cannot be read")
    if counts["doubled"]:
        wrong.append(f"{counted(len(counts['doubled']), 'record')} with two current versions")
    if counts["without_vector"]:
        wrong.append(f"{counted(len(counts['without_vector']), 'record')} without a vector")
    told = (
        f"{counted(counts['records'], 'record')} in {counted(counts['versions'], 'version')}, "
        f"{counts['private']} private"
    )
    if wrong:
        report.add("records", "problem", f"{told}; {', '.join(wrong)}.", _RESTORE, **counts)
    else:
        report.add("records", "ok", f"{told}; all can be read.", **counts)
    waiting = counts["awaiting_analysis"]
    if waiting:
        report.add(
            "analysis",
            "note",
            f"An analysis by a language model is due: {counted(waiting, 'record')}.",
            "Call memory.reanalyze() once a model can be asked.",
            awaiting=waiting,
        )
    else:
        report.add("analysis", "ok", "No record waits for an analysis.", awaiting=0)


def _tell_queued(report: Report, found: Mapping[str, Any]) -> None:
    if "outbox" not in found:
        why = found.get("outbox_error") or found.get("error", "")
        report.add("pending", "problem", f"The queue of accepted saves cannot be read: {why}")
        return
    queued = found["outbox"]
    if queued["waiting"]:
        report.add(
            "pending",
            "note",
            f"Accepted and not saved yet: {counted(queued['waiting'], 'text')}.",
            "They are saved when the memory is next opened: drain_writes() waits for it.",
            waiting=queued["waiting"],
            failed_once=queued["failed_once"],
        )
    else:
        report.add("pending", "ok", "No save is pending.", waiting=0)
    if queued["dead"]:
        report.add(
            "dead_letters",
            "problem",
            f"Given up, because saving failed: {counted(queued['dead'], 'text')} "
            f"({', '.join(queued['dead_errors'])}).",
            "See memory.dead_letters() for them; memory.retry_dead_letters() tries again.",
            dead=queued["dead"],
            errors=queued["dead_errors"],
        )
    else:
        report.add("dead_letters", "ok", "No save was given up.", dead=0)


def check_embedder(
    report: Report, recorded: Mapping[str, Any], given: Any, *, network: bool
) -> None:
    """Find out whether the embedder is there and gives the vectors it gave.

    Args:
        recorded: the fingerprint in the manifest.
        given: what the user passes as ``embedder=``; None for the one the store was written with.
        network: may ask a hosted embedder, which costs one short request.
    """
    name = f"{recorded.get('provider')}/{recorded.get('model')}"
    again = "Open the memory with the embedder it was written with, or reindex it."
    try:
        service = resolve_embedder(given, recorded)
    except (ConfigurationError, ImportError) as error:
        custom = given is None and recorded.get("provider") == "custom"
        status = "unknown" if custom else "problem"
        remedy = "Pass it: examine(storage, embedder=...)." if custom else "Set what is missing."
        report.add("embedder", status, str(error), remedy, embedder=name)  # type: ignore[arg-type]
        return
    if recorded.get("config") and given is None and not network:
        report.add(
            "embedder",
            "unknown",
            f"The embedder {name} may need the network and was not asked.",
            embedder=name,
        )
        return
    try:
        get_runtime().run(service.verify(recorded))
    except EmbedderMismatchError as error:
        report.add("embedder", "problem", str(error), again, embedder=name)
    except EmbedderError as error:
        report.add("embedder", "problem", str(error), "Make it available.", embedder=name)
    else:
        report.add(
            "embedder", "ok", f"{name} is there and gives the recorded vectors.", embedder=name
        )
