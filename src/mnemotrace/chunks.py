"""Long texts in parts: cut by tokens at the borders of paragraphs, turns and sentences.

Pure functions. Neighbouring parts overlap, so that what stands across a cut is whole in one of
them.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from .tokens import count_tokens

CHUNK_TOKENS = 1500
"""Tokens of one part: a few pages, which small models still read to the end."""

OVERLAP_TOKENS = 150
"""Tokens that a part repeats of the one before it: some turns of a dialogue."""

_PARAGRAPH, _LINE, _SENTENCE, _WORD = 3, 2, 1, 0
_BACK = 0.3
"""How much of a full part may be given up to end it at a stronger border."""

_LONGEST_UNIT = 400
"""Characters from which a sentence without an end is cut: at a space, else at a comma, else anywhere
but in a word, a number or a character that is made of several."""

_END = re.compile(
    r"(?P<paragraph>\n[^\S\n]*\n\s*)"
    r"|(?P<line>\n\s*)"
    r"|(?P<sentence>(?<![.!?…])[.!?…]+[\"'”’)\]]*[^\S\n]+(?!\n)|(?<![。！？])[。！？]+[\"'”’」』）]*(?!\s*\n)\s*)"
)
_COMMAS = frozenset(",;:，、；：·")
_TIGHT = re.compile(
    r"[^\W_\u1100-\u11ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U000323af]"
)
"""A letter or digit of a script that parts its words by spaces, or that has none to part."""
_JOINS = frozenset(".,:/-_'’@%+#&=")
"""What joins two letters or digits to one word or number."""
_SPEAKER = re.compile(
    r"^[ \t]*(?:\[[^\]\n]{1,40}\][ \t]*|\(?\d{1,2}:\d{2}(?::\d{2})?\)?[ \t]+)?(?:\*\*)?"
    r"([^\W\d_][\w .'’()-]{0,39}?)(?:\*\*)?[ \t]*[:：](?!//)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One part of a text, as offsets of characters.

    Attributes:
        start, end: the part, what it repeats of the one before it included.
        speaker: who is speaking where the part begins in the middle of a turn; else None.
    """

    start: int
    end: int
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class _Unit:
    start: int
    end: int
    border: int
    """How strong the border at its end is."""


def split(
    text: str, size_tokens: int = CHUNK_TOKENS, overlap_tokens: int = OVERLAP_TOKENS
) -> list[Chunk]:
    """Cut a text into overlapping parts.

    A part ends at the last paragraph in its last third, else the last line (in a dialogue, a
    turn), else the last sentence; only a sentence of more than 400 characters is cut inside, and
    never in a word or a number, unless one is longer than that. What it repeats of the part before
    it begins in the same way.

    Args:
        size_tokens: the most tokens of a part (``o200k_base``).
        overlap_tokens: the most tokens it repeats of the part before it.

    Returns:
        The parts in order; together they are the whole text. One for a text that is no longer
        than `size_tokens`; ``[]`` for an empty one.

    Raises:
        ValueError: `size_tokens` is below 16, or the overlap is more than half of it.
    """
    if size_tokens < 16 or not 0 <= overlap_tokens <= size_tokens // 2:
        raise ValueError(f"no parts of {size_tokens} tokens that repeat {overlap_tokens}")
    if not text:
        return []
    units = list(_units(text, size_tokens, overlap_tokens))
    tokens = list(accumulate((count_tokens(text[u.start : u.end]) for u in units), initial=0))
    chunks: list[Chunk] = []
    first = 0
    while True:
        last = first + 1
        while last < len(units) and tokens[last + 1] - tokens[first] <= size_tokens:
            last += 1
        start = units[first].start
        while last > first + 1 and count_tokens(text[start : units[last - 1].end]) > size_tokens:
            last -= 1  # words can have more tokens together than apart, if seldom
        if last < len(units):
            last = _cut(units, tokens, first, last)
        chunks.append(Chunk(start, units[last - 1].end, _speaker_at(text, start)))
        if last == len(units):
            return chunks
        first = _overlap(units, tokens, first, last, overlap_tokens)


def speakers(text: str) -> list[str]:
    """Return the names that begin several lines as ``Name:``, commonest first, at most 20."""
    counts = Counter(match[1].strip() for match in _SPEAKER.finditer(text))
    return [name for name, n in counts.most_common(20) if n > 1]


