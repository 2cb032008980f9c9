"""The demo does the main job on a real text, and answers its own questions."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from mnemotrace import Memory
from mnemotrace.demo import read_transcript, run_demo
from mnemotrace.demo.runner import ASKED_AT, QUESTIONS, Question, as_memory, fold
from mnemotrace.demo.transcript import parse_transcript

HANGUL = re.compile(r"[가-힣]")
HAN = re.compile(r"[\u4e00-\u9fff]")

# What the best answer to each question must hold.
ANSWERS = (
    "It starts on 3 November",
    "18퍼센트",
    "正确的单台成本是两千二百八十元",
    "불빛이 너무 약해서",
    "每个月能做六百台",
    "text messages rather than an app",
)


def demo_output(storage: str | None = None) -> str:
    out = io.StringIO()
    run_demo(storage, out)
    return out.getvalue()


def without_times(text: str) -> str:
    return re.sub(r" *\d+\.\d+ (ms|s)\b( *[━╸]+ *)?", "TIME", text)


def test_the_demo_remembers_answers_and_shows_the_steps() -> None:
    out = demo_output()
    assert f"{len(read_transcript())} turns from 7 meetings" in out
    assert "/project/tidewatch/production (" in out
    sections = out.split("== Recall")[1].split("== Trace")
    for question, answer in zip(QUESTIONS, ANSWERS, strict=True):
        told = sections[0].split(question.text)[1]
        assert answer.replace(" ", "") in re.sub(r"\s+", "", told)[:400]
    for step in ("analyze_query", "select_scopes", "search", "route", "synthesize"):
        assert step in sections[1]


def test_the_demo_prints_plain_text_where_there_is_no_terminal() -> None:
    out = demo_output()
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 100
    assert not any(line != line.rstrip() for line in out.splitlines())


def test_the_demo_ranks_the_same_whenever_it_is_run() -> None:
    assert without_times(demo_output()) == without_times(demo_output())


def test_the_demo_keeps_its_memory_where_it_is_told_and_adds_nothing_twice(
    tmp_path: Path,
) -> None:
    store = tmp_path / "kept"
    for _ in range(2):
        assert f"The memory is kept in {store}" in demo_output(str(store))
    with Memory(llm=None, storage=store) as memory:
        assert memory.info("/").record_count == len(read_transcript())
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.fixture(scope="module")
def told() -> Memory:
    memory = Memory(
        llm=None,
        embedder="bundled",
        storage=":memory:",
        semantic_weight=0.7,
        recency_weight=0.1,
    )
    memory.remember_many([as_memory(turn) for turn in read_transcript()]).wait()
    return memory


@pytest.mark.parametrize(
    ("question", "answer"),
    list(zip(QUESTIONS, ANSWERS, strict=True)),
    ids=[question.languages for question in QUESTIONS],
)
def test_the_first_match_is_the_answer(told: Memory, question: Question, answer: str) -> None:
    best = told.recall(question.text, scope=question.scope, limit=1, now=ASKED_AT)[0]
    assert answer in best.record.content


def test_speaker_and_date_are_kept_as_metadata(told: Memory) -> None:
    found = told.recall("oxygen", metadata_filter={"speaker": "Jonas Weber"}, now=ASKED_AT)
    assert found
    assert {match.record.metadata["speaker"] for match in found} == {"Jonas Weber"}
    assert all(match.record.metadata["date"] == match.record.created_at.date() for match in found)


def test_the_transcript_has_many_turns_in_each_of_three_languages() -> None:
    turns = read_transcript()
    korean = [turn for turn in turns if HANGUL.search(turn.text)]
    chinese = [turn for turn in turns if HAN.search(turn.text)]
    english = [turn for turn in turns if not HANGUL.search(turn.text) and not HAN.search(turn.text)]
    assert min(len(korean), len(chinese), len(english)) >= 30
    assert len(korean) + len(chinese) + len(english) == len(turns)
    assert len({turn.content for turn in turns}) == len(turns)
    assert [turn.date for turn in turns] == sorted(turn.date for turn in turns)


def test_a_transcript_is_split_by_meeting_and_speaker() -> None:
    turns = parse_transcript(
        "# Title\n\nNot yet: a meeting.\n\n## 2025-01-02 | /a/b | One | two\n\n"
        "Ada: First,\nwrapped.\n\n서민아: 시각은 10:30입니다.\n"
    )
    assert [(t.speaker, t.text) for t in turns] == [
        ("Ada", "First, wrapped."),
        ("서민아", "시각은 10:30입니다."),
    ]
    assert {(t.date.isoformat(), t.scope, t.meeting) for t in turns} == {
        ("2025-01-02T00:00:00+00:00", "/a/b", "One | two")
    }


@pytest.mark.parametrize(
    "text", ["## Yesterday | /a | X\n\nAda: Hi", "## 2025-01-02 | /a | X\n\nNobody said this."]
)
def test_a_transcript_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Not a"):
        parse_transcript(text)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two three", 8, ["one two", "three"]),
        ("한국어 문장", 7, ["한국어", "문장"]),
        ("单台成本，到底", 6, ["单台成", "本，到", "底"]),
        ("longerthanwidth", 5, ["longerthanwidth"]),
        ("", 5, [""]),
    ],
)
def test_lines_break_between_words_and_between_chinese_characters(
    text: str, width: int, lines: list[str]
) -> None:
    assert fold(text, width) == lines
