"""The lexical vector: which words a text has, so that an exact fragment finds its record.

How a text becomes terms:

- NFKC and case folding first, so composed and decomposed, full and half width, upper and lower
  case are alike.
- Words are letters and digits with their combining marks, stemmed by Snowball where the script
  tells the language: Latin letters without accents by the English stemmer (other languages get the
  same treatment on both sides, so they still match themselves), Cyrillic by the Russian one, and
  Arabic, Armenian, Devanagari, Greek and Tamil by theirs. Other words stay as they are.
- Scripts without spaces between words, and Hangul, whose endings change, become character
  bigrams. Documents also get each single character, so that one character finds them too.
- Chains such as ``sk-123``, ``a@b.org``, ``2024-05-01`` or ``c++`` give their parts and, as one
  more term, the chain itself. ``1,000`` is ``1000``. Each emoji is a term, whatever its skin tone.
- English function words are stored but not asked for, unless a query has nothing else.
- What stands before a colon at the start of a text, such as the speaker of a turn, is its label.
  Its terms count once more in a field of their own, so that "what did Ana say" prefers Ana's turns
  to those that only mention her.
- A turn of a conversation also has the terms of the turns around it, at lower weight: "Yes, on
  Friday" answers a question that stands before it.

A term's index is the CRC-32 of its UTF-8 form. Two terms share an index with odds of 1 in 4.3
thousand million: about one pair of words among 100,000 distinct ones. Such a pair loses a little
precision; nothing is missed.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import threading
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

from mnemotrace.stores.backend import WEIGHT_STEP, SparseVector

LEXICAL_NAME = "mnemotrace-lexical-2"
"""Recorded in the store's manifest; changes whenever the terms of a text would."""

K1 = 1.2
B = 0.75
"""BM25's saturation and length parameters at their customary values, not tuned."""

AVERAGE_LENGTH = 20.0
"""Terms of an average memory, for every store.

BM25 divides by the average over the collection, which changes with every write; with a constant a
stored weight stays valid. 20 is the mean of LoCoMo's turns; recall@10 there moves by no more than
0.02 for any value from 8 to 40."""

LABEL_WEIGHT = 5.0
"""What a term of the label weighs in the label's field; an ordinary term weighs about 1."""

CONTEXT = (0.6, 0.4, 0.2)
"""What the terms of the first, second and third neighbour on each side weigh beside the text's own.

Measured on the development half of LoCoMo (760 questions, recall@10): 0.66 without neighbours,
0.73 with one each side, 0.76 with these, no more with further ones (docs/quality.md)."""

LONGEST_WORD = 64
"""Longer runs of letters and digits (encoded data) are not stemmed."""

LONGEST_CHAIN = 200
"""Longer chains give their parts only."""

STOP_WORDS = frozenset(
    """a about after all also am an and any are as at be because been before being both but by can
    could did do does doing down during each few for from further had has have having he her here
    hers him his how i if in into is it its just me more most my of off on once only or other our
    out over own same she should so some such than that the their them then there these they this
    those through to too under until up very was we were what when where which while who whom why
    will with would you your""".split()  # noqa: SIM905 - one word a line is unreadable
)
"""English function words. ``no`` and ``not`` are left out: they change what a memory says."""

_CONTRACTED = frozenset({"s", "t", "d", "m", "ll", "re", "ve"})

# Han, Hangul, Kana, Bopomofo; Thai, Lao, Khmer and Burmese also write without spaces.
_DENSE = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3041-\u309f\u30a1-\u30fa"
    r"\u30fc-\u30ff\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    r"\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U000323af"
)
# \w has no combining marks, and without its vowel signs a Hindi word falls apart.
_MARKS = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    r"\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0dff"
)
_LETTER = rf"(?:(?![{_DENSE}_])[\w{_MARKS}])"
_EMOJI = (
    r"\u00a9\u00ae\u203c\u2049\u2139\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2900-\u297f"
    r"\u2b00-\u2bff\u3030\u303d\U0001f000-\U0001faff"
)
_TONES = r"\U0001f3fb-\U0001f3ff\ufe0e\ufe0f"

