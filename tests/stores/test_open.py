"""What storage= may be, and what is said when it is something else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient

from mnemotrace.errors import ConfigurationError, StoreCorruptError, StoreUnavailableError
from mnemotrace.stores.engine import DATETIME_INDEXES, FLOAT_INDEXES, KEYWORD_INDEXES
from mnemotrace.stores.open import open_store
from mnemotrace.stores.qdrant import QdrantStore

from .building import EVERYTHING, MANIFEST, listed, save, version
from .loopback import rest_server


def place(storage: Any) -> Path:
    """Return the folder a store is in, from its sidecar."""
    store = open_store(storage)
    store.close()
    assert store.sidecar is not None
    return store.sidecar.parent


def test_without_storage_the_store_is_below_the_working_folder(tmp_path: Path) -> None:
    assert place(None) == tmp_path / ".mnemotrace" / "memory"


def test_the_environment_names_the_default_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMOTRACE_STORAGE_DIR", str(tmp_path / "here"))
    assert place(None) == tmp_path / "here" / "memory"


def test_a_path_may_be_text_or_a_path(tmp_path: Path) -> None:
    assert place("some/folder") == place(tmp_path / "some" / "folder")
    assert place("./lancedb") == tmp_path / "lancedb"


@pytest.mark.parametrize("storage", ["lancedb", "LanceDB", "chroma", "sqlite", "postgres"])
def test_the_name_of_another_database_is_explained(storage: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Qdrant") as caught:
        open_store(storage)
    assert f"./{storage}" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("storage", ["", "  ", 5, b"bytes", object(), "redis://host", "s3://b/p"])
def test_what_is_no_storage_is_refused(storage: Any) -> None:
    with pytest.raises(ConfigurationError, match="storage="):
        open_store(storage)


@pytest.mark.parametrize("url", ["http://", "http://:", "https://:6333", "http:///path"])
def test_a_url_without_a_host_is_no_server_that_is_down(url: str) -> None:
    with pytest.raises(ConfigurationError, match="names no host"):
        open_store(url)


def test_a_store_of_ones_own_is_returned_as_it_is(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert open_store(store) is store
    store.close()


# -- servers -----------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(StoreUnavailableError, match="URL"):
        open_store(f"http://127.0.0.1:{port}")


@pytest.fixture
def refusing_server() -> Iterator[tuple[str, list[str | None]]]:
    """A server that refuses every request, and the api keys it was shown."""
    keys: list[str | None] = []

    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            keys.append(self.headers.get("api-key"))
            self.send_response(403)
            self.end_headers()
            self.wfile.write(b'{"status": {"error": "forbidden"}}')

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refuse)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", keys
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_a_server_that_refuses_says_so_and_gets_the_key(
    refusing_server: tuple[str, list[str | None]],
) -> None:
    url, keys = refusing_server
    with pytest.raises(StoreUnavailableError, match="api_key"):
        open_store(url, api_key="secret")
    assert keys == ["secret"]


def test_stores_of_different_names_on_one_server_are_apart() -> None:
    client = QdrantClient(":memory:")
    first, second = open_store(client=client), open_store(client=client, name="other")
    for store, record in ((first, "a"), (second, "b")):
        store.initialise(MANIFEST)
        save(store, version(record))
    assert (listed(first), listed(second)) == ({"a"}, {"b"})
    assert {item.name for item in client.get_collections().collections} == {
        "mnemotrace_g1",
        "mnemotrace_meta",
        "other_g1",
        "other_meta",
    }
    first.drop()
    assert listed(second) == {"b"}
    first.close()
    second.close()


def test_an_injected_client_stays_open_and_keeps_the_data() -> None:
    client = QdrantClient(":memory:")
    store = open_store(client=client)
    store.initialise(MANIFEST)
    save(store, version("a"))
    store.close()
    again = open_store(client=client)
    assert isinstance(again, QdrantStore)
    assert again.manifest() == MANIFEST
    assert listed(again, EVERYTHING) == {"a"}
    assert again.sidecar is None
    assert not again.capabilities.embedded
    again.close()


def test_a_server_whose_collection_is_gone_is_reported() -> None:
    client = QdrantClient(":memory:")
    store = open_store(client=client)
    store.initialise(MANIFEST)
    store.close()
    client.delete_collection("mnemotrace_g1")
    with pytest.raises(StoreCorruptError, match="missing"):
        open_store(client=client)


def test_a_manifest_on_a_server_that_is_not_ours_is_reported() -> None:
    client = QdrantClient(":memory:")
    store = open_store(client=client)
    store.initialise(MANIFEST)
    store.close()
    client.set_payload("mnemotrace_meta", {"manifest": "{"}, points=[1])
    with pytest.raises(StoreCorruptError, match="manifest"):
        open_store(client=client)


def test_a_server_store_indexes_its_fields_and_waits_for_ordered_writes(tmp_path: Path) -> None:
    with rest_server() as (url, requests):
        store = open_store(url + "/")
        assert store.manifest() is None
        assert all(method != "PUT" for method, _ in requests)  # opening writes nothing
        store.initialise(MANIFEST)
        indexes = [path for method, path in requests if path.split("?")[0].endswith("/index")]
        assert len(indexes) == len(KEYWORD_INDEXES) + len(DATETIME_INDEXES) + len(FLOAT_INDEXES) + 1
        del requests[:]
        save(store, version("a"))
        store.erase(EVERYTHING)
        writes = [path for method, path in requests if method == "PUT" or "/delete" in path]
        assert len(writes) == 2
        assert all("wait=true" in path and "ordering=strong" in path for path in writes)
        assert store.sidecar is not None
        assert store.sidecar.is_relative_to(tmp_path / ".mnemotrace" / "servers")
        again = open_store(url)
        assert again.place is store.place
        for each in (store, again):
            each.close()
