"""The demo's run: remember the transcript, ask six questions, show where the answers came from."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from mnemotrace.memory import Memory
from mnemotrace.records import Recall

from .transcript import Turn, read_transcript

if TYPE_CHECKING:
    from rich.console import Console

ASKED_AT = datetime(2025, 9, 30, tzinfo=UTC)
"""The day after the last meeting: recency is judged from here, so every run prints the same."""
MATCHES = 2
PLAIN_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Question:
    """One question, and in which languages it and its answer are."""

    languages: str
    text: str


QUESTIONS = (
    Question("English", "When does the pilot start, and with how many buoys?"),
    Question("Korean", "흐린 날이 이어졌을 때 배터리는 며칠이나 버텼나요?"),
    Question("Chinese", "单台成本到底是多少？"),
    Question("English, answered in Korean", "Why did the captain nearly hit the buoy at night?"),
    Question("Korean, answered in Chinese", "공장에서 한 달에 부표를 몇 대나 만들 수 있나요?"),
    Question("Chinese, answered in English", "农户有问题应该找谁？"),
)


def run_demo(storage: str | None = None, out: TextIO | None = None) -> None:
    """Run the demo and print it; no network, no key, no language model.

    Args:
        storage: the folder to keep the memory in; None for a temporary one that is gone after.
        out: where to print; standard output when None.
    """
    from rich.console import Console

    console = Console(file=out or sys.stdout, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(file=console.file, width=PLAIN_WIDTH, highlight=False, markup=False)
    turns = read_transcript()
    with Memory(llm=None, embedder="bundled", storage=storage or ":memory:") as memory:
        _heading(console, "Remember")
        began = time.perf_counter()
        records = memory.remember_many([_as_memory(turn) for turn in turns]).wait()
        seconds = time.perf_counter() - began
        console.print(
            f"{len(turns)} turns of {len({(t.date, t.meeting) for t in turns})} meetings in "
            f"English, Korean and Chinese: {len(records)} records in {seconds:.1f} s.\n"
        )
        console.print(memory.tree())
        _heading(console, "Recall")
        for question in QUESTIONS:
            answer = memory.recall(question.text, limit=MATCHES, now=ASKED_AT)
            _print_answer(console, question, answer)
        _heading(console, f"The steps of the last recall ({QUESTIONS[-1].text})")
        if answer.trace is not None:
            console.print(answer.trace.render(console.width))
    if storage:
        console.print(
            f"\nThe memory is in {storage}. Ask it more:\n"
            f'  mnemotrace recall "What did the insurance people say?" --storage {storage}'
        )


def _as_memory(turn: Turn) -> dict[str, object]:
    """The turn as an item of `remember_many`, with all that a language model would infer."""
    return {
        "content": turn.content,
        "scope": turn.scope,
        "categories": [turn.meeting],
        "importance": 0.5,
        "created_at": turn.date,
        "source": "transcript",
        "metadata": {"speaker": turn.speaker, "date": turn.date.date()},
    }


def _heading(console: Console, text: str) -> None:
    from rich.text import Text

    console.print(Text(f"\n== {text}\n", style="bold"))


def _print_answer(console: Console, question: Question, answer: Recall) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(f"{question.text}", style="bold cyan"), Text(f"[{question.languages}]"))
    for match in answer:
        record = match.record
        where = f"{record.created_at.date()}  {record.scope}  ({', '.join(match.match_reasons)})"
        text = Text.assemble((f"{match.score:.2f}  ", "green"), record.content)
        console.print(Padding(text, (0, 0, 0, 2)))
        console.print(Padding(Text(where, style="dim"), (0, 0, 0, 8)))
    console.print(f"  confidence {answer.confidence:.2f}\n")