_TOKEN = re.compile(
    rf"([{_DENSE}]+)"
    rf"|({_LETTER}+(?:[-_.,:/@+#'&=~]{{1,2}}{_LETTER}+)*(?:\+\+?|#)?)"
    rf"|([\U0001f1e6-\U0001f1ff]{{2}}|[{_EMOJI}][{_TONES}]*(?:\u200d[{_EMOJI}][{_TONES}]*)*)"
)
_DENSE_RUN, _WORD, _SYMBOL = 1, 2, 3
_LABEL = re.compile(
    r"\s*(?:[\[(\uff08\u3010][^\])\uff09\u3011\n]{1,60}[\])\uff09\u3011]\s*)?"  # [a time]
    r"([^\s:\uff1a\[\](){}<>|,;\"'][^:\uff1a\n\[\](){}<>|]{0,39})(?::(?=\s)|\uff1a)"
)
_LABEL_WORDS = 4
_PART = re.compile(rf"{_LETTER}+")
_TONE = re.compile(rf"[{_TONES}]")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")

# Typographic forms of what joins a chain, signs that NFKC would glue to a word, invisible ones.
_VARIANTS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u02bc\uff07", "'"),
        **dict.fromkeys("\u2010\u2011\ufe63\uff0d", "-"),
        **dict.fromkeys("\u2120\u2122", " "),
        **dict.fromkeys("\u00ad\u200b\u200c\u2060\ufeff", None),
    }
)

_LANGUAGES = (
    (0x0061, 0x007A, "english"),
    (0x0370, 0x03FF, "greek"),
    (0x0400, 0x052F, "russian"),
    (0x0530, 0x058F, "armenian"),
    (0x0600, 0x06FF, "arabic"),
    (0x0900, 0x097F, "hindi"),
    (0x0B80, 0x0BFF, "tamil"),
)
"""Code points of a word's first letter, and the stemmer for such words."""


class _Kind(IntEnum):
    """Where a term is used; the first two in queries, all in documents."""

    TERM = 0
    CHAIN = 1
    STOP = 2
    SINGLE = 3


_Terms = tuple[tuple[str, _Kind], ...]


def tokenize(text: str) -> list[str]:
    """Return the terms a query asks for, in order, with repetitions.

    Returns:
        Stems, bigrams, chains and emoji as described above; function words only when there is
        nothing else; ``[]`` for a text of white space and punctuation.
    """
    found = list(_terms(text))
    asked = [term for term, kind in found if kind <= _Kind.CHAIN]
    return asked or [term for term, kind in found if kind is _Kind.STOP]


def label_of(text: str) -> str:
    """Return what stands before a colon at the start of a text, such as a speaker.

    Returns:
        At most four words with at least one letter; empty when the text does not begin so. A
        time in brackets may stand before it.
    """
    found = _LABEL.match(text)
    label = found[1].strip() if found else ""
    is_name = len(label.split()) <= _LABEL_WORDS and any(map(str.isalpha, label))
    return label if is_name else ""


def encode_document(
    text: str, before: Sequence[str] = (), after: Sequence[str] = ()
) -> SparseVector:
    """Return the BM25 weights of a text to be stored, without IDF, which the engine applies.

    A weight is ``tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average))``, the document's half
    of Okapi BM25 (Robertson and Zaragoza, 2009). The length counts stems and bigrams only. Terms
    that share an index are counted together. A term that neighbours have too gets the highest of
    its own weight and theirs, each multiplied by `CONTEXT`. Weights are multiples of `WEIGHT_STEP`.

    Args:
        text: the text.
        before: what was said before it in the same conversation, the nearest first.
        after: what was said after it, the nearest first.

    Returns:
        Ascending, unique indices; empty for a text without any term.
    """
    weights = dict(_weights(text))
    for neighbours in (before, after):
        for share, neighbour in zip(CONTEXT, neighbours, strict=False):
            for index, weight in _weights(neighbour).items():
                if share * weight > weights.get(index, 0.0):
                    weights[index] = share * weight
    for term in tokenize(label_of(text)):
        weights[_label_index(term)] = LABEL_WEIGHT
    indices = tuple(sorted(weights))
    # In steps, and never 0: see WEIGHT_STEP.
    steps = (max(round(weights[index] / WEIGHT_STEP), 1) for index in indices)
    return SparseVector(indices, tuple(step * WEIGHT_STEP for step in steps))