def _units(text: str, size_tokens: int, overlap_tokens: int) -> Iterator[_Unit]:
    """Yield the sentences of a text, each with the white space after it."""
    longest = min(_LONGEST_UNIT, size_tokens * 2)
    # Pieces of a sentence are small enough for two of them to be repeated.
    piece = min(overlap_tokens, size_tokens) // 2 or size_tokens // 2

    def cut(start: int, end: int, border: int) -> Iterator[_Unit]:
        if end - start <= longest and count_tokens(text[start:end]) <= size_tokens // 2:
            yield _Unit(start, end, border)
        else:
            yield from _pieces(text, start, end, border, longest, piece)

    start = 0
    for match in _END.finditer(text):
        border = {"paragraph": _PARAGRAPH, "line": _LINE}.get(match.lastgroup or "", _SENTENCE)
        yield from cut(start, match.end(), border)
        start = match.end()
    if start < len(text):
        yield from cut(start, len(text), _PARAGRAPH)


def _pieces(
    text: str, start: int, end: int, border: int, longest: int, most: int
) -> Iterator[_Unit]:
    """Yield a sentence that is too long in pieces: cut by characters, then by tokens."""
    while end - start > 1 and (end - start > longest or count_tokens(text[start:end]) > most):
        reach = start + min(longest, (end - start) // 2)
        middle = _inner_border(text, start, reach, end)
        if middle == end:  # one word, longer than a piece should be
            if end - start <= longest and count_tokens(text[start:end]) <= 2 * most:
                break
            middle = reach
        yield from _pieces(text, start, middle, _WORD, longest, most)
        start = middle
    if end > start:
        yield _Unit(start, end, border)


def _inner_border(text: str, start: int, reach: int, end: int) -> int:
    """Return where to cut a piece in two: about `reach`, before it if that can be.

    Returns:
        The place after a space, else after a comma, in the second half before `reach`; else the
        nearest one where no word, number or character is parted; `end` where none is near.
    """
    half = start + (reach - start) // 2
    comma = between = 0
    for place in range(reach, max(half, start), -1):
        before = text[place - 1]
        if before.isspace():
            return place
        if _is_one(text, place):
            continue
        between = between or place
        if before in _COMMAS:
            comma = comma or place
    if comma or between:
        return comma or between
    further = (*range(half, start, -1), *range(reach + 1, min(end, reach + _LONGEST_UNIT)))
    return next((place for place in further if not _is_one(text, place)), end)


def _is_one(text: str, place: int) -> bool:
    """Tell whether a cut at this place would part a word, a number or a character."""
    before, after = text[place - 1], text[place]
    if after in "\u200d\ufe0f" or before == "\u200d" or unicodedata.combining(after):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff":  # a skin tone
        return True
    if _TIGHT.match(before):
        inside = after in _JOINS and place + 1 < len(text) and _TIGHT.match(text[place + 1])
        return bool(_TIGHT.match(after) or inside)
    joined = before in _JOINS and place > 1 and _TIGHT.match(text[place - 2])
    return bool(joined and _TIGHT.match(after))


def _cut(units: list[_Unit], tokens: list[int], first: int, last: int) -> int:
    """Return where to end a full part: at the strongest border near its end, the last of them."""
    least = tokens[first] + (1 - _BACK) * (tokens[last] - tokens[first])
    possible = [i for i in range(first + 1, last + 1) if tokens[i] >= least] or [last]
    return max(possible, key=lambda i: (units[i - 1].border, i))


def _overlap(units: list[_Unit], tokens: list[int], first: int, last: int, most: int) -> int:
    """Return where the next part begins: as early as the overlap allows, at a line if it can."""
    possible = [i for i in range(first + 1, last) if tokens[last] - tokens[i] <= most]
    if not possible:
        return last
    at_lines = [i for i in possible if units[i - 1].border >= _LINE]
    return min(at_lines or possible)


def _speaker_at(text: str, position: int) -> str | None:
    """Return whose turn a position inside a line lies in; None at the start of a line."""
    begin = text.rfind("\n", 0, position) + 1
    if not text[begin:position].strip():
        return None
    match = _SPEAKER.match(text, begin)
    return match[1].strip() if match else None
