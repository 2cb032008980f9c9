"""Every hosted provider against a server on this machine: what is sent, and what is made of it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from mnemotrace.embedders.providers import hosted
from mnemotrace.embedders.providers.table import PROVIDERS
from mnemotrace.embedders.resolve import resolve_embedder
from mnemotrace.embedders.service import EmbeddingService
from mnemotrace.errors import ConfigurationError, EmbedderError

from .server import Api, Fault, Request, vector

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),  # one loop for all calls, as in a process of a user
    # litellm keeps connections and a logging task that outlive a test's loop.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Items? .* (is|are) using the .ReadOnly. qualifier:UserWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def closed_at_the_end() -> AsyncIterator[None]:
    yield
    from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

    await close_litellm_async_clients()  # type: ignore[no-untyped-call]
    gc.collect()  # while the warnings above are still ignored


@dataclass(frozen=True)
class Row:
    """A provider, and the request for the texts "one" and "two"."""

    key: str
    path: str
    body: Any
    config: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    query: Any = None
    """The body for queries, where it is another one."""
    parameters: dict[str, list[str]] = field(default_factory=dict)
    requests: int = 1
    """How many requests the two texts take; the body is the first one's."""
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or self.key


def gemini(task: dict[str, str], *texts: str, model: str = "gemini-embedding-001") -> Any:
    return {
        "requests": [
            {"model": f"models/{model}", "content": {"parts": [{"text": text}]}, **task}
            for text in texts
        ]
    }


def vertex(task: str, *texts: str) -> Any:
    return {
        "instances": [{"content": text, "task_type": task} for text in texts],
        "parameters": {"task_type": task},
    }


def inputs(model: str, **more: Any) -> Any:
    return {"model": model, "input": ["one", "two"], **more}


def cohere(kind: str, **more: Any) -> Any:
    return {"texts": ["one", "two"], "input_type": kind, **more}


DOCUMENT, QUERY = "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"
AZURE = {"deployment_id": "ours", "api_key": "key-of-azure", "api_base": "{address}/"}
WATSONX = {"api_key": "key-of-watsonx", "url": "{address}", "project_id": "p"}
VERTEX_PATH = "/v1/projects/p/locations/us-central1/publishers/google/models"