@lru_cache(maxsize=256)
def _weights(text: str) -> dict[int, float]:
    """Return the BM25 weight of each term of a text; not to be changed."""
    length = 0
    counts: dict[int, int] = {}
    for term, kind in _terms(text):
        index = _index(term)
        counts[index] = counts.get(index, 0) + 1
        length += kind is _Kind.TERM
    damping = K1 * (1.0 - B + B * length / AVERAGE_LENGTH)
    return {i: count * (K1 + 1.0) / (count + damping) for i, count in counts.items()}


def encode_query(text: str) -> SparseVector:
    """Return the terms a query asks for, each with weight 1 however often it occurs.

    Each stands twice, for the text and for the label; only the first tells how much of the query
    a record holds (`SparseVector.counted`).

    Returns:
        Ascending, unique indices; empty for a text without any term.
    """
    terms = set(tokenize(text))
    asked = frozenset(map(_index, terms))
    indices = tuple(sorted(asked.union(map(_label_index, terms))))
    return SparseVector(indices, (1.0,) * len(indices), asked)


def indices_of(term: str) -> tuple[int, int]:
    """Return the indices of a term, as `tokenize` gives it: of the text and of the label."""
    return _index(term), _label_index(term)


def text_hash(text: str) -> str:
    """Return 32 hexadecimal digits that are equal for equal texts (half of a SHA-256).

    Composed and decomposed characters count as equal, and so do any two runs of white space.
    """
    plain = " ".join(unicodedata.normalize("NFC", text).split())
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _index(term: str) -> int:
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


def _label_index(term: str) -> int:
    return _index(f"\x1f{term}")


def _fold(text: str) -> str:
    if text.isascii():
        text = text.lower()
    else:
        text = unicodedata.normalize("NFKC", text.translate(_VARIANTS)).casefold()
        text = text.replace("i\u0307", "i")  # what case folding makes of the Turkish capital I
        text = unicodedata.normalize("NFKC", text)  # case folding may decompose again
    if "," in text:
        text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    return text


def _terms(text: str) -> Iterator[tuple[str, _Kind]]:
    for match in _TOKEN.finditer(_fold(text)):
        token, group = match[0], match.lastindex
        if group == _WORD:
            yield from _word(token) if len(token) <= LONGEST_WORD else _split(token)
        elif group == _SYMBOL:
            yield _TONE.sub("", token) or token, _Kind.TERM
        elif len(token) == 1:
            yield token, _Kind.TERM
        else:
            for left, right in pairwise(token):
                yield left + right, _Kind.TERM
            for character in token:
                yield character, _Kind.SINGLE


@lru_cache(maxsize=1 << 15)
def _word(chain: str) -> _Terms:
    return _split(chain)


def _split(chain: str) -> _Terms:
    """Return the terms of one word, or of several joined by punctuation."""
    found = []
    for match in _PART.finditer(chain):
        part, start = match[0], match.start()
        if start and chain[start - 1] == "'" and part in _CONTRACTED:
            continue
        if part in STOP_WORDS:
            found.append((part, _Kind.STOP))
        else:
            found.append((_stem(part), _Kind.TERM))
    if len(chain) <= LONGEST_CHAIN and not _PART.fullmatch(chain.replace("'", "")):
        found.append((chain, _Kind.CHAIN))
    return tuple(found)


def _stem(word: str) -> str:
    if len(word) > LONGEST_WORD or (word.isascii() and not word.isalpha()):
        return word
    first = ord(word[0])
    for low, high, language in _LANGUAGES:
        if low <= first <= high:
            if language == "english" and not word.isascii():
                return word
            with _lock:  # a stemmer keeps the word it works on in itself
                return _stemmer(language).stemWord(word) or word
    return word


@cache
def _stemmer(language: str) -> Any:
    # Not snowballstemmer.stemmer(): that takes PyStemmer where it is installed, whose older rules
    # would give the same store other terms on another machine.
    module = importlib.import_module(f"snowballstemmer.{language}_stemmer")
    return getattr(module, f"{language.title()}Stemmer")()


_lock = threading.Lock()


def _after_fork() -> None:
    """Renew the lock: a thread that held it does not exist in the child."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
