"""What is typed into the filter box: words of the text, categories, sources."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from mnemotrace.errors import InvalidInputError

# name:"two words", name:word, "two words", word
_PART = re.compile(r'(?:(?P<name>category|source):)?(?:"(?P<quoted>[^"]*)"|(?P<word>[^\s"]+))')


def fold(text: str) -> str:
    """Return a text in the form in which words are compared: case and width do not matter."""
    return unicodedata.normalize("NFKC", text).casefold()


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records of a scope are listed.

    Attributes:
        words: folded; each must occur in the text, or be the beginning of the id.
        categories: the record has at least one of these; None for any.
        sources: the record has at least one of these; None for any.
    """

    words: tuple[str, ...] = ()
    categories: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None

    def __bool__(self) -> bool:
        return self != Filter()

    def holds(self, record_id: str, content: str) -> bool:
        """Tell whether every word occurs."""
        if not self.words:
            return True
        text = fold(content)
        return all(word in text or fold(record_id).startswith(word) for word in self.words)


def parse_filter(text: str) -> Filter:
    """Read a filter such as ``kiln category:repairs source:"Ana Lima"``.

    Words must all occur; a quoted phrase is one word. Several categories, or several sources, are
    alternatives.

    Returns:
        The filter; an empty one for blank text.

    Raises:
        InvalidInputError: for an open quote or a name without a value; says what to write.
    """
    words: list[str] = []
    named: dict[str, list[str]] = {"category": [], "source": []}
    position = 0
    while rest := text[position:].lstrip():
        position = len(text) - len(rest)
        match = _PART.match(text, position)
        following = text[match.end() : match.end() + 1] if match else ""
        if match is None or (following and not following.isspace()):
            raise InvalidInputError(
                f"The filter cannot be read from {rest[:40]!r} on. Close every quote and put a "
                'space after it: "two words" category:name source:"a name"'
            )
        quoted, word = match["quoted"], match["word"]
        value = unicodedata.normalize("NFC", word if quoted is None else quoted).strip()
        name = match["name"]
        if (name and not value) or (name is None and word in ("category:", "source:")):
            raise InvalidInputError(
                f"{name or word.rstrip(':')}: has no value. Write it right behind the colon: "
                f'{name or word.rstrip(":")}:name, or {name or word.rstrip(":")}:"two words"'
            )
        if name:
            named[name].append(value)
        elif value:
            words.append(fold(value))
        position = match.end()
    return Filter(tuple(words), tuple(named["category"]) or None, tuple(named["source"]) or None)
