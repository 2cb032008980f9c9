from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from mnemotrace import tokens
from mnemotrace.tokens import count_tokens, estimate_tokens


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_encodings", {})
    monkeypatch.setattr(tokens, "_warned", False)
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    # tiktoken keeps what it has loaded, whatever folder it came from.
    import tiktoken.registry

    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})


@pytest.mark.parametrize(
    ("text", "model", "count"),
    [
        ("", None, 0),
        ("hello world", None, 2),
        ("hello world", "gpt-4o-mini", 2),
        ("안녕하세요 세계", "gpt-4o", 3),
        ("안녕하세요 세계", "openai/gpt-4o", 3),
        ("안녕하세요 세계", "gpt-3.5-turbo", 9),
        ("안녕하세요 세계", "ollama/llama3.2", 3),
        ("안녕하세요 세계", "no such model", 3),
        ("hello world", "davinci", 2),
        ("<|endoftext|>", None, 7),
    ],
)
def test_tokens_are_counted_by_the_model_s_table(text: str, model: str | None, count: int) -> None:
    assert count_tokens(text, model) == count


def test_counting_needs_no_network_and_leaves_the_environment_alone(nothing_loaded: None) -> None:
    before = dict(os.environ)

    assert count_tokens("hello world") == 2
    assert dict(os.environ) == before


def test_a_folder_chosen_by_the_user_is_kept_and_its_lack_only_warned_of_once(
    nothing_loaded: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    with caplog.at_level(logging.WARNING, logger="mnemotrace"):
        counts = [count_tokens("hello world", model) for model in (None, None, "gpt-3.5-turbo")]

    assert os.environ["TIKTOKEN_CACHE_DIR"] == str(tmp_path)
    assert counts == [estimate_tokens("hello world")] * 3
    assert ["TIKTOKEN_CACHE_DIR" in record.getMessage() for record in caplog.records] == [True]


def test_without_litellm_s_tables_tokens_are_estimated(
    nothing_loaded: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tokens, "find_spec", lambda name: None)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))

    assert count_tokens("hello world") == estimate_tokens("hello world")


@pytest.mark.parametrize(
    "text",
    [
        "The team decided on Tuesday to move the billing database to PostgreSQL before March.",
        "미나는 매운 음식을 좋아하고 회의는 오후 세 시에 시작한다고 말했다.",
        "研究员每周一下午三点在会议室开会，讨论项目的预算和进度。",
        "Исследователи встречаются каждый понедельник в три часа.",
        '[{"id": 1, "value": 3.14}, {"id": 2, "value": 2.72}]',
        "😀👍🏽🇰🇷👩‍💻",
    ],
)
def test_the_estimate_is_near_and_rather_too_high(text: str) -> None:
    assert 0.9 <= estimate_tokens(text) / count_tokens(text) <= 2.2


@pytest.mark.parametrize("text", ["a", " ", "가", "😀", "\ud800", "1", "\n"])
def test_a_long_run_of_any_character_is_counted(text: str) -> None:
    assert count_tokens(text * 100_000) > 0
    assert estimate_tokens(text * 100_000) > 0
