"""A provider's config, before anything is loaded or sent."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from mnemotrace.embedders import build_embedder
from mnemotrace.embedders.providers import base, local
from mnemotrace.embedders.providers.make import make, remake
from mnemotrace.embedders.providers.settings import Settings
from mnemotrace.embedders.providers.table import PROVIDERS
from mnemotrace.embedders.resolve import NAMES, resolve_embedder
from mnemotrace.embedders.service import EmbeddingService
from mnemotrace.errors import ConfigurationError, EmbedderError

NEEDED: dict[str, dict[str, Any]] = {
    "azure": {"deployment_id": "d", "api_base": "https://r.openai.azure.com"},
    "google-vertex": {"project_id": "p"},
    "watsonx": {"url": "https://us-south.ml.cloud.ibm.com", "project_id": "p"},
}
"""What a provider cannot do without, beside its key."""

SECRET = "sk-very-secret"

SEEDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # key, common model, names printed in its example
    ("openai", "text-embedding-3-small", ("model_name", "api_key")),
    ("ollama", "mxbai-embed-large", ("model_name", "url")),
    ("azure", "", ("deployment_id", "api_key", "api_base", "api_version")),
    ("google-generativeai", "gemini-embedding-001", ("model_name", "api_key")),
    ("google-vertex", "gemini-embedding-001", ("model_name", "project_id", "location")),
    ("cohere", "embed-english-v3.0", ("model_name", "api_key")),
    ("voyageai", "voyage-3", ("model", "api_key")),
    ("amazon-bedrock", "amazon.titan-embed-text-v1", ("model_name",)),
    ("huggingface", "sentence-transformers/all-MiniLM-L6-v2", ("model_name",)),
    ("jina", "jina-embeddings-v2-base-en", ("model_name", "api_key")),
    ("watsonx", "ibm/slate-30m-english-rtrvr", ("model_id", "api_key", "project_id", "url")),
    ("sentence-transformer", "all-MiniLM-L6-v2", ("model_name",)),
)


def settings(key: str, config: dict[str, Any], *, from_store: bool = False) -> Settings:
    return Settings(key, PROVIDERS[key], config, from_store=from_store)


@pytest.mark.parametrize(("key", "model", "names"), SEEDS, ids=[row[0] for row in SEEDS])
def test_names_and_models_are_those_of_the_seeds(
    key: str, model: str, names: tuple[str, ...]
) -> None:
    assert set(names) <= set(PROVIDERS[key].options)
    assert settings(key, {}).model == model


def test_the_thirteen_keys_of_the_seeds_are_all_there() -> None:
    assert {row[0] for row in SEEDS} | {"custom"} == set(NAMES) - {"bundled", "wordllama", "e5"}


@pytest.mark.parametrize(
    ("key", "wrong", "near"),
    [
        ("openai", "model", "model_name"),
        ("openai", "apikey", "api_key"),
        ("openai", "dimension", "dimensions"),
        ("ollama", "urls", "url"),
        ("azure", "deployment", "deployment_id"),
        ("google-vertex", "project", "project_id"),
        ("voyageai", "model_name", "model"),
        ("watsonx", "model", "model_id"),
        ("amazon-bedrock", "region", "region_name"),
        ("huggingface", "models", "model_name"),
        ("sentence-transformer", "normalize", "normalize_embeddings"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest(key: str, wrong: str, near: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        settings(key, {wrong: "x"})

    assert f"unknown here: {wrong}. Did you mean '{near}'?" in str(raised.value)
    assert key in str(raised.value)


@pytest.mark.parametrize(
    ("key", "config", "needed", "variable"),
    [
        ("azure", {"api_base": "https://x"}, '"deployment_id"', None),
        ("azure", {"deployment_id": "d"}, '"api_base"', "AZURE_API_BASE"),
        ("google-vertex", {}, '"project_id"', "GOOGLE_CLOUD_PROJECT"),
        ("watsonx", {"project_id": "p"}, '"url"', "WATSONX_URL"),
        ("watsonx", {"url": "https://x"}, '"project_id" or "space_id"', "WATSONX_PROJECT_ID"),
    ],
)
def test_a_missing_value_is_named_with_its_variable(
    key: str, config: dict[str, Any], needed: str, variable: str | None
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        resolve_embedder({"provider": key, "config": config})

    assert f'"{key}" needs config {needed}' in str(raised.value)
    assert variable is None or variable in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("model_name", "", "a text"),
        ("model_name", 3, "a text"),
        ("dimensions", 0, "above 0"),
        ("dimensions", "8", "above 0"),
        ("dimensions", True, "above 0"),
        ("max_batch", 0, "above 0"),
        ("max_retries", -1, "from 0 on"),
        ("timeout", 0, "seconds above 0"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(ConfigurationError, match=rf'config "{name}".*{wanted}'):
        settings("openai", {name: value})


def test_a_secret_of_the_wrong_kind_is_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="must be a text, not a list") as raised:
        settings("openai", {"api_key": [SECRET]})

    assert SECRET not in str(raised.value)


def test_none_is_as_good_as_left_out() -> None:
    given = settings("openai", {"model_name": None, "api_key": None, "timeout": None})

    assert given.model == "text-embedding-3-small"
    assert given.recorded() == {"model_name": "text-embedding-3-small"}


@pytest.mark.parametrize("key", [key for key, row in PROVIDERS.items() if row.key])
async def test_a_missing_key_is_told_at_first_use_and_names_its_variable(key: str) -> None:
    service = resolve_embedder({"provider": key, "config": NEEDED.get(key, {})})

    with pytest.raises(EmbedderError, match="needs a key") as raised:
        await service.embed_documents(["one"])

    assert PROVIDERS[key].options["api_key"].variables[0] in str(raised.value)
    assert service.model in str(raised.value)


@pytest.mark.parametrize("key", [key for key, row in PROVIDERS.items() if row.key])
def test_a_key_may_be_set_after_the_embedder_was_made(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(key, NEEDED.get(key, {}))
    monkeypatch.setenv(PROVIDERS[key].options["api_key"].variables[0], SECRET)

    assert given.arguments()["api_key"] == SECRET


def test_the_config_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of the environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://of.the.environment")

    found = settings("openai", {"api_key": SECRET, "api_base": "https://mine"}).arguments()

    assert found == {"api_key": SECRET, "api_base": "https://mine"}


def test_a_server_of_the_users_own_needs_no_openai_key() -> None:
    found = settings("openai", {"api_base": "http://localhost:8080/v1"}).arguments()

    assert found["api_key"] == "not-needed"


@pytest.mark.parametrize("key", PROVIDERS)
def test_a_manifest_gets_no_secret(key: str) -> None:
    options = PROVIDERS[key].options
    config = dict(NEEDED.get(key, {})) | {name: SECRET for name, o in options.items() if o.secret}

    kept = json.dumps(settings(key, config).recorded())

    assert SECRET not in kept
    for name in NEEDED.get(key, {}):
        assert name in kept


def test_an_address_is_recorded_without_password_and_query() -> None:
    address = f"https://me:{SECRET}@models.example:8443/v1?key={SECRET}"

    assert settings("openai", {"api_base": address}).recorded() == {
        "model_name": "text-embedding-3-small",
        "api_base": "https://models.example:8443/v1",
    }


@pytest.mark.parametrize("key", PROVIDERS)
def test_what_was_recorded_makes_the_same_embedder_again(key: str) -> None:
    config = dict(NEEDED.get(key, {})) | {"max_batch": 2}
    if "dimensions" in PROVIDERS[key].options:
        config["dimensions"] = 8
    recorded = settings(key, config).recorded()

    again = remake(key, json.loads(json.dumps(recorded)))

    assert again.settings.recorded() == recorded
    assert (again.provider, again.model_name) == (key, settings(key, config).model)


@pytest.mark.parametrize(
    ("key", "address", "trusted"),
    [
        ("openai", "https://api.openai.com/v1", True),
        ("openai", "http://127.0.0.1:8080/v1", True),
        ("openai", "http://localhost:8080/v1", True),
        ("openai", "https://thief.example/v1", False),
        ("openai", "https://api.openai.com.thief.example/v1", False),
        ("azure", "https://ours.openai.azure.com", True),
        ("azure", "https://openai.azure.com.thief.example", False),
        ("watsonx", "https://us-south.ml.cloud.ibm.com", True),
        ("watsonx", "https://cloud.ibm.com@thief.example", False),
        ("google-vertex", "https://us-central1-aiplatform.googleapis.com", True),
        ("google-vertex", "https://thief.example", False),
        ("amazon-bedrock", "https://thief.example", False),
    ],
)
def test_a_store_cannot_lead_a_key_to_a_strange_address(
    key: str, address: str, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PROVIDERS[key]
    if row.key:
        monkeypatch.setenv(row.options[row.key].variables[0], SECRET)
    config = NEEDED.get(key, {}) | {str(row.address): address}

    assert settings(key, config).arguments()  # the user's own words
    if trusted:
        assert settings(key, config, from_store=True).arguments()
    else:
        with pytest.raises(EmbedderError, match="nothing was sent there"):
            settings(key, config, from_store=True).arguments()


def test_an_address_that_the_environment_names_too_is_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
    config = {"api_base": "https://gateway.example/v1"}

    assert settings("openai", config, from_store=True).arguments()["api_key"] == SECRET


def test_an_ollama_server_anywhere_is_found_again() -> None:
    config = {"url": "http://models.example:11434"}

    assert settings("ollama", config, from_store=True).arguments()["api_base"] == config["url"]


def test_no_secret_is_shown_by_an_embedder() -> None:
    embedder = make("openai", {"api_key": SECRET})

    assert repr(embedder) == "HostedEmbedder('openai/text-embedding-3-small')"
    assert embedder.settings.censor(f"wrong key {SECRET}!") == "wrong key ***!"


@pytest.mark.parametrize("key", [key for key, row in PROVIDERS.items() if row.module])
def test_a_library_that_is_not_installed_gives_the_install_line(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PROVIDERS[key]
    monkeypatch.setattr(base, "_is_installed", lambda module: module != row.module)

    with pytest.raises(ImportError) as raised:
        resolve_embedder({"provider": key, "config": NEEDED.get(key, {})})

    assert f'Run: pip install "mnemotrace[{row.extra}]"' in str(raised.value)
    assert str(row.module) in str(raised.value)


async def test_a_store_opens_without_the_library_of_its_embedder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "_is_installed", lambda module: False)
    recorded = {"provider": "huggingface", "model": "m", "config": {"model_name": "m"}}

    service = resolve_embedder(None, recorded)

    with pytest.raises(EmbedderError, match=r"mnemotrace\[huggingface\]"):
        await service.embed_documents(["one"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, "not from None"),
        (len, "not from a builtin_function_or_method"),
        ({"provider": "opnai"}, "did you mean 'openai'"),
        ({"provider": "openai", "config": {"model": "m"}}, "Did you mean 'model_name'"),
    ],
)
def test_build_embedder_says_what_it_cannot_build(spec: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_embedder(spec)


def test_build_embedder_gives_what_memory_takes() -> None:
    embedder = build_embedder({"provider": "openai", "config": {"dimensions": 8}})
    service = resolve_embedder(embedder)

    assert service.embedder is embedder
    assert (service.name, service.dimension) == ("openai/text-embedding-3-small", 8)


class SentenceTransformer:
    """What the library of this name shows of itself to us, in version 5.

    The real one needs torch and a downloaded model, so no test here runs it.
    """

    made: ClassVar[list[tuple[str, str | None]]] = []
    calls: ClassVar[list[tuple[str, list[str], dict[str, Any]]]] = []

    def __init__(self, name: str, device: str | None = None) -> None:
        self.made.append((name, device))

    def _vectors(self, method: str, texts: list[str], options: dict[str, Any]) -> Any:
        self.calls.append((method, texts, options))
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)

    def encode_document(self, texts: list[str], **options: Any) -> Any:
        return self._vectors("document", texts, options)

    def encode_query(self, texts: list[str], **options: Any) -> Any:
        return self._vectors("query", texts, options)


class OldSentenceTransformer(SentenceTransformer):
    """The same before version 5: there is only `encode`."""

    encode_document = None  # type: ignore[assignment]
    encode_query = None  # type: ignore[assignment]

    def encode(self, texts: list[str], **options: Any) -> Any:
        return self._vectors("any", texts, options)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that stands for the library sentence_transformers."""
    module = ModuleType("sentence_transformers")
    module.__spec__ = ModuleSpec("sentence_transformers", None)
    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setattr(local, "_loaded", {})
    monkeypatch.setattr(SentenceTransformer, "made", [])
    monkeypatch.setattr(SentenceTransformer, "calls", [])
    return module


