"""Providers in a whole memory: the examples of the seeds as printed, and stores opened again.

The examples are CrewAI's, with only the import changed (`crewai` becomes `mnemotrace`; its
`crewai.rag.embeddings.factory` is `mnemotrace.embedders`). Three things are changed so that they
reach the server on this machine: the host of an address that is printed, the dots of a vector that
is printed as `[0.1, 0.2, ...]`, and the comments, which are in English or left out.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mnemotrace
from mnemotrace import Memory
from mnemotrace.embedders.fingerprint import FIXED_TEXTS
from mnemotrace.errors import (
    ConfigurationError,
    EmbedderError,
    EmbedderMismatchError,
    SaveError,
)

from .server import Api, vector
from .test_provider_settings import library  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.slow,
    # litellm keeps connections and a logging task on mnemotrace's own loop.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Items? .* (is|are) using the .ReadOnly. qualifier:UserWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FACT = "We decided to use PostgreSQL."
GIVEN: dict[str, Any] = {"scope": "/shop", "categories": ["database"], "importance": 0.7}
"""With these a save asks no language model."""

EXAMPLES = {
    "openai": """
memory = Memory(embedder={"provider": "openai", "config": {"model_name": "text-embedding-3-small"}})
""",
    "openai, by a callable": """
from crewai import Memory
from crewai.rag.embeddings.factory import build_embedder
embedder = build_embedder({"provider": "openai", "config": {"model_name": "text-embedding-3-small"}})
memory = Memory(embedder=embedder)
""",
    "ollama, by a callable": """
from crewai.rag.embeddings.factory import build_embedder
embedder = build_embedder({"provider": "ollama", "config": {"model_name": "mxbai-embed-large"}})
memory = Memory(embedder=embedder)
""",
    "openai, the default": """
memory = Memory(embedder={
    "provider": "openai",
    "config": {
        "model_name": "text-embedding-3-small",
        # "api_key": "sk-...",  # or set the environment variable OPENAI_API_KEY
    },
})
""",
    "ollama": """
memory = Memory(embedder={
    "provider": "ollama",
    "config": {
        "model_name": "mxbai-embed-large",
        "url": "http://localhost:11434/api/embeddings",
    },
})
""",
    "azure": """
memory = Memory(embedder={
    "provider": "azure",
    "config": {
        "deployment_id": "your-embedding-deployment",
        "api_key": "your-azure-api-key",
        "api_base": "https://your-resource.openai.azure.com",
        "api_version": "2024-02-01",
    },
})
""",
    "google-generativeai": """
memory = Memory(embedder={
    "provider": "google-generativeai",
    "config": {
        "model_name": "gemini-embedding-001",
        # "api_key": "...",  # or set the environment variable GOOGLE_API_KEY
    },
})
""",
    "google-vertex": """
memory = Memory(embedder={
    "provider": "google-vertex",
    "config": {
        "model_name": "gemini-embedding-001",
        "project_id": "your-gcp-project-id",
        "location": "us-central1",
    },
})
""",
    "cohere": """
memory = Memory(embedder={
    "provider": "cohere",
    "config": {
        "model_name": "embed-english-v3.0",
        # "api_key": "...",  # or set the environment variable COHERE_API_KEY
    },
})
""",
    "voyageai": """
memory = Memory(embedder={
    "provider": "voyageai",
    "config": {
        "model": "voyage-3",
        # "api_key": "...",  # or set the environment variable VOYAGE_API_KEY
    },
})
""",
    "amazon-bedrock": """
memory = Memory(embedder={
    "provider": "amazon-bedrock",
    "config": {
        "model_name": "amazon.titan-embed-text-v1",
        # uses the default AWS credentials (boto3 session)
    },
})
""",
    "huggingface": """
memory = Memory(embedder={
    "provider": "huggingface",
    "config": {
        "model_name": "sentence-transformers/all-MiniLM-L6-v2",
    },
})
""",
    "jina": """
memory = Memory(embedder={
    "provider": "jina",
    "config": {
        "model_name": "jina-embeddings-v2-base-en",
        # "api_key": "...",  # or set the environment variable JINA_API_KEY
    },
})
""",
    "watsonx": """
memory = Memory(embedder={
    "provider": "watsonx",
    "config": {
        "model_id": "ibm/slate-30m-english-rtrvr",
        "api_key": "your-watsonx-api-key",
        "project_id": "your-project-id",
        "url": "https://us-south.ml.cloud.ibm.com",
    },
})
""",
    "custom": """
def my_embedder(texts: list[str]) -> list[list[float]]:
    # your embedding logic
    return [[0.1, 0.2, ...] for _ in texts]

memory = Memory(embedder=my_embedder)
""",
    "all private": """
