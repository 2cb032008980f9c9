"""What every test gets: a clean environment, a folder of its own, no network."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Settings of the person who runs the tests that would change what the library does.
_PROVIDERS = (
    "ANTHROPIC_",
    "AWS_",
    "AZURE_",
    "COHERE_",
    "GEMINI_",
    "GOOGLE_",
    "JINA_",
    "LITELLM_",
    "MNEMOTRACE_",
    "OLLAMA_",
    "OPENAI_",
    "QDRANT_",
    "VERTEXAI_",
    "VOYAGE_",
    "WATSONX_",
)
_TERMINAL = ("CLICOLOR_FORCE", "COLUMNS", "FORCE_COLOR", "NO_COLOR", "PY_COLORS")


_MEMORY_DISK = Path("/dev/shm")  # on Linux
_ROOM = 4 << 30
"""Bytes that must be free there: a fresh store reserves 32 MiB, and four processes make many."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests' folders on a disk in memory where there is one: waiting for a real one to
    sync is half their time. `pytest --basetemp=DIR` or PYTEST_DEBUG_TEMPROOT choose another.
    """
    chosen = config.option.basetemp or "PYTEST_DEBUG_TEMPROOT" in os.environ
    usable = _MEMORY_DISK.is_dir() and os.access(_MEMORY_DISK, os.W_OK)
    if not chosen and usable and shutil.disk_usage(_MEMORY_DISK).free >= _ROOM:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_MEMORY_DISK)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow tests last, so that the fast ones fail first."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run every test without keys, without the user's settings, and outside the checkout."""
    for name in list(os.environ):
        if name.startswith(_PROVIDERS) or name.endswith("_API_KEY") or name in _TERMINAL:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def _is_local(address: Any) -> bool:
    if not isinstance(address, tuple):  # a Unix socket's path
        return True
    host = str(address[0])
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Refuse every connection that would leave this machine, whatever asks for it."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if not _is_local(address):
            raise ConnectionRefusedError(f"Tests have no network; something asked for {address!r}.")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield
