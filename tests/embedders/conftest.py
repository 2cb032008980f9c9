"""The server that stands for every hosted provider, and what leads requests to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mnemotrace.embedders.providers import hosted

from .server import Api, provider_server


@pytest.fixture(scope="module")
def _api() -> Iterator[Api]:
    with provider_server() as api:
        yield api


@pytest.fixture
def api(_api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Api:
    """The server, with nothing seen yet; keys and addresses are in the environment."""
    monkeypatch.setattr(hosted, "BACKOFF", 0.001)
    _api.requests, _api.faults, _api.headers = [], [], {}
    _api.delay, _api.show_delay, _api.together = 0.0, 0.0, 0
    address = _api.address
    for name, value in {
        "OPENAI_BASE_URL": f"{address}/v1",
        "GEMINI_API_BASE": f"{address}/v1beta",
        "VERTEXAI_API_BASE": address,
        "COHERE_API_BASE": address,
        "VOYAGE_API_BASE": f"{address}/v1",
        "JINA_AI_API_BASE": f"{address}/v1",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": address,
        "WATSONX_IAM_URL": f"{address}/iam",
        "OPENAI_API_KEY": "key-of-openai",
        "GOOGLE_API_KEY": "key-of-google",
        "COHERE_API_KEY": "key-of-cohere",
        "VOYAGE_API_KEY": "key-of-voyage",
        "JINA_API_KEY": "key-of-jina",
        "AWS_ACCESS_KEY_ID": "key-of-aws",
        "AWS_SECRET_ACCESS_KEY": "secret-of-aws",
        "AWS_REGION": "eu-central-1",
        "GOOGLE_APPLICATION_CREDENTIALS": str(_service_account(tmp_path, address)),
    }.items():
        monkeypatch.setenv(name, value)
    return _api


def _service_account(folder: Path, address: str) -> Path:
    """Write the credentials of a Google service account whose tokens this server gives out."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / "service-account.json"
    account = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": "memory@p.example",
        "client_id": "1",
        "token_uri": f"{address}/token",
    }
    path.write_text(json.dumps(account), encoding="utf-8")
    return path
