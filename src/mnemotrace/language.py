"""Which languages a text is written in, as far as its letters tell.

Models tend to answer in the language they are addressed in. The prompts therefore name the
language of the text. Nothing is guessed beyond what the script says, but for English, whose
function words are unmistakable.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

_RANGES: tuple[tuple[int, int, str], ...] = (
    (0x0041, 0x024F, "Latin script"),
    (0x0370, 0x03FF, "Greek"),
    (0x0400, 0x052F, "Cyrillic script"),
    (0x0530, 0x058F, "Armenian"),
    (0x0590, 0x05FF, "Hebrew"),
    (0x0600, 0x077F, "Arabic script"),
    (0x0900, 0x097F, "Devanagari script"),
    (0x0980, 0x09FF, "Bengali"),
    (0x0B80, 0x0BFF, "Tamil"),
    (0x0E00, 0x0E7F, "Thai"),
    (0x10A0, 0x10FF, "Georgian"),
    (0x1100, 0x11FF, "Korean"),
    (0x1E00, 0x1EFF, "Latin script"),
    (0x3041, 0x30FF, "Japanese"),
    (0x3400, 0x9FFF, "Chinese"),
    (0xAC00, 0xD7AF, "Korean"),
    (0xF900, 0xFAFF, "Chinese"),
    (0x20000, 0x3134F, "Chinese"),
)
_STARTS = [first for first, _, _ in _RANGES]
_WEIGHTS = {"Korean": 2.5, "Japanese": 2.5, "Chinese": 4.0}
"""How many letters of an alphabet say about as much as one character."""

_SENTENCE_END = re.compile(r"[.!?]\s|[\n。！？]")
_WORD = re.compile(r"[A-Za-z']+")
_ENGLISH = frozenset(
    """the and is are was with that this have has our will for from not to it i'm you my we they
    by of at be on in""".split()  # noqa: SIM905 - one word a line is unreadable
)
_ENGLISH_SHARE = 0.12
LEAST_SHARE = 0.15
FOREIGN_SHARE = 0.15
"""In a sentence, the share from which another script than Latin is its language: names of products
stay Latin in Korean or Chinese sentences. Not where a quarter of its Latin words are English
function words: then it is an English sentence with a foreign name."""
_ENGLISH_SENTENCE = 0.25


def languages(text: str) -> list[str]:
    """Return the languages of a text, most used first; ``[]`` for one without letters.

    A script that stands for one language gives its name (``Korean``, ``Japanese``, ``Chinese``,
    ``English``), another one the script (``Latin script``, ``Cyrillic script``). A language counts
    from 15 % of the text; it is judged sentence by sentence, so that foreign names inside a
    sentence are none.
    """
    shares: dict[str, float] = {}
    words: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        letters = _scripts(sentence)
        if not letters:
            continue
        latin = _WORD.findall(sentence)
        found = _deciding(letters, latin)
        shares[found] = shares.get(found, 0.0) + sum(letters.values())
        if found == "Latin script":
            words += latin
    if shares.get("Japanese", 0.0) > LEAST_SHARE * shares.get("Chinese", 0.0):
        shares["Japanese"] += shares.pop("Chinese", 0.0)  # its sentences in Han alone
    least = LEAST_SHARE * sum(shares.values())
    kept = sorted((name for name, n in shares.items() if n >= least), key=lambda n: -shares[n])
    english = _is_english(words, _ENGLISH_SHARE)
    return ["English" if english and name == "Latin script" else name for name in kept]


def foreign(statements: Iterable[str], text: str) -> list[str]:
    """Return the statements about a text that are in a language which no sentence of it is in.

    As far as scripts tell: whether English or French was written, they do not. A statement of one
    or two Latin words is a name, and none without letters is foreign.
    """
    there: set[str] | None = None
    found: list[str] = []
    for statement in statements:
        is_in = _script(statement)
        if is_in is None or (is_in == "Latin script" and len(_WORD.findall(statement)) < 3):
            continue
        if there is None:
            there = {name for part in _SENTENCE_END.split(text) if (name := _script(part))}
            if "Japanese" in there:
                there.add("Chinese")  # its sentences in Han alone
        if there and is_in not in there:
            found.append(statement)
    return found


def _script(sentence: str) -> str | None:
    """Return the script that decides what language a sentence is in; None without letters."""
    letters = _scripts(sentence)
    return _deciding(letters, _WORD.findall(sentence)) if letters else None


def _deciding(letters: dict[str, float], latin: list[str]) -> str:
    """Return what decides on the language, from a sentence's letters and its Latin words."""
    if letters.keys() == {"Latin script"} or _is_english(latin, _ENGLISH_SENTENCE):
        return "Latin script"
    return _language(letters, sum(letters.values()))


def _scripts(sentence: str) -> dict[str, float]:
    if sentence.isascii():  # at once, for this is most of what is asked about
        count = sum(map(str.isalpha, sentence))
        return {"Latin script": float(count)} if count else {}
    letters: dict[str, float] = {}
    for character in sentence:
        code = ord(character)
        if not character.isalpha():
            continue
        index = bisect_right(_STARTS, code) - 1
        if index >= 0 and code <= _RANGES[index][1]:
            name = _RANGES[index][2]
            letters[name] = letters.get(name, 0.0) + _WEIGHTS.get(name, 1.0)
    return letters


def _language(letters: dict[str, float], total: float) -> str:
    kana, han = letters.get("Japanese", 0.0), letters.get("Chinese", 0.0)
    if kana > 0.1 * han:
        letters = {**letters, "Japanese": kana + han, "Chinese": 0.0}
    others = [name for name in letters if name != "Latin script"]
    best = max(others, key=lambda name: (letters[name], name), default="Latin script")
    return best if letters.get(best, 0.0) >= FOREIGN_SHARE * total else "Latin script"


def _is_english(words: list[str], share: float) -> bool:
    known = len([word for word in words if word.casefold() in _ENGLISH])  # quicker than sum()
    return bool(words) and known >= share * len(words)