@pytest.mark.parametrize(
    ("key", "model"),
    [
        ("huggingface", "sentence-transformers/all-MiniLM-L6-v2"),
        ("sentence-transformer", "all-MiniLM-L6-v2"),
    ],
)
async def test_a_local_model_is_loaded_once_and_asked_for_each_side(
    library: ModuleType, key: str, model: str
) -> None:
    service = resolve_embedder({"provider": key, "config": {"model_name": model}})
    assert not SentenceTransformer.made

    documents = await service.embed_documents(["one", "three"])
    await service.embed_queries(["two"])
    await resolve_embedder(key).embed_documents(["again"])

    assert documents.tolist() == [[3.0, 1.0], [5.0, 1.0]]
    assert SentenceTransformer.made == [(model, None)]
    assert [call[:2] for call in SentenceTransformer.calls] == [
        ("document", ["one", "three"]),
        ("query", ["two"]),
        ("document", ["again"]),
    ]
    assert SentenceTransformer.calls[0][2] == {
        "batch_size": 32,
        "convert_to_numpy": True,
        "normalize_embeddings": False,
        "show_progress_bar": False,
    }


async def test_a_local_model_takes_its_options(library: ModuleType) -> None:
    config = {
        "device": "cpu",
        "normalize_embeddings": True,
        "max_batch": 4,
        "max_characters": 10,
    }
    service = resolve_embedder({"provider": "sentence-transformer", "config": config})

    await service.embed_documents(["a text of more than ten characters"])

    assert SentenceTransformer.made == [("all-MiniLM-L6-v2", "cpu")]
    ((_, texts, options),) = SentenceTransformer.calls
    assert "".join(texts) == "a text of more than ten characters"
    assert all(len(text) <= 10 for text in texts)
    assert (options["batch_size"], options["normalize_embeddings"]) == (4, True)


async def test_a_library_from_before_version_5_is_asked_in_its_way(library: ModuleType) -> None:
    library.SentenceTransformer = OldSentenceTransformer  # type: ignore[attr-defined]
    service: EmbeddingService = resolve_embedder("sentence-transformer")

    await service.embed_documents(["one"])
    await service.embed_queries(["two"])

    assert [call[:2] for call in SentenceTransformer.calls] == [
        ("any", ["one"]),
        ("any", ["two"]),
    ]


@pytest.mark.slow
def test_making_an_embedder_loads_no_provider_library() -> None:
    code = (
        "import sys; from mnemotrace.embedders import build_embedder\n"
        f"for key in {sorted(key for key, row in PROVIDERS.items() if row.prefix)}:\n"
        f"    build_embedder({{'provider': key, 'config': {NEEDED!r}.get(key, {{}})}})\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint({"litellm", "boto3", "httpx", "openai", "aiohttp", "torch"})
