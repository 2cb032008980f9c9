"""examine: every check of one memory, in order."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mnemotrace.checks import checked_flag, encodable, shortened
from mnemotrace.errors import ConfigurationError, StoreError
from mnemotrace.stores.open import default_folder, open_store

from .contents import check_contents, check_embedder, tell_counts
from .environment import check_environment
from .inspect import count_records
from .place import check_folder
from .report import Report

_URL = re.compile(r"https?://", re.IGNORECASE)


def examine(
    storage: str | os.PathLike[str] | None = None,
    *,
    embedder: Any = None,
    api_key: str | None = None,
    network: bool = True,
) -> Report:
    """Look at a memory, and at what it runs on, and say what is wrong; nothing is changed.

    A folder that another process has open, or that is damaged, is looked at as far as that goes.
    What the engine holds is counted on a copy in a temporary folder, in a process of its own.

    Args:
        storage: as for `Memory`: None for the default place, a folder, or the URL of a server.
        embedder: as for `Memory`; needed to check one of your own.
        api_key: of the Qdrant server.
        network: may ask a hosted embedder, with one short text.

    Returns:
        The checks, what to do about each, and a verdict.

    Raises:
        ConfigurationError: `storage` is not a place that can be looked at.
        InvalidInputError: `network` is not a truth value.
    """
    checked_flag(network, "network")
    if storage is None:
        storage = default_folder() / "memory"
    text = os.fspath(storage) if isinstance(storage, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text.strip() or text == ":memory:" or not encodable(text):
        raise ConfigurationError(
            f"storage={shortened(storage)} cannot be examined: pass a folder or the URL of a Qdrant "
            "server."
        )
    report = Report(text)
    check_environment(report)
    if _URL.match(text):
        _server(report, text, api_key, embedder, network)
        return report
    if "://" in text:
        raise ConfigurationError(f"storage={shortened(storage)} is a URL of an unknown kind.")
    folder = Path(os.path.realpath(Path(text).expanduser()))
    found = check_folder(report, folder)
    if found is None:
        return report
    broken = [c.name for c in report.problems if c.name in ("manifest", "files", "permissions")]
    if found.owner is not None:
        report.add("records", "unknown", f"Not counted: the folder is in use by {found.owner}.")
        report.add("pending", "unknown", f"Not counted: the folder is in use by {found.owner}.")
    elif broken:
        report.add("records", "unknown", f"Not counted because of the {broken[0]}.")
    else:
        number = None if found.manifest is None else int(found.manifest["generation"])
        check_contents(report, folder, number)
    if found.manifest is not None:
        check_embedder(report, found.manifest["embedder"], embedder, network=network)
    return report


def _server(report: Report, url: str, api_key: str | None, embedder: Any, network: bool) -> None:
    """Look at a memory on a Qdrant server; only reads are made."""
    try:
        store = open_store(url, api_key=api_key)
    except StoreError as error:
        report.add("server", "problem", str(error), "Start the server, or correct the URL and key.")
        return
    try:
        manifest = store.manifest()
        report.add("server", "ok", f"The server at {url} answers.")
        if manifest is None:
            report.add("manifest", "note", "Nothing was stored there yet.")
            return
        name = f"{manifest.embedder.get('provider')}/{manifest.embedder.get('model')}"
        report.add(
            "manifest",
            "ok",
            f"Schema {manifest.schema_version}, embedder {name} ({manifest.dimension} dimensions).",
            schema_version=manifest.schema_version,
            generation=manifest.generation,
            embedder=name,
            dimension=manifest.dimension,
        )
        tell_counts(report, count_records(store))
        check_embedder(report, manifest.embedder, embedder, network=network)
    except StoreError as error:
        report.add("records", "problem", str(error))
    finally:
        store.close()
