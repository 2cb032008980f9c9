"""The demo's run: remember the transcript, ask six questions, show where the answers came from."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from mnemotrace.memory import Memory
from mnemotrace.records import Recall

from .transcript import Turn, read_transcript

if TYPE_CHECKING:
    from rich.console import Console

ASKED_AT = datetime(2025, 9, 30, tzinfo=UTC)
"""The day after the last meeting: recency is judged from here, so every run ranks the same."""
MATCHES = 2
PLAIN_WIDTH = 100
MAX_WIDTH = 120

# Where a line may break: after a word, or after a Chinese character with its punctuation.
_BREAKS = re.compile(r"[\u4e00-\u9fff][，。！？：；、）]*|[^\s\u4e00-\u9fff]+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Question:
    """One question, in which languages it and its answer are, and where to look."""

    languages: str
    text: str
    scope: str | None = None


QUESTIONS = (
    Question("English", "When does the pilot start, and with how many buoys?"),
    Question("Korean", "갈매기 때문에 발전량이 얼마나 떨어졌나요?"),
    Question("Chinese", "单台成本到底是多少？"),
    Question(
        "English, answered in Korean",
        "Is the light on the buoy bright enough at night?",
        "/project/tidewatch/field",
    ),
    Question(
        "Korean, answered in Chinese",
        "공장에서 한 달에 몇 대를 만들 수 있나요?",
        "/project/tidewatch/production",
    ),
    Question(
        "Chinese, answered in English",
        "养殖户为什么不想用手机应用？",
        "/project/tidewatch/planning",
    ),
)


def run_demo(storage: str | None = None, out: TextIO | None = None) -> None:
    """Run the demo and print it; no network, no key, no language model.

    Args:
        storage: the folder to keep the memory in; None for a temporary one that is gone after.
        out: where to print; standard output when None.

    Raises:
        StoreError: the folder cannot be used.
    """
    from rich.console import Console

    file = out or sys.stdout
    # A pipe gets whole lines, a terminal none that are wider than it is.
    wraps = not file.isatty()
    console = Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=wraps)
    turns = read_transcript()
    meetings = {(turn.date, turn.meeting) for turn in turns}
    began = time.perf_counter()
    with _open(storage) as memory:
        _heading(console, "Remember: no network, no key, no language model")
        records = memory.remember_many([as_memory(turn) for turn in turns]).wait()
        console.print(
            f"{len(turns)} turns from {len(meetings)} meetings in English, Korean and Chinese: "
            f"{len({record.id for record in records})} records, "
            f"{time.perf_counter() - began:.1f} s from start to stored.\n"
        )
        console.print(memory.tree())
        _heading(console, "Recall: score, memory, then when, where and why")
        for question in QUESTIONS:
            answer = _ask(memory, question)
            _print_answer(console, question, answer)
        _heading(console, "Trace: the steps of the last recall")
        if answer.trace is not None:
            console.print(answer.trace.render(_width(console)), soft_wrap=True)
    if storage:
        console.print(
            f"\nThe memory is kept in {storage}. Ask it more:\n"
            f'  mnemotrace recall "Who answers the phone at night?" --storage {storage}'
        )


def demo_data(storage: str | None = None) -> dict[str, Any]:
    """Run the demo and return what it found, as JSON data; else as `run_demo`."""
    turns = read_transcript()
    with _open(storage) as memory:
        records = memory.remember_many([as_memory(turn) for turn in turns]).wait()
        answers = [(question, _ask(memory, question)) for question in QUESTIONS]
        scopes = memory.info("/").child_scopes
    trace = answers[-1][1].trace
    return {
        "turns": len(turns),
        "records": len({record.id for record in records}),
        "scopes": scopes,
        "answers": [
            {
                "question": question.text,
                "languages": question.languages,
                "scope": question.scope,
                "confidence": answer.confidence,
                "matches": [
                    {
                        **match.explain(),
                        "content": match.record.content,
                        "scope": match.record.scope,
                        "created_at": match.record.created_at.isoformat(),
                    }
                    for match in answer
                ],
            }
            for question, answer in answers
        ],
        "trace": trace.to_json() if trace else None,
    }


def _open(storage: str | None) -> Memory:
    # All of it was said within one month, so being newer counts for less than by default.
    return Memory(
        llm=None,
        embedder="bundled",
        storage=storage or ":memory:",
        semantic_weight=0.7,
        recency_weight=0.1,
    )


def _ask(memory: Memory, question: Question) -> Recall:
    return memory.recall(question.text, limit=MATCHES, scope=question.scope, now=ASKED_AT)


def as_memory(turn: Turn) -> dict[str, object]:
    """Return a turn as an item of `remember_many`, with all that a model would have to infer."""
    return {
        "content": turn.content,
        "scope": turn.scope,
        "categories": [turn.meeting],
        "importance": 0.5,
        "created_at": turn.date,
        "source": "transcript",
        "metadata": {"speaker": turn.speaker, "date": turn.date.date()},
    }


def fold(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` terminal cells; Chinese breaks anywhere."""
    from rich.cells import cell_len

    lines = [""]
    for piece in _BREAKS.findall(text):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _width(console: Console) -> int:
    return min(console.width, MAX_WIDTH) if console.is_terminal else PLAIN_WIDTH


def _heading(console: Console, text: str) -> None:
    console.print(f"\n== {text} ==\n", style="bold")


def _print_answer(console: Console, question: Question, answer: Recall) -> None:
    console.print(question.text, style="bold cyan")
    where = f"; only in {question.scope}" if question.scope else ""
    console.print(f"  {question.languages}{where}. Confidence {answer.confidence:.2f}.")
    for match in answer:
        record = match.record
        first, *rest = fold(record.content, _width(console) - 8)
        console.print(f"  {match.score:.2f}  {first}")
        for line in rest:
            console.print(f"        {line}")
        reasons = ", ".join(match.match_reasons)
        console.print(
            f"        {record.created_at.date()}  {record.scope}  ({reasons})", style="dim"
        )
    console.print()
