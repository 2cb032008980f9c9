"""Reads the facts and queries of `multilingual.py` from `data/multilingual/`, and checks them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "data" / "multilingual"
LANGUAGES = ("ko", "zh", "ja", "en")
_ASKED_IN = re.compile(r"asks-([a-z]{2})")
_SCRIPTS = {
    "ko": re.compile(r"[\uac00-\ud7a3]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "ja": re.compile(r"[\u3041-\u30ff]"),
    "en": re.compile(r"[A-Za-z]"),
}
FRAGMENT_CHARACTERS = range(4, 13)
FRAGMENT_WORDS = range(2, 5)
MOST_SHARED = 0.6
"""The largest share of a paraphrase's character pairs that its fact may hold."""


@dataclass
class Fact:
    """One fact, what is asked about it, and other facts that are near to it.

    Attributes:
        text: what is remembered.
        language: of the text: ``ko``, ``zh``, ``ja`` or ``en``.
        fragment: a few characters or words of the text, as somebody would type them.
        question: the same language, other words.
        crossing: questions in other languages, by language.
        distractors: facts near in topic which answer none of these.
    """

    text: str
    language: str
    fragment: str = ""
    question: str = ""
    crossing: dict[str, str] = field(default_factory=dict)
    distractors: list[str] = field(default_factory=list)


@dataclass
class Part:
    """All of one language: its facts, and questions that no fact of the whole set answers."""

    language: str
    facts: list[Fact] = field(default_factory=list)
    unanswerable: list[str] = field(default_factory=list)

    def texts(self) -> list[str]:
        """Return everything that is to be stored: each fact, then what is near to it."""
        return [text for fact in self.facts for text in (fact.text, *fact.distractors)]

    def first(self, count: int) -> Part:
        """Return the part cut to its first facts, and as many unanswerable questions."""
        return Part(self.language, self.facts[:count], self.unanswerable[:count])


def read(language: str, folder: Path = FOLDER) -> Part:
    """Read one language's file.

    Raises:
        ValueError: a line that is not understood; the message names file and line.
    """
    path = folder / f"{language}.txt"
    part = Part(language)
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        key, _, text = line.partition(" ")
        if not text or text != text.strip():
            raise ValueError(f"{path.name}:{number}: nothing after {key!r}, or stray blanks.")
        if key == "fact":
            part.facts.append(Fact(text, language))
        elif key == "none":
            part.unanswerable.append(text)
        elif not part.facts or not _add(part.facts[-1], key, text):
            raise ValueError(f"{path.name}:{number}: {key!r} is unknown or out of place here.")
    return part


def _add(fact: Fact, key: str, text: str) -> bool:
    """Give a fact one more line; False when it cannot take it."""
    if key == "near":
        fact.distractors.append(text)
    elif key == "part" and not fact.fragment:
        fact.fragment = text
    elif key == "asks" and not fact.question:
        fact.question = text
    elif (match := _ASKED_IN.fullmatch(key)) and match[1] not in fact.crossing:
        fact.crossing[match[1]] = text
    else:
        return False
    return True


def faults(parts: list[Part]) -> list[str]:
    """Return everything that is wrong with the set, one sentence each; empty when it is sound.

    Checked is what a machine can: that each fragment is a piece of its fact and of no other text,
    that nothing occurs twice, that paraphrases do not repeat their fact, and that every text is
    in the script of its language. That only one fact answers a question is the author's care.
    """
    return [
        *_repeated("text", (text for part in parts for text in part.texts())),
        *_repeated("query", (query for part in parts for query in _queries(part))),
        *_misplaced_fragments(parts),
        *(fault for part in parts for fact in part.facts for fault in _faults_of(fact)),
        *(
            f"Not in the script of {part.language}: {text}"
            for part in parts
            for text in (*part.texts(), *part.unanswerable)
            if not _SCRIPTS[part.language].search(text)
        ),
    ]


def _queries(part: Part) -> Iterator[str]:
    for fact in part.facts:
        yield from (fact.fragment, fact.question, *fact.crossing.values())
    yield from part.unanswerable


def plain(text: str) -> str:
    """Return the letters and digits of a text, in compatible composed form and lower case."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum())


def _repeated(what: str, texts: Iterator[str]) -> list[str]:
    counts = Counter(plain(text) for text in texts)
    return [f"Occurs {count} times as a {what}: {t}" for t, count in counts.items() if count > 1]


def _misplaced_fragments(parts: list[Part]) -> list[str]:
    texts = [(text, plain(text)) for part in parts for text in part.texts()]
    found = []
    for fact in (fact for part in parts for fact in part.facts):
        if fact.fragment not in fact.text:
            found.append(f"Not a piece of its fact: {fact.fragment}")
        wanted = plain(fact.fragment)
        found += [
            f"The fragment {fact.fragment!r} is also in: {text}"
            for text, letters in texts
            if wanted in letters and text != fact.text
        ]
    return found


def _faults_of(fact: Fact) -> list[str]:
    found = []
    if not fact.fragment or not fact.question or not fact.distractors:
        found.append(f"Lacks a part, a question or a near fact: {fact.text}")
    length = len(plain(fact.fragment))
    words = len(fact.fragment.split())
    if fact.language == "en":
        fits = words in FRAGMENT_WORDS
    else:
        fits = length in FRAGMENT_CHARACTERS
    if not fits:
        found.append(f"A fragment too short or too long: {fact.fragment}")
    if shared(fact.question, fact.text) > MOST_SHARED:
        found.append(f"Repeats its fact: {fact.question}")
    for language, question in fact.crossing.items():
        if language == fact.language or not _SCRIPTS[language].search(question):
            found.append(f"Not a question in another language ({language}): {question}")
    return found


def shared(question: str, text: str) -> float:
    """Return the share of the question's distinct character pairs that the text holds, 0..1."""
    asked, held = pairs_of(question), pairs_of(text)
    return len(asked & held) / len(asked) if asked else 0.0


def pairs_of(text: str) -> set[str]:
    """Return the distinct pairs of neighbouring letters of a text."""
    letters = plain(text)
    return {letters[at : at + 2] for at in range(len(letters) - 1)}