memory = Memory(
    llm="ollama/llama3.2",
    embedder={"provider": "ollama", "config": {"model_name": "mxbai-embed-large"}},
)
""",
}

PRINTED_HOSTS = (
    "http://localhost:11434",
    "https://your-resource.openai.azure.com",
    "https://us-south.ml.cloud.ibm.com",
)

PATHS = {
    "openai": "/v1/embeddings",
    "ollama": "/api/embed",
    "all private": "/api/embed",
    "azure": "/openai/deployments/your-embedding-deployment/embeddings",
    "google-generativeai": "/v1beta/models/gemini-embedding-001:batchEmbedContents",
    "google-vertex": "/v1/projects/your-gcp-project-id/locations/us-central1/publishers/google"
    "/models/gemini-embedding-001:predict",
    "cohere": "/v2/embed",
    "voyageai": "/v1/embeddings",
    "amazon-bedrock": "/model/amazon.titan-embed-text-v1/invoke",
    "jina": "/v1/embeddings",
    "watsonx": "/ml/v1/text/embeddings",
}


@pytest.fixture
def opened() -> Iterator[list[Memory]]:
    """Memories to be closed at the end."""
    memories: list[Memory] = []
    yield memories
    for memory in memories:
        memory.close()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_printed_example_works(
    api: Api,
    name: str,
    opened: list[Memory],
    monkeypatch: pytest.MonkeyPatch,
    library: Any,  # noqa: F811
) -> None:
    monkeypatch.setenv("OLLAMA_API_BASE", api.address)
    code = EXAMPLES[name].replace("from crewai.rag.embeddings.factory", "from mnemotrace.embedders")
    code = code.replace("from crewai", "from mnemotrace").replace("0.2, ...", "0.2, 0.3")
    for host in PRINTED_HOSTS:
        code = code.replace(host, api.address)
    names: dict[str, Any] = {"Memory": Memory}

    exec(compile(code, "printed example", "exec"), names)  # noqa: S102  the text above

    memory = names["memory"]
    opened.append(memory)
    memory.remember(FACT, **GIVEN)
    (match,) = memory.recall("What database did we choose?", limit=1, depth="shallow")
    assert match.record.content == FACT
    path = PATHS.get(name.partition(",")[0])
    assert {request.path for request in api.embeddings()} == ({path} if path else set())


def manifest(folder: Path) -> str:
    return (folder / "manifest.json").read_text(encoding="utf-8")


CONFIGS: dict[str, dict[str, Any]] = {
    "openai": {"model_name": "text-embedding-3-large", "dimensions": 4, "api_key": "sk-secret"},
    "ollama": {"url": "{address}/api/embeddings"},
    "azure": {"deployment_id": "ours", "api_key": "sk-secret", "api_base": "{address}"},
    "google-generativeai": {"api_key": "sk-secret"},
    "google-vertex": {"project_id": "p"},
    "cohere": {"api_key": "sk-secret"},
    "voyageai": {"model": "voyage-3.5", "api_key": "sk-secret"},
    "amazon-bedrock": {"aws_access_key_id": "id", "aws_secret_access_key": "sk-secret"},
    "huggingface": {"normalize_embeddings": True},
    "jina": {"model_name": "jina-embeddings-v3", "api_key": "sk-secret"},
    "watsonx": {"api_key": "sk-secret", "url": "{address}", "project_id": "p"},
    "sentence-transformer": {"device": "cpu"},
}


@pytest.mark.parametrize("key", CONFIGS)
def test_a_store_is_opened_again_without_naming_its_embedder(
    api: Api,
    key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: Any,  # noqa: F811
) -> None:
    config = {
        name: value.format(address=api.address) if isinstance(value, str) else value
        for name, value in CONFIGS[key].items()
    }
    storage = tmp_path / "store"
    with Memory(None, storage, {"provider": key, "config": config}) as memory:
        memory.remember(FACT, **GIVEN)
        kind = repr(memory)
    for path in storage.rglob("*"):
        assert not path.is_file() or b"sk-secret" not in path.read_bytes(), path
    # A machine where the keys are in the environment, and another one than then.
    monkeypatch.setenv("AZURE_API_KEY", "key-of-azure")
    monkeypatch.setenv("WATSONX_API_KEY", "key-of-watsonx")
    before = len(api.requests)

    with Memory(None, storage) as memory:
        assert repr(memory) == kind
        (match,) = memory.recall("database", limit=1, depth="shallow")

    assert match.record.content == FACT
    local = key in ("huggingface", "sentence-transformer")
    assert len({request.path for request in api.embeddings()}) == (0 if local else 1)
    # Opening costs one text, by which the embedder is recognised, and the recall one.
    asked = [request for request in api.requests[before:] if request in api.embeddings()]
    assert sum(len(request.texts) for request in asked) == (0 if local else 2)
    assert "sk-secret" not in repr(asked)


def test_a_store_whose_key_is_gone_can_still_be_read(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(None, tmp_path / "store") as memory:
        memory.remember(FACT, **GIVEN)
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")

    with Memory(None, tmp_path / "store") as memory:
        assert [record.content for record in memory.list_records()] == [FACT]
        with pytest.raises(EmbedderError, match="needs a key: set the environment variable OPENAI"):
            memory.recall("database")


def test_a_store_that_was_tampered_with_gets_no_key(api: Api, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    config = {"api_base": f"{api.address}/v1"}
    with Memory(None, folder, {"provider": "openai", "config": config}) as memory:
        memory.remember(FACT, **GIVEN)
    before = len(api.requests)
    text = manifest(folder).replace(f"{api.address}/v1", "https://thief.example/v1")
    (folder / "manifest.json").write_text(text, encoding="utf-8")

    with (
        Memory(None, folder) as memory,
        pytest.raises(EmbedderError, match=r"https://thief\.example/v1, which is not OpenAI's own"),
    ):
        memory.recall("database")

    assert len(api.requests) == before


def test_a_new_store_takes_openai_where_there_is_a_key(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(None, tmp_path / "with") as memory:
        memory.remember(FACT, **GIVEN)
    monkeypatch.delenv("OPENAI_API_KEY")
    with Memory(None, tmp_path / "without") as memory:
        memory.remember(FACT, **GIVEN)

    assert '"provider": "openai"' in manifest(tmp_path / "with")
    assert '"model": "text-embedding-3-small"' in manifest(tmp_path / "with")
    assert '"provider": "bundled"' in manifest(tmp_path / "without")
    assert '"config"' not in manifest(tmp_path / "without")


def test_another_model_of_a_provider_is_refused(api: Api, tmp_path: Path) -> None:
    with Memory(None, tmp_path / "store", "openai") as memory:
        memory.remember(FACT, **GIVEN)
    other = {"provider": "openai", "config": {"model_name": "text-embedding-3-large"}}

    with (
        Memory(None, tmp_path / "store", other) as memory,
        pytest.raises(EmbedderMismatchError, match="openai/text-embedding-3-small"),
    ):
        memory.recall("database")


def test_a_store_moves_to_a_provider_and_remembers_its_config(api: Api, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Memory(None, folder, "bundled") as memory:
        memory.remember(FACT, **GIVEN)

    mnemotrace.reindex(folder, {"provider": "voyageai", "config": {"model": "voyage-3.5"}})

    with Memory(None, folder) as memory:
        assert "voyageai/voyage-3.5" in repr(memory)
        assert memory.recall("database", depth="shallow")[0].record.content == FACT
    assert '"model": "voyage-3.5"' in manifest(folder)


def test_documents_and_queries_are_told_apart_all_the_way(api: Api, tmp_path: Path) -> None:
    with Memory(None, tmp_path / "store", "cohere") as memory:
        memory.remember(FACT, **GIVEN)
        memory.recall("Which database?", depth="shallow")

    kinds = {text: sent.body["input_type"] for sent in api.requests for text in sent.texts}
    assert kinds.pop("Which database?") == "search_query"
    assert kinds[FACT] == "search_document"
    assert set(kinds) == {FACT, *FIXED_TEXTS}
    assert set(kinds.values()) == {"search_document"}


def test_a_save_that_the_provider_refuses_stores_nothing(api: Api, tmp_path: Path) -> None:
    with Memory(None, tmp_path / "store", "jina", save_attempts=1) as memory:
        memory.remember(FACT, **GIVEN)
        for fault in ("one short", "another length", "none", 401, 400):
            api.faults = [fault]
            with pytest.raises(EmbedderError):
                memory.remember(f"Another fact, {fault}", **GIVEN)
        assert [record.content for record in memory.list_records()] == [FACT]


def test_a_background_save_waits_until_the_key_is_right(api: Api, tmp_path: Path) -> None:
    with Memory(None, tmp_path / "store", "voyageai") as memory:
        memory.remember(FACT, **GIVEN)
        api.faults = [503, 503, 401]
        receipt = memory.remember_many(["The kiln is on.", "The glaze is blue."], **GIVEN)
        with pytest.raises(SaveError, match="VOYAGE_API_KEY"):
            receipt.wait(30)

    # Closing tries once more what had failed.
    with Memory(None, tmp_path / "store") as memory:
        assert len(memory.list_records()) == 3


def test_a_wrong_example_is_refused_when_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'model_name'"):
        Memory(None, tmp_path / "store", {"provider": "openai", "config": {"model": "m"}})
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").rglob("manifest*"))


def test_the_callable_can_be_called(api: Api) -> None:
    from mnemotrace.embedders import build_embedder

    embedder = build_embedder({"provider": "jina"})

    assert embedder(["one", "two"]).tolist() == [vector("one"), vector("two")]  # type: ignore[operator]
    assert len(api.requests) == 1


def test_nothing_is_sent_before_the_first_text(api: Api, tmp_path: Path) -> None:
    free = socket.socket()
    with free, Memory(None, tmp_path / "store", "openai") as memory:
        assert memory.list_records() == []
        assert memory.recall("anything") == []

    assert not api.requests
