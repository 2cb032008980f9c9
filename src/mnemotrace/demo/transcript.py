"""The transcript that ships with the package, split into turns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources

_HEADING = re.compile(r"## (?P<date>\d{4}-\d{2}-\d{2}) \| (?P<scope>/\S+) \| (?P<title>.+)")
_TURN = re.compile(r"(?P<speaker>[^:]{1,40}): (?P<text>.+)")


@dataclass(frozen=True, slots=True)
class Turn:
    """What one person said in one go.

    Attributes:
        date: the day of the meeting, at midnight UTC.
        scope: where it is remembered.
        meeting: the meeting's title.
        speaker: the name as it was written down.
    """

    date: datetime
    scope: str
    meeting: str
    speaker: str
    text: str

    @property
    def content(self) -> str:
        """The text with its speaker, as it is remembered."""
        return f"{self.speaker}: {self.text}"


def read_transcript() -> list[Turn]:
    """Return every turn of the shipped transcript, in the order spoken."""
    text = resources.files(__package__).joinpath("transcript.md").read_text(encoding="utf-8")
    return parse_transcript(text)


def parse_transcript(text: str) -> list[Turn]:
    """Split a transcript into turns.

    Args:
        text: Markdown; a meeting starts with ``## 2025-09-01 | /scope | Title``, each paragraph
            below is one turn, ``Speaker: what was said``. Anything before the first meeting is
            left out.

    Raises:
        ValueError: for a heading or a turn that is not of this form, with its words.
    """
    turns: list[Turn] = []
    meeting: re.Match[str] | None = None
    for block in re.split(r"\n\s*\n", text.strip()):
        line = " ".join(block.split())
        if line.startswith("## "):
            meeting = _HEADING.fullmatch(line)
            if meeting is None:
                raise ValueError(f"Not a meeting heading ('## DATE | /SCOPE | TITLE'): {line!r}")
            continue
        if meeting is None:
            continue
        turn = _TURN.fullmatch(line)
        if turn is None:
            raise ValueError(f"Not a turn ('SPEAKER: TEXT'): {line[:80]!r}")
        turns.append(
            Turn(
                date=datetime.fromisoformat(meeting["date"]).replace(tzinfo=UTC),
                scope=meeting["scope"],
                meeting=meeting["title"],
                speaker=turn["speaker"],
                text=turn["text"],
            )
        )
    return turns