ROWS = (
    Row(
        "openai",
        "/v1/embeddings",
        inputs("text-embedding-3-small"),
        headers={"authorization": "Bearer key-of-openai"},
    ),
    Row(
        "openai",
        "/v1/embeddings",
        inputs("bge-m3", dimensions=4),
        config={
            "model_name": "bge-m3",
            "api_key": "mine",
            "api_base": "{address}/v1",
            "dimensions": 4,
        },
        headers={"authorization": "Bearer mine"},
        name="openai-compatible",
    ),
    Row(
        "ollama",
        "/api/embed",
        inputs("mxbai-embed-large"),
        config={"model_name": "mxbai-embed-large", "url": "{address}/api/embeddings"},
    ),
    Row(
        "azure",
        "/openai/deployments/ours/embeddings",
        inputs("ours", encoding_format="base64"),
        config=AZURE,
        headers={"api-key": "key-of-azure"},
        parameters={"api-version": ["2024-02-01"]},
    ),
    Row(
        "google-generativeai",
        "/v1beta/models/gemini-embedding-001:batchEmbedContents",
        gemini({"taskType": DOCUMENT}, "one", "two"),
        query=gemini({"taskType": QUERY}, "one", "two"),
        headers={"x-goog-api-key": "key-of-google"},
    ),
    Row(
        "google-generativeai",
        "/v1beta/models/gemini-embedding-2:batchEmbedContents",
        gemini(
            {},
            "title: none | text: one",
            "title: none | text: two",
            model="gemini-embedding-2",
        ),
        query=gemini(
            {},
            "task: search result | query: one",
            "task: search result | query: two",
            model="gemini-embedding-2",
        ),
        config={"model_name": "gemini-embedding-2"},
        name="google-generativeai-2",
    ),
    Row(
        "google-vertex",
        f"{VERTEX_PATH}/gemini-embedding-001:predict",
        vertex(DOCUMENT, "one"),
        query=vertex(QUERY, "one"),
        config={"project_id": "p", "location": "us-central1"},
        headers={"authorization": "Bearer from-google"},
        requests=2,
    ),
    Row(
        "google-vertex",
        f"{VERTEX_PATH}/gemini-embedding-2:embedContent",
        {"content": {"parts": [{"text": "title: none | text: one"}]}},
        query={"content": {"parts": [{"text": "task: search result | query: one"}]}},
        config={"project_id": "p", "model_name": "gemini-embedding-2"},
        requests=2,
        name="google-vertex-2",
    ),
    Row(
        "google-vertex",
        f"{VERTEX_PATH}/text-embedding-005:predict",
        vertex(DOCUMENT, "one", "two"),
        query=vertex(QUERY, "one", "two"),
        config={"project_id": "p", "model_name": "text-embedding-005"},
        name="google-vertex-text",
    ),
    Row(
        "cohere",
        "/v2/embed",
        cohere("search_document", model="embed-english-v3.0"),
        query=cohere("search_query", model="embed-english-v3.0"),
        headers={"authorization": "Bearer key-of-cohere"},
    ),
    Row(
        "voyageai",
        "/v1/embeddings",
        inputs("voyage-3", input_type="document"),
        query=inputs("voyage-3", input_type="query"),
        headers={"authorization": "Bearer key-of-voyage"},
    ),
    Row(
        "amazon-bedrock",
        "/model/amazon.titan-embed-text-v1/invoke",
        {"inputText": "one"},
        headers={"authorization": "AWS4-HMAC-SHA256 Credential=key-of-aws/"},
        requests=2,
    ),
    Row(
        "amazon-bedrock",
        "/model/cohere.embed-multilingual-v3/invoke",
        cohere("search_document"),
        query=cohere("search_query"),
        config={"model_name": "cohere.embed-multilingual-v3"},
        name="amazon-bedrock-cohere",
    ),
    Row(
        "jina",
        "/v1/embeddings",
        inputs("jina-embeddings-v2-base-en"),
        headers={"authorization": "Bearer key-of-jina"},
    ),
    Row(
        "jina",
        "/v1/embeddings",
        inputs("jina-embeddings-v3", task="retrieval.passage"),
        query=inputs("jina-embeddings-v3", task="retrieval.query"),
        config={"model_name": "jina-embeddings-v3"},
        name="jina-v3",
    ),
    Row(
        "watsonx",
        "/ml/v1/text/embeddings",
        {
            "inputs": ["one", "two"],
            "model_id": "ibm/slate-30m-english-rtrvr",
            "project_id": "p",
            "parameters": {"truncate_input_tokens": 512, "token": None},  # the null is litellm's
        },
        config=WATSONX,
        headers={"authorization": "Bearer from-iam"},
    ),
)
EACH = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
TWO_TEXTS_AT_ONCE = pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.requests == 1 and not row.name],
    ids=lambda row: row.label,
)
ONE_PER_PROVIDER = pytest.mark.parametrize(
    "row", [row for row in ROWS if not row.name], ids=lambda row: row.label
)


def service(api: Api, row: Row, **more: Any) -> EmbeddingService:
    config = {
        name: value.format(address=api.address) if isinstance(value, str) else value
        for name, value in (row.config | more).items()
    }
    return resolve_embedder({"provider": row.key, "config": config})


def first(api: Api, text: str = "one") -> Request:
    """The request with this text: of parallel ones, which comes first is not known."""
    return next(
        request for request in api.embeddings() if any(t.endswith(text) for t in request.texts)
    )


async def test_every_hosted_provider_is_in_this_table() -> None:
    assert {row.key for row in ROWS} == {key for key, row in PROVIDERS.items() if row.prefix}


@EACH
async def test_a_request_is_as_the_provider_wants_it(api: Api, row: Row) -> None:
    vectors = await service(api, row).embed_documents(["one", "two"])

    assert len(api.embeddings()) == row.requests
    sent = first(api)
    assert sent.path == row.path
    assert sent.body == row.body
    assert row.parameters.items() <= sent.query.items()
    for name, value in row.headers.items():
        assert sent.headers[name].startswith(value)
    sent_texts = sorted(text for request in api.embeddings() for text in request.texts)
    assert vectors.tolist() == [vector(text) for text in sent_texts]


