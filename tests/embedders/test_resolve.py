from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from mnemotrace.embedders import wordllama
from mnemotrace.embedders.resolve import resolve_embedder
from mnemotrace.embedders.service import EmbeddingService
from mnemotrace.errors import ConfigurationError
from mnemotrace.testing import FakeEmbedder


def embed(texts: list[str]) -> list[list[float]]:
    return [[1.0, 2.0] for _ in texts]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (None, "bundled/universal-sentence-encoder-multilingual-3-trained@"),
        ("bundled", "bundled/universal-sentence-encoder-multilingual-3-trained@"),
        ({"provider": "bundled"}, "bundled/"),
        ({"provider": "bundled", "config": {}}, "bundled/"),
        ({"provider": "bundled", "config": None}, "bundled/"),
        ("wordllama", "wordllama/l2_supercat-256@"),
        ({"provider": "wordllama"}, "wordllama/"),
        (embed, "custom/"),
        ({"provider": "custom", "config": {"embedding_callable": embed}}, "custom/"),
        (FakeEmbedder(), "custom/mnemotrace.testing.embedder.FakeEmbedder"),
    ],
)
def test_each_specification_names_its_embedder(spec: Any, name: str) -> None:
    assert resolve_embedder(spec).name.startswith(name)


def test_a_service_is_returned_as_it_is() -> None:
    service = EmbeddingService(embed)

    assert resolve_embedder(service) is service


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "bundled/"),
        ({"OPENAI_API_KEY": ""}, "bundled/"),
        ({"OPENAI_API_KEY": "sk-x"}, "openai/text-embedding-3-small"),
        ({"COHERE_API_KEY": "x", "OPENAI_BASE_URL": "http://localhost"}, "bundled/"),
    ],
)
def test_a_new_store_uses_openai_where_there_is_a_key_for_it(
    variables: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)

    assert resolve_embedder(None).name.startswith(name)


def test_an_existing_store_keeps_its_embedder_when_a_key_appears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")

    assert resolve_embedder(None, {"provider": "bundled", "dimension": 1}).provider == "bundled"


def test_a_provider_is_made_again_from_what_a_store_recorded() -> None:
    recorded = {
        "provider": "openai",
        "model": "text-embedding-3-large",
        "config": {"model_name": "text-embedding-3-large", "dimensions": 256},
    }

    service = resolve_embedder(None, recorded)

    assert (service.name, service.dimension) == ("openai/text-embedding-3-large", 256)


def test_a_providers_key_alone_takes_its_defaults() -> None:
    assert resolve_embedder("voyageai").name == "voyageai/voyage-3"


@pytest.mark.parametrize(
    ("provider", "near"),
    [("opnai", "openai"), ("OpenAI", "openai"), ("bundle", "bundled"), ("voyage", "voyageai")],
)
@pytest.mark.parametrize("form", [str, lambda name: {"provider": name}])
def test_an_unknown_provider_gets_the_nearest_name(provider: str, near: str, form: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean '{near}'"):
        resolve_embedder(form(provider))


def test_a_name_that_is_near_none_gets_the_list_and_no_guess() -> None:
    with pytest.raises(ConfigurationError, match=r"provider 'zzz'\. There are bundled, ") as told:
        resolve_embedder("zzz")
    assert "did you mean" not in str(told.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "must look like"),
        ({"config": {}}, "must look like"),
        ({"provider": "custom", "config": {}, "model": "x"}, "must look like"),
        ({"provider": "custom"}, "embedding_callable"),
        ({"provider": "custom", "config": {"callable": embed}}, "unknown here: callable"),
        ({"provider": "custom", "config": [1]}, "must be a dict, not a list"),
        ({"provider": "bundled", "config": {"threads": 2}}, "unknown here: threads"),
        ({"provider": None}, "unknown embedder provider None"),
        (3, "an int without an `embed`"),
    ],
)
def test_a_wrong_specification_says_what_is_wrong(spec: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolve_embedder(spec)


@pytest.mark.parametrize("provider", ["bundled", "wordllama"])
def test_a_store_is_opened_with_the_offline_embedder_it_was_written_with(provider: str) -> None:
    assert resolve_embedder(None, {"provider": provider, "dimension": 1}).provider == provider


def test_an_explicit_embedder_goes_before_the_recorded_one() -> None:
    assert resolve_embedder(embed, {"provider": "bundled"}).provider == "custom"


@pytest.mark.parametrize("provider", ["custom", "openai"])
def test_a_store_of_a_custom_embedder_asks_for_it_by_name(provider: str) -> None:
    recorded = {"provider": provider, "model": "shop.vectors.embed", "dimension": 3}

    with pytest.raises(
        ConfigurationError, match=rf"{provider}/shop\.vectors\.embed.*pass it again"
    ):
        resolve_embedder(None, recorded)


def test_wordllama_without_its_package_gives_the_install_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        wordllama, "find_spec", lambda name: None if name == "wordllama" else find_spec(name)
    )

    with pytest.raises(ImportError, match=r'pip install "mnemotrace\[wordllama\]"'):
        resolve_embedder("wordllama")
