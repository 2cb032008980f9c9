"""A stand-in for a Qdrant server: its REST requests, answered by qdrant-client's local mode.

It proves that what the server engine sends is what the REST interface takes. It says nothing of a
real server's speed or concurrency.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel
from qdrant_client import QdrantClient, models

Answer = Callable[[QdrantClient, str, dict[str, Any]], Any]


def _query(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    request = models.QueryRequest.model_validate(body)
    assert request.params is None or request.params.exact
    return client.query_points(
        name,
        query=request.query,
        using=request.using,
        query_filter=request.filter,
        limit=request.limit or 10,
        score_threshold=request.score_threshold,
        with_payload=request.with_payload or False,
    )


def _query_batch(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    return [_query(client, name, search) for search in body["searches"]]


def _scroll(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    request = models.ScrollRequest.model_validate(body)
    rows, following = client.scroll(
        name,
        scroll_filter=request.filter,
        limit=request.limit or 10,
        order_by=request.order_by,
        offset=request.offset,
        with_payload=request.with_payload or False,
        with_vectors=request.with_vector or False,
    )
    return {"points": _plain(rows), "next_page_offset": _plain(following)}


def _retrieve(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    request = models.PointRequest.model_validate(body)
    return client.retrieve(
        name,
        request.ids,
        with_payload=request.with_payload or False,
        with_vectors=request.with_vector or False,
    )


def _facet(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    request = models.FacetRequest.model_validate(body)
    assert request.exact
    return client.facet(
        name, request.key, facet_filter=request.filter, limit=request.limit or 10, exact=True
    )


def _count(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    request = models.CountRequest.model_validate(body)
    return client.count(name, count_filter=request.filter, exact=bool(request.exact))


def _upsert(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    return client.upsert(name, models.PointsList.model_validate(body).points)


def _delete_points(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    return client.delete(name, models.PointIdsList.model_validate(body))


def _set_payload(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    request = models.SetPayload.model_validate(body)
    assert request.points is not None
    return client.set_payload(name, request.payload, points=request.points)


def _create(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    request = models.CreateCollection.model_validate(body)
    return client.create_collection(
        name,
        vectors_config=request.vectors or {},
        sparse_vectors_config=request.sparse_vectors,
    )


def _index(client: QdrantClient, name: str, body: dict[str, Any]) -> Any:
    models.CreateFieldIndex.model_validate(body)
    return {"operation_id": 1, "status": "completed"}


ROUTES: list[tuple[str, str, Answer]] = [
    ("GET", r"/collections", lambda client, _, __: client.get_collections()),
    (
        "GET",
        r"/collections/([^/]+)/exists",
        lambda client, name, _: {"exists": client.collection_exists(name)},
    ),
    ("PUT", r"/collections/([^/]+)", _create),
    ("DELETE", r"/collections/([^/]+)", lambda client, name, _: client.delete_collection(name)),
    ("PUT", r"/collections/([^/]+)/index", _index),
    ("PUT", r"/collections/([^/]+)/points", _upsert),
    ("POST", r"/collections/([^/]+)/points", _retrieve),
    ("POST", r"/collections/([^/]+)/points/delete", _delete_points),
    ("POST", r"/collections/([^/]+)/points/payload", _set_payload),
    ("POST", r"/collections/([^/]+)/points/query", _query),
    ("POST", r"/collections/([^/]+)/points/query/batch", _query_batch),
    ("POST", r"/collections/([^/]+)/points/scroll", _scroll),
    ("POST", r"/collections/([^/]+)/points/count", _count),
    ("POST", r"/collections/([^/]+)/facet", _facet),
]


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


@contextmanager
def rest_server() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Run the stand-in; yield its URL and the list of requests it gets."""
    client = QdrantClient(":memory:")
    turn = threading.Lock()
    requests: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            split = urlsplit(self.path)
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            requests.append((self.command, self.path))
            for method, pattern, answer in ROUTES:
                found = re.fullmatch(pattern, split.path)
                if method == self.command and found:
                    with turn:
                        result = answer(client, "".join(found.groups()), body)
                    self.reply(200, {"result": _plain(result), "status": "ok", "time": 0.0})
                    return
            self.reply(404, {"status": {"error": f"no route {self.command} {self.path}"}})

        def reply(self, status: int, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