@EACH
async def test_a_query_is_told_from_a_document_where_the_provider_does(api: Api, row: Row) -> None:
    await service(api, row).embed_queries(["one", "two"])

    assert first(api).body == (row.query or row.body)


@ONE_PER_PROVIDER
async def test_many_texts_go_in_batches_and_come_back_in_order(api: Api, row: Row) -> None:
    texts = [f"text number {number}" for number in range(7)]
    api.delay = 0.05

    vectors = await service(api, row, max_batch=3).embed_documents(texts)

    most = 1 if row.requests == 2 else 3
    assert sorted(len(request.texts) for request in api.embeddings()) == sorted(
        [most] * (7 // most) + [7 % most] * (7 % most > 0)
    )
    assert 1 < api.together <= hosted.PARALLEL
    assert vectors.tolist() == [vector(text) for text in texts]


@ONE_PER_PROVIDER
async def test_a_rate_limit_passes(api: Api, row: Row) -> None:
    api.faults = [429, 429]

    vectors = await service(api, row).embed_documents(["one"])

    # watsonx may ask for a token first, which is then what was limited.
    assert len(api.requests) >= 3
    assert vectors.tolist() == [vector("one")]


@ONE_PER_PROVIDER
async def test_refused_credentials_are_not_tried_again(api: Api, row: Row) -> None:
    embedder = service(api, row)
    await embedder.embed_documents(["warm up"])
    api.requests.clear()
    api.faults = [401]

    with pytest.raises(EmbedderError, match=rf"{row.key}/.* refused the credentials") as raised:
        await embedder.embed_documents(["one"])

    assert len(api.requests) == 1
    key = PROVIDERS[row.key].options.get("api_key")
    assert key is None or key.variables[0] in str(raised.value)
    assert "key-of" not in str(raised.value)


class ROW_WITHOUT_KEY:
    variables = ()


@ONE_PER_PROVIDER
async def test_a_server_that_keeps_failing_is_given_up(api: Api, row: Row) -> None:
    embedder = service(api, row, max_retries=2)
    await embedder.embed_documents(["warm up"])
    api.requests.clear()
    api.faults = [500] * 9

    with pytest.raises(EmbedderError, match=r"failed with status 50[03].*tried 3 times"):
        await embedder.embed_documents(["one"])

    assert len(api.requests) == 3


@ONE_PER_PROVIDER
async def test_a_refused_request_is_not_tried_again(api: Api, row: Row) -> None:
    embedder = service(api, row)
    await embedder.embed_documents(["warm up"])
    api.requests.clear()
    api.faults = [400]

    with pytest.raises(EmbedderError, match=r"refused the request \(status 400\).*status 400"):
        await embedder.embed_documents(["one"])

    assert len(api.requests) == 1


@ONE_PER_PROVIDER
async def test_a_server_that_does_not_answer_in_time(api: Api, row: Row) -> None:
    embedder = service(api, row, timeout=0.5, max_retries=1)
    await embedder.embed_documents(["warm up"])
    api.requests.clear()
    api.faults = ["slow", "slow"]

    with pytest.raises(EmbedderError, match=r"tried 2 times"):
        await embedder.embed_documents(["one"])

    assert len(api.requests) == 2


@ONE_PER_PROVIDER
@pytest.mark.parametrize("answer", [b"", b"<html>hello</html>", b"null"])
async def test_an_answer_that_is_none_is_said_to_be_unreadable(
    api: Api, row: Row, answer: bytes
) -> None:
    embedder = service(api, row)
    await embedder.embed_documents(["warm up"])
    api.requests.clear()
    api.faults = [answer] * 9

    with pytest.raises(EmbedderError, match="cannot be read"):
        await embedder.embed_documents(["one"])

    assert len(api.requests) == 1


@TWO_TEXTS_AT_ONCE
@pytest.mark.parametrize("fault", ["one short", "none"])
async def test_a_wrong_number_of_vectors_is_refused(api: Api, row: Row, fault: Fault) -> None:
    embedder = service(api, row)
    await embedder.embed_documents(["warm up"])
    api.requests.clear()
    api.faults = [fault]

    with pytest.raises(
        EmbedderError, match=r"returned (0 vectors|1 vector) for 2 texts|cannot be read"
    ):
        await embedder.embed_documents(["one", "two"])

    assert len(api.requests) == 1


@ONE_PER_PROVIDER
async def test_a_server_that_hangs_up_is_asked_again(api: Api, row: Row) -> None:
    embedder = service(api, row)
    await embedder.embed_documents(["warm up"])
    api.faults = ["hang up"]

    assert (await embedder.embed_documents(["one"])).tolist() == [vector("one")]


@TWO_TEXTS_AT_ONCE
async def test_vectors_of_two_lengths_are_refused(api: Api, row: Row) -> None:
    embedder = service(api, row)
    await embedder.embed_documents(["warm up"])
    api.faults = ["another length"]

    with pytest.raises(EmbedderError, match="different lengths: 3, 4"):
        await embedder.embed_documents(["one", "two"])


@ONE_PER_PROVIDER
async def test_a_later_answer_of_another_length_is_refused(api: Api, row: Row) -> None:
    embedder = service(api, row)
    await embedder.embed_documents(["warm up"])
    api.faults = ["another length"]

    with pytest.raises(EmbedderError, match="length 3 for text 1, where it returns vectors of"):
        await embedder.embed_documents(["one"])


@pytest.mark.parametrize("key", ["openai", "azure", "voyageai", "jina"])
async def test_vectors_are_put_in_order_by_their_index(api: Api, key: str) -> None:
    row = next(row for row in ROWS if row.key == key)
    api.faults = ["out of order"]

    vectors = await service(api, row).embed_documents(["one", "two", "three"])

    assert vectors.tolist() == [vector("one"), vector("two"), vector("three")]


@pytest.mark.parametrize("key", ["openai", "azure", "voyageai", "jina"])
async def test_an_index_that_comes_twice_is_refused(api: Api, key: str) -> None:
    row = next(row for row in ROWS if row.key == key)
    api.faults = ["same number twice"]

    with pytest.raises(EmbedderError, match=r"numbered its 2 vectors \[0, 0\]"):
        await service(api, row).embed_documents(["one", "two"])


@pytest.mark.parametrize(
    "row", [row for row in ROWS if PROVIDERS[row.key].reads_media], ids=lambda row: row.label
)
@pytest.mark.parametrize(
    "text", ["data:image/png;base64,aGVsbG8=", "files/secret", "gs://bucket/cat.png"]
)
async def test_a_text_that_looks_like_a_file_is_sent_as_a_text(
    api: Api, row: Row, text: str
) -> None:
    await service(api, row).embed_documents([text, "one"])

    sent = first(api, text)
    assert any(t.endswith(text) for t in sent.texts)
    assert "images" not in sent.body
    assert len(api.embeddings()) == row.requests


async def test_a_spent_quota_is_not_tried_again(api: Api) -> None:
    api.faults = [(429, "insufficient_quota")]

    with pytest.raises(EmbedderError, match="insufficient_quota"):
        await service(api, ROWS[0]).embed_documents(["one"])

    assert len(api.requests) == 1


async def test_a_server_says_how_long_to_wait(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def short(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", short)
    api.faults, api.headers = [429], {"retry-after": "7"}

    await service(api, ROWS[0]).embed_documents(["one"])

    assert waits.count(7.0) == 1


async def test_a_server_that_wants_an_hour_is_not_waited_for(api: Api) -> None:
    api.faults, api.headers = [429], {"retry-after": "3600"}

    with pytest.raises(EmbedderError, match="tried once"):
        await service(api, ROWS[0]).embed_documents(["one"])


@ONE_PER_PROVIDER
async def test_no_server_at_all(api: Api, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = service(api, row, max_retries=1)
    nowhere = "http://127.0.0.1:9"
    option = PROVIDERS[row.key].options[PROVIDERS[row.key].address or ""]
    for name in option.variables:
        monkeypatch.setenv(name, nowhere)
    settings = embedder.embedder.settings
    if PROVIDERS[row.key].address in settings._given:
        settings._given[PROVIDERS[row.key].address] = nowhere

    with pytest.raises(EmbedderError, match=r"cannot be reached at http://127\.0\.0\.1:9.*2 times"):
        await embedder.embed_documents(["one"])

    assert not api.embeddings()


async def test_a_wrong_dimension_is_refused(api: Api) -> None:
    with pytest.raises(EmbedderError, match="length 4 for text 1, where it returns vectors of"):
        await service(api, ROWS[0], dimensions=8).embed_documents(["one"])

    assert api.requests[0].body["dimensions"] == 8


async def test_a_dimension_that_a_model_cannot_have_is_told_at_once(api: Api) -> None:
    row = next(row for row in ROWS if row.key == "amazon-bedrock")

    with pytest.raises(EmbedderError, match=r"cannot be asked like that.*dimensions"):
        await service(api, row, dimensions=8).embed_documents(["one"])

    assert not api.requests


async def test_a_long_text_is_embedded_in_pieces(api: Api) -> None:
    text = "word " * 10

    (row,) = (await service(api, ROWS[0], max_characters=20).embed_documents([text])).tolist()

    (sent,) = api.requests
    assert len(sent.texts) > 1
    assert "".join(sent.texts) == text
    weights = [len(piece) / len(text) for piece in sent.texts]
    wanted = np.average([vector(piece) for piece in sent.texts], axis=0, weights=weights)
    assert np.allclose(row, wanted, atol=1e-6)


async def test_bedrock_takes_region_and_credentials_from_a_session(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    session = boto3.Session("id-of-session", "secret", "token", region_name="ap-northeast-2")
    row = next(row for row in ROWS if row.key == "amazon-bedrock")

    await service(api, row, session=session).embed_documents(["one"])

    (sent,) = api.requests
    assert "Credential=id-of-session/" in sent.headers["authorization"]
    assert "/ap-northeast-2/bedrock/" in sent.headers["authorization"]
    assert sent.headers["x-amz-security-token"] == "token"


async def test_bedrock_without_credentials_says_so(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    row = next(row for row in ROWS if row.key == "amazon-bedrock")

    with pytest.raises(EmbedderError, match="Unable to locate credentials"):
        await service(api, row).embed_documents(["one"])

    assert not api.requests


async def test_vertex_without_credentials_says_so(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "nowhere.json")
    row = next(row for row in ROWS if row.key == "google-vertex")

    with pytest.raises(EmbedderError, match=r"nowhere\.json"):
        await service(api, row, project_id="another").embed_documents(["one"])

    assert not api.requests


async def test_watsonx_with_a_wrong_key_says_so(api: Api) -> None:
    row = next(row for row in ROWS if row.key == "watsonx")
    api.faults = [400]  # what IBM answers to an unknown key

    with pytest.raises(EmbedderError, match="refused the request") as raised:
        await service(api, row, api_key="a-wrong-key").embed_documents(["one"])

    assert "a-wrong-key" not in str(raised.value)
    assert [request.path for request in api.requests] == ["/iam"]


async def test_a_request_holds_up_no_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    # litellm asks Ollama about a model it does not know, with a blocking call after the answer.
    monkeypatch.setenv("OLLAMA_API_BASE", api.address)
    api.show_delay = 1.0
    row = next(row for row in ROWS if row.key == "ollama")
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            gaps.append(time.perf_counter() - before)

    ticker = asyncio.ensure_future(tick())
    await service(api, row, model_name="a-model-of-our-own").embed_documents(["one"])
    ticker.cancel()

    assert "/api/show" in [request.path for request in api.requests]
    assert max(gaps) < 0.6


async def test_an_unknown_option_is_refused_before_anything_is_sent(api: Api) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'model_name'"):
        service(api, ROWS[0], model="x")
    assert not api.requests
