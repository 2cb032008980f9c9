"""Long texts in parts: every part within its size, cut where a reader would, nothing left out."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest

from mnemotrace.chunks import Chunk, speakers, split
from mnemotrace.tokens import count_tokens


def texts(text: str, size: int, overlap: int) -> list[str]:
    return [text[chunk.start : chunk.end] for chunk in split(text, size, overlap)]


def test_a_short_text_is_one_part() -> None:
    assert split("One. Two.\n\nThree.") == [Chunk(0, 17)]
    assert split("") == []


@pytest.mark.parametrize(
    ("size", "overlap"), [(15, 0), (100, 51), (100, -1)], ids=["small", "wide", "negative"]
)
def test_sizes_that_make_no_progress_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="no parts"):
        split("text", size, overlap)


PATHOLOGICAL = {
    "one word": "a" * 9000,
    "digits": "1234567890" * 800,
    "spaces": "x " * 5000,
    "blank lines": "\n\n\n \n" * 800 + "end",
    "korean": "가나다라 마바사. " * 900,
    "chinese without spaces": "我们决定使用" * 1200,
    "rare characters": "\U00020000\U00020001" * 400,
    "emoji": "👩‍👩‍👧‍👦" * 300,
    "one long line": "Alice: " + "It is so, and so on. " * 500,
}


@pytest.mark.parametrize("name", PATHOLOGICAL)
@pytest.mark.parametrize(("size", "overlap"), [(16, 8), (64, 20), (400, 60)])
def test_parts_keep_their_size_and_cover_the_text(name: str, size: int, overlap: int) -> None:
    check(PATHOLOGICAL[name], size, overlap)


@pytest.mark.parametrize("seed", range(10))
def test_random_texts_are_covered_too(seed: int) -> None:
    rng = random.Random(seed)
    check("".join(rng.choice("ab c.\n가。1:!😀") for _ in range(4000)), 48, 16)


def check(text: str, size: int, overlap: int) -> None:
    chunks = split(text, size, overlap)
    assert chunks[0].start == 0
    assert chunks[-1].end == len(text)
    for chunk in chunks:
        assert count_tokens(text[chunk.start : chunk.end]) <= size
    for before, after in pairwise(chunks):
        assert before.start < after.start <= before.end < after.end
        assert count_tokens(text[after.start : before.end]) <= overlap + 8  # tokens at its edges


def test_a_part_ends_at_a_paragraph_else_at_a_line_else_at_a_sentence() -> None:
    sentence = "The kiln is fired at night. "
    paragraphs = (sentence * 3).strip() + "\n\n"
    lines = (sentence * 2).strip() + "\n"
    for part in texts(paragraphs * 20, 100, 20)[:-1]:
        assert part.endswith("\n\n")
    for part in texts(lines * 20, 100, 20)[:-1]:
        assert part.endswith(".\n")
    for part in texts(sentence * 40, 100, 20)[:-1]:
        assert part.endswith(". ")
    for part in texts("가마는 밤에 굽습니다. 문은 닫혀 있습니다。" * 40, 100, 20)[:-1]:
        assert part.rstrip()[-1] in ".。"


UNSPACED = {
    "korean": "가마는밤에굽습니다그래서문은닫혀있고" * 300,
    "chinese": "我们决定使用新的数据库因为旧的太慢" * 300,
    "chinese with commas": "我们决定使用新的数据库，因为旧的太慢，" * 300,
    "numbers": "我们的价格为1,234.50元和编号2024-05-01的订单" * 200,
    "words": "아이디는user_name@example.org이고버전은v1.2.3이다" * 200,
    "japanese": "私たちは新しいデータベースを使うことに決めた" * 300,
    "one long line": "It is so and so on " * 500,
    "emoji": "가👩‍👩‍👧‍👦👍🏽é나" * 300,
}


@pytest.mark.parametrize("name", UNSPACED)
@pytest.mark.parametrize(("size", "overlap"), [(1500, 150), (200, 40), (64, 24)])
def test_a_text_without_spaces_overlaps_and_is_not_cut_in_a_number(
    name: str, size: int, overlap: int
) -> None:
    text = UNSPACED[name]
    check(text, size, overlap)
    chunks = split(text, size, overlap)
    for before, after in pairwise(chunks):
        assert count_tokens(text[after.start : before.end]) >= overlap // 4, "it repeats enough"
        for place in (before.end, after.start):
            around = text[place - 1 : place + 1]
            assert not re.fullmatch(r"[0-9A-Za-z]{2}|[0-9A-Za-z][.,@_-]|[.,@_-][0-9A-Za-z]", around)
            assert "\u200d" not in around
            assert around[-1] != "\U0001f3fd"
    if name == "chinese with commas" and size == 1500:
        assert all(text[chunk.end - 1] == "，" for chunk in chunks[:-1])


def test_a_sentence_without_spaces_is_whole_in_one_of_its_parts() -> None:
    """So that a fact across a cut is extracted: it is short, and within the overlap."""
    fact = "서버의비밀번호는74139이다"
    for lead in range(900, 960, 7):
        text = "가" * lead + fact + "나" * 900
        parts = texts(text, 1500, 150)
        assert any(fact in part for part in parts)


def test_a_number_longer_than_a_part_is_cut_all_the_same() -> None:
    text = "1234567890" * 800
    assert "".join(texts(text, 100, 0)) == text


def test_a_dialogue_is_cut_between_turns_and_the_next_part_begins_at_one() -> None:
    turns = [
        f"{'Ann' if i % 2 else 'Bo'}: the order {i} left today. It was late." for i in range(99)
    ]
    parts = texts("\n".join(turns), 120, 40)
    assert len(parts) > 5
    for part in parts:
        assert part.startswith(("Ann:", "Bo:"))
        assert part.rstrip("\n").endswith("It was late.")
    for before, after in pairwise(parts):
        assert after.splitlines()[0] in before


def test_a_part_that_begins_inside_a_turn_knows_whose_it_is() -> None:
    text = "Ann: hello.\nBo: " + "I sold the blue one. " * 60
    chunks = split(text, 100, 20)
    assert chunks[0].speaker is None
    assert {chunk.speaker for chunk in chunks[1:]} == {"Bo"}


def test_speakers_are_the_names_that_begin_several_lines() -> None:
    text = (
        "Note: a meeting\nAnn Lee: hi\n김철수: 안녕하세요\n**Bo:** hm\n[10:31] Ann Lee: ok\n"
        "10:32 **Bo**: yes\n김철수： 네\nhttp://example.org\nhttp://example.org\nAnn Lee: bye"
    )
    assert speakers(text) == ["Ann Lee", "김철수", "Bo"]
    assert speakers("No dialogue here.") == []
