"""Echoes: memories that were recalled, pasted into a text, and must not become new ones.

When recalled memories are put into a conversation, extracting from that conversation finds them
again. The rule here decides what counts as such an echo. It only ever leaves out what the memory
already shows to the one who asks, so nothing can be lost by it:

1. A part of the text is *remembered* when it says the same as a record that is visible to the
   caller: the same words in the same order but for case, punctuation and function words
   (`facts.may_be_duplicates`), so never across a number, a name or a negation; and when it stands
   there in recalled form, which is either

   - the whole text of a record that this memory returned recently, standing by itself (a line, a
     sentence), but not behind the name of a person ("Ann: ..."): that is Ann's own word, or
   - something that looks quoted, and is stored: a list item or citation, a scored line as
     `MemoryMatch.format` writes it, an item as `Recall.format` writes it, a text in quotation
     marks or in ``<memory>`` tags.

   What a person merely says in passing, in a sentence of their own, is not in recalled form, even
   if it is stored: saying it again is news to consolidation.
2. A remembered part is replaced by a mark before the model reads the text, and shown to it as
   known. So "[1] is wrong, it is 9090 now" is still understood, and is a fact of its own.
3. A statement of the model that says the same as a remembered part is dropped. A statement that
   differs in any word on which facts turn is kept: a correction, a similar fact, an addition.
4. An outdated version counts only when it was returned recently and stands in quoted form; and a
   statement that repeats it is kept when the rest of the text speaks of it too: then somebody
   says that it holds again.
5. A text that is one memory and nothing else is no conversation: somebody wants that memory split
   into its facts, and gets them.
"""

from __future__ import annotations

import html
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mnemotrace import facts
from mnemotrace.embedders.lexical import text_hash
from mnemotrace.quoting import inert

MOST_RETURNED = 500
"""Ids of records kept as recently returned, for one memory."""
MOST_QUOTED = 400
"""Quoted parts of one text that are looked up."""
MOST_NEAR = 64
"""Quoted parts of one text that are embedded to find a record that says the same."""
NEAR_COSINE = 0.8
SHORTEST = 16
"""Characters from which a returned record is recognised outside of quotes; dense scripts count
double. A shorter one ("Yes.") is said by chance too often."""

_SPEAKER = r"(?:[^\W\d_][\w .'’()-]{0,39}[:：][ \t]*)?"
_MARKER = r"(?:[-*+•‣▪·–—][ \t]+|\d{1,3}[.)][ \t]+|>[ \t]?|\[[01](?:\.\d+)?\][ \t]+)"
_ITEM = re.compile(rf"^[ \t]*{_SPEAKER}{_MARKER}+(?P<body>\S.*)", re.MULTILINE)
_QUOTES = re.compile(r"[\"“„「『«](?P<body>[^\"“”„「」『』«»\n]{4,2000})[\"”“」』»]")
_TAGS = re.compile(
    r"<(?P<tag>memory|fact|record|item)\b[^>]{0,200}>(?P<body>[^<]{1,4000})</(?P=tag)>",
    re.IGNORECASE,
)
_LABEL = re.compile(r"[ \t]*(?P<name>[^\W\d_][\w .'’()-]{0,39})[:：]")
_AGENTS = re.compile(
    r"assistant|agent|\bai\b|\bbot\b|system|model|tool|context|memor|remember|recall|known|facts?\b"
    r"|background|어시스턴트|도우미|에이전트|시스템|기억|메모리|助手|代理|系统|记忆|アシスタント|システム"
    r"|記憶|メモリ",
    re.IGNORECASE,
)
"""Names before a colon that stand for no person: what is said there may be recalled."""

