"""The language of a text, as far as its letters tell."""

from __future__ import annotations

import pytest

from mnemotrace.language import languages


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("We decided to use PostgreSQL for the user database.", ["English"]),
        ("사용자 데이터베이스로 PostgreSQL을 쓰기로 했습니다.", ["Korean"]),
        ("Kubernetes v1.29, PostgreSQL 16 사용", ["Korean"]),
        ("我们决定使用 PostgreSQL 作为用户数据库。", ["Chinese"]),
        ("東京で会議があります。予算は五万円。会議室三。", ["Japanese"]),
        ("カタカナ", ["Japanese"]),
        ("Мы решили использовать PostgreSQL", ["Cyrillic script"]),
        ("Αποφασίσαμε", ["Greek"]),
        ("Wir haben uns für PostgreSQL entschieden", ["Latin script"]),
        ("Prefers email", ["Latin script"]),
        ("नमस्ते दुनिया", ["Devanagari script"]),
        ("ｆｕｌｌ 한국어 문장입니다", ["Korean"]),
        ("123 !? 😀", []),
        ("", []),
    ],
)
def test_the_script_names_the_language(text: str, found: list[str]) -> None:
    assert languages(text) == found


def test_a_text_in_several_languages_names_each_of_them_most_used_first() -> None:
    korean = "내일 아침에 결제 서비스를 배포합니다. " * 4
    english = "The staging server is down and we are on it. " * 2
    chinese = "我们明天开会讨论预算问题。" * 2
    assert languages(korean + english + chinese) == ["Korean", "Chinese", "English"]


def test_a_few_foreign_words_are_no_language_of_the_text() -> None:
    text = "We met in the office and talked. " * 40 + "그는 웃었다. "
    assert languages(text) == ["English"]


def test_chinese_quoted_in_japanese_is_told_apart_from_japanese_in_han() -> None:
    assert languages("会議は東京です。東京本社。大阪支社。") == ["Japanese"]
    assert languages("我们在东京开会。" * 20 + "これ。") == ["Chinese"]
