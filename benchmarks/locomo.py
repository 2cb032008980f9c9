"""Reads LoCoMo-format files: long conversations in sessions, questions, and their evidence.

The format is that of LoCoMo (Maharana et al., 2024): a list of conversations, each with
``conversation`` (``session_1``, ``session_1_date_time``, ...) and ``qa``. LoCoMo itself is under
CC BY-NC 4.0 and no part of this project; the caller names the files.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

KINDS = {1: "multi-hop", 2: "temporal", 3: "open domain", 4: "single hop"}
"""Question categories that have an answer in the conversation; category 5 has none."""

_SESSION = re.compile(r"session_(\d+)")
_EVIDENCE = re.compile(r"D(\d+):(\d+)")
_DATE = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True)
class Turn:
    """One turn, as the memory it becomes.

    Attributes:
        id: such as ``D1:3``.
        session: such as ``D1``.
        text: ``[session date] speaker: text [shares caption]``.
        time: the session's date, ISO 8601, UTC.
    """

    id: str
    session: str
    text: str
    time: str


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        text: what is asked.
        kind: one of the values of `KINDS`.
        evidence: ids of the turns that answer it, at least one, each once.
    """

    text: str
    kind: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Conversation:
    """Turns in order, questions in order, and how many questions name no turn that exists."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]
    dropped: int

    @property
    def day_after(self) -> str:
        """One day after the last session, ISO 8601, UTC."""
        last = max(datetime.fromisoformat(turn.time) for turn in self.turns)
        return (last + timedelta(days=1)).isoformat()

    def turns_as_json(self) -> list[dict[str, str]]:
        """Return the turns as plain dicts."""
        return [asdict(turn) for turn in self.turns]


def read(path: Path) -> list[Conversation]:
    """Return the conversations of a file.

    Raises:
        ValueError: the file is not in the format; the message names file and place.
        OSError: it cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, list) or not content:
        raise ValueError(f"{path}: expected a list of conversations, as in LoCoMo.")
    found = []
    for number, entry in enumerate(content):
        try:
            found.append(_conversation(entry, f"{path.stem}-{number}"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: conversation {number} is not in LoCoMo's format: "
                f"{type(error).__name__}: {error}"
            ) from error
    return found


def _conversation(entry: dict[str, Any], name: str) -> Conversation:
    turns: list[Turn] = []
    first_with: dict[str, str] = {}
    same_as: dict[str, str] = {}
    parts = entry["conversation"]
    sessions = sorted(
        (int(found[1]), key) for key in parts if (found := _SESSION.fullmatch(key)) is not None
    )
    for number, key in sessions:
        date = parts[f"{key}_date_time"]
        time = datetime.strptime(date, _DATE).replace(tzinfo=UTC).isoformat()
        for said in parts[key]:
            text = f"[{date}] {said['speaker']}: {said['text']}"
            if caption := said.get("blip_caption"):
                text += f" [shares {caption}]"
            label = next(iter(_ids(said["dia_id"])), None)
            if label is None or label in same_as:
                raise ValueError(f"dia_id {said['dia_id']!r} is no id, or there twice")
            # Who says the same twice in one session says it once: no ranking could tell them apart.
            same_as[label] = first_with.setdefault(text, label)
            if same_as[label] == label:
                turns.append(Turn(label, f"D{number}", text, time))
    if not turns:
        raise ValueError("there are no turns")
    questions = []
    dropped = 0
    for asked in entry["qa"]:
        if asked["category"] not in KINDS:
            continue
        ids = [label for cell in asked.get("evidence", ()) for label in _ids(cell)]
        evidence = tuple(dict.fromkeys(same_as[label] for label in ids if label in same_as))
        if evidence:
            questions.append(Question(asked["question"], KINDS[asked["category"]], evidence))
        else:
            dropped += 1
    return Conversation(entry.get("sample_id", name), tuple(turns), tuple(questions), dropped)


def _ids(cell: str) -> list[str]:
    """Return the turn ids in a cell, which may hold several, such as ``D8:6; D9:17``."""
    return [f"D{int(session)}:{int(turn)}" for session, turn in _EVIDENCE.findall(cell)]