_ORIGIN = r"\([^()/\n]{0,200}/[^()\n]{0,300}\)"
_ATTRIBUTION = re.compile(rf"{_ORIGIN}$")
_DENSE = re.compile(r"[\u1100-\u11ff\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_OPENERS = " \t\"“„「『«'‘([*_`>-"
_OPENING_QUOTES = '"“„「『«'
_CLOSERS = "\"”“」』»'’)]*_`"
_ENDS = ".!?。！？…"


class Quotable(Protocol):
    """What is needed of a record."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def content(self) -> str: ...  # noqa: D102
    @property
    def is_current(self) -> bool: ...  # noqa: D102


class Returned:
    """The ids of the records that a memory returned recently; no texts are kept.

    Args:
        most: ids kept; the oldest go first.
    """

    def __init__(self, most: int = MOST_RETURNED) -> None:
        self._most = most
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()  # recalls end in several threads

    def add(self, record_ids: Iterable[str]) -> None:
        """Note that these records were returned just now."""
        with self._lock:
            for record_id in record_ids:
                self._ids[record_id] = None
                self._ids.move_to_end(record_id)
            while len(self._ids) > self._most:
                self._ids.popitem(last=False)

    def discard(self, record_ids: Iterable[str]) -> None:
        """Forget about these records."""
        with self._lock:
            for record_id in record_ids:
                self._ids.pop(record_id, None)

    def clear(self) -> None:
        """Forget about all of them."""
        with self._lock:
            self._ids.clear()

    @property
    def ids(self) -> list[str]:
        """The ids, most recent first."""
        with self._lock:
            return list(reversed(self._ids))


@dataclass(frozen=True, slots=True)
class Quoted:
    """A part of a text that looks quoted.

    Attributes:
        start, end: its offsets, without the marks of quotation.
        texts: what it may say: as it stands, and read back from escaped form.
    """

    start: int
    end: int
    texts: tuple[str, ...]

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes under which a store would have it."""
        return tuple(dict.fromkeys(text_hash(text) for text in self.texts))


@dataclass(frozen=True, slots=True)
class Remembered:
    """A part of a text that is a memory already."""

    start: int
    end: int
    content: str
    current: bool = True


def quoted_parts(text: str) -> list[Quoted]:
    """Return the parts of a text that look quoted, in order; they may overlap."""
    found: dict[tuple[int, int], Quoted] = {}
    for pattern in (_TAGS, _ITEM, _QUOTES):
        for match in pattern.finditer(text):
            for start, end in _readings(text, *match.span("body")):
                found.setdefault((start, end), Quoted(start, end, _read(text[start:end])))
    return [found[span] for span in sorted(found)][:MOST_QUOTED]


def _readings(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans that may be the quoted text: with and without attribution and quotes."""
    end = start + len(text[start:end].rstrip())
    spans = [(start, end)]
    if attribution := _ATTRIBUTION.search(text, start, end):
        spans.append((start, start + len(text[start : attribution.start()].rstrip())))
    for begin, stop in list(spans):
        body = text[begin:stop].rstrip("*").rstrip()
        if len(body) > 2 and body[0] in _OPENERS and body[-1] in _CLOSERS:
            spans.append((begin + 1, begin + len(body) - 1))
    return [(begin, stop) for begin, stop in spans if text[begin:stop].strip()]


def _read(text: str) -> tuple[str, ...]:
    """Return a text as it stands and as it was before `inert` escaped it."""
    plain = html.unescape(text.replace("\\n", "\n"))
    return tuple(dict.fromkeys((text, plain)))


def returned_parts(
    text: str, records: Sequence[Quotable], quoted: Sequence[Quoted]
) -> list[Remembered]:
    """Return where whole texts of recently returned records stand in a text by themselves.

    Args:
        records: the visible versions of those records.
        quoted: the quoted parts of the text.
    """
    found: list[Remembered] = []
    for record in records:
        for content in dict.fromkeys((record.content, inert(record.content))):
            for start, end in _standing(text, content):
                cited = any(q.start <= start and end <= q.end + 1 for q in quoted)
                plain = record.is_current and _is_telling(content) and not _own_word(text, start)
                if cited or plain:
                    found.append(Remembered(start, end, record.content, record.is_current))
    return found


def _standing(text: str, content: str) -> Iterable[tuple[int, int]]:
    """Yield where a content stands by itself: bounded by lines, sentence ends or quotes."""
    words = unicodedata.normalize("NFC", content).strip().rstrip(_ENDS).split()
    if not words or max(words, key=len) not in text:
        return
    pattern = r"\s+".join(re.escape(word) for word in words)
    for match in re.finditer(rf"(?<!\w){pattern}(?P<ends>[{_ENDS}]*)", text):
        before = text[max(0, match.start() - 40) : match.start()].rstrip(_OPENERS)
        after = text[match.end() : match.end() + 40]
        rest = after.lstrip(_CLOSERS)
        opened = not before or before[-1] in f"\n{_ENDS}:：;|>)]}}」』”"
        closed = (
            bool(match["ends"])
            or rest != after
            or not rest.strip(" \t")
            or rest.lstrip(" \t")[0] in "\n<(|;"
        )
        # "port 8080" does not stand in "port 8080.5".
        glued = bool(match["ends"]) and rest[:1].isalnum() and not _DENSE.match(rest)
        if opened and closed and not glued:
            yield match.start(), match.start("ends")


def _own_word(text: str, position: int) -> bool:
    """Tell whether a line names a person as its speaker, to the left of a position."""
    label = _LABEL.match(text, text.rfind("\n", 0, position) + 1)
    return label is not None and label.end() <= position and not _AGENTS.search(label["name"])


def _is_telling(content: str) -> bool:
    return len(content) + len(_DENSE.findall(content)) >= SHORTEST


def settled(text: str, parts: Iterable[Remembered]) -> list[Remembered]:
    """Return the parts to mark, in order: of those that overlap only the longest.

    None when one of them is the whole text.
    """
    kept: list[Remembered] = []
    for part in sorted(parts, key=lambda p: (p.start - p.end, p.start, not p.current)):
        if all(part.end <= other.start or other.end <= part.start for other in kept):
            kept.append(part)
    kept.sort(key=lambda part: part.start)
    if len(kept) == 1:
        only = text[kept[0].start : kept[0].end]
        if only.strip().rstrip(_ENDS) == text.strip().rstrip(_ENDS):
            return []
    return kept


class Marked:
    """A text whose remembered parts are replaced by marks such as ``[remembered:1]``.

    Attributes:
        text: the text for the model.
        known: what each mark stands for.
    """

    def __init__(self, text: str, parts: Sequence[Remembered]) -> None:
        word = "remembered"
        while f"[{word}:" in text:  # somebody pasted a prompt
            word += "-"
        mark_of = rf"\[{word}:\d+\]"
        self._marks = re.compile(mark_of)
        self._dressed = re.compile(
            rf"(?:\[[01](?:\.\d+)?\][ \t]*)?{mark_of}[{_ENDS}]*(?:[ \t]*{_ORIGIN})?"
        )
        self.known: dict[str, str] = {}
        self._outdated: dict[tuple[str, ...], str] = {}
        self._current: set[tuple[str, ...]] = set()
        self._places: list[tuple[int, int, str]] = []
        by_content: dict[str, str] = {}
        pieces: list[str] = []
        at = length = 0
        for part in parts:
            mark = by_content.setdefault(part.content, f"[{word}:{len(by_content) + 1}]")
            self.known[mark] = part.content
            length += part.start - at
            self._places.append((length, length + len(mark), text[part.start : part.end]))
            length += len(mark)
            pieces += [text[at : part.start], mark]
            at = part.end
            if part.current:
                self._current.add(same(part.content))
            else:
                self._outdated[same(part.content)] = part.content
        self.text = "".join([*pieces, text[at:]])
        self._rest = self._marks.sub(" ", self.text)

    def known_in(self, start: int, end: int) -> dict[str, str]:
        """Return the marks in a part of the text and what they stand for."""
        return {
            mark: self.known[mark]
            for mark in dict.fromkeys(self._marks.findall(self.text[start:end]))
            if mark in self.known
        }

    def original(self, start: int, end: int) -> str:
        """Return a part of the text as it was before it was marked."""
        pieces: list[str] = []
        at = start
        for first, last, text in self._places:
            if start <= first < end:
                pieces += [self.text[at:first], text]
                at = last
        return "".join([*pieces, self.text[at:end]])

    def says_something(self, start: int, end: int) -> bool:
        """Tell whether a part of the text has words beside its marks and their attribution."""
        part = self._dressed.sub(" ", self.text[start:end])
        return any(character.isalnum() for character in part)

    def plain(self, statement: str) -> str:
        """Return a statement with its marks spelled out."""
        if statement in self.known:
            return self.known[statement]

        def spelled(mark: re.Match[str]) -> str:
            content = self.known.get(mark[0])
            if content is None:
                return mark[0]
            quoted = statement[mark.start() - 1 : mark.start()] in tuple(_OPENING_QUOTES)
            return content if quoted else f'"{content}"'

        return self._marks.sub(spelled, statement)

    def echoes(self, statement: str) -> bool:
        """Tell whether a statement only repeats remembered parts."""
        if not self._marks.sub("", statement).strip(" .,;-"):
            return True
        key = same(statement)
        if key in self._outdated:
            return bool(facts.missing_terms(self._rest, self._outdated[key]))
        return key in self._current


def same(text: str) -> tuple[str, ...]:
    """Return what texts have in common that say the same; never empty."""
    return facts.telling_words(text) or (text_hash(text.casefold()),)
