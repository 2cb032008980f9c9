"""What a text states, clause by clause, in words that can be looked for in another text.

A clause is a list of terms. A term has one or more keys, and two terms are the same when they
share one: stems where the script has stemmers (`mnemotrace.embedders.lexical`), single characters
in Chinese, and Korean words without their endings, so that ``산다`` and ``살고`` meet. What is
not recognised stays as it is written; then two spellings of one word are two words, and whoever
compares is more careful than needed, never less.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from mnemotrace import facts
from mnemotrace.embedders.lexical import tokenize
from mnemotrace.facts import word_set

Keys = frozenset[str]

_PRONOUNS = {
    word: f"<{group[0]}>"
    for group in (
        ["i", "me", "mine", "myself", "i'm", "i've", "i'll", "i'd"],
        ["we", "us", "ours", "we're", "we've", "we'll"],
        ["you", "yours", "you're", "you've"],
        ["he", "him", "he's"],
        ["she", "her", "hers", "she's"],
        ["they", "them", "theirs", "they're", "they've"],
        ["my"], ["our"], ["your"], ["his"], ["their"],
    )
    for word in group
}  # fmt: skip
"""What is mine is not me: "my brother" is another subject than "I"."""
OWNERS = frozenset({"<my>", "<our>", "<your>", "<his>", "<her>", "<their>"})
"""What a clause begins with that is about what belongs to somebody."""
_LINKS = word_set("who which whom whose where when then than there here it's that's since until")
_FILLERS = word_set("now currently already still too also both indeed please well etc")
_CHANGES = word_set(
    "moved move moves changed change changes switched became becomes updated instead"
)
_CHANGE_STEMS = ("이사", "옮", "바뀌", "바꾸", "바꿨", "변경", "搬", "迁", "遷")
"""Words that tell that something is different now; a merged text may leave them out."""

_HEDGES = word_set(
    """if unless or maybe perhaps might may could should would probably possibly almost nearly used
    said says say told tells think thinks thought believe believes believed claim claims claimed
    hope hopes hoped want wants wanted wish wishes plan plans planned try tries tried expect expects
    expected supposed pretends"""
)
"""Words that make another statement of what they stand beside: said, wanted, possible, conditional."""
_CONDITIONS = frozenset({"if", "unless", "만약", "만일", "如果", "若", "もし"})
_HEDGING_PARTS = re.compile(
    r"만약|만일|아마|려고|고\s?싶|라고\s?(?:말|했|한)|다고\s?(?:말|했|한|생각)|[가-힣]면(?![가-힣])"
    r"|如果|若|可能|也许|也許|或者|还是|想|说|說|认为|認為|もし|たい|かもしれ|と言|と思"
)

_FUNCTION = (facts.FUNCTION_WORDS | _LINKS | _FILLERS) - {"or"}
_ROLES = word_set("to from in on by for with since until was were had did will would")
"""Function words that are kept where nothing may differ: direction, role and time."""
_BEFORE_OBJECT = word_set(
    "a an the in at on to of from with by for no not his her their its my our"
)
_DETERMINERS = word_set("a an the this that these those all some every each any no it there")
COPULAS = word_set(
    "is are was were be been has have had will would can could must should may might"
)

_BEING = word_set("is are am be being been i'm we're they're you're isn't aren't not")
_IRREGULAR = word_set(
    """bought ate drank met saw went took gave made wrote paid sold sent got lost won found spent ran
    came flew led left held kept told had knew spoke taught built brought"""
)

_RUN = re.compile(
    r"(?P<hangul>[가-힣]+)|(?P<han>[㐀-䶿一-鿿豈-﫿々]+)|(?P<kata>[ァ-ヺー]+)|(?P<hira>[ぁ-ゟ]+)"
)
_HAN_FUNCTION = frozenset(
    "的了是在和也就都而且并與并与着著过過把被于於为為对對及或这這那之个個所以则則但因此很已曾到至"
)
_HAN_PRONOUNS = frozenset("他她它我你您们們彼")
_HAN_OWNED = re.compile(
    "[们們]?(?:的|[哥弟姐妹爸妈父母儿女妻爷奶叔姑舅姨]|丈夫|朋友|同事|老[板公婆师]|公司|团队|部门)"
)
"""What follows a pronoun that owns it: 我的, 我哥哥, 我们公司."""
_HAN_NEGATIONS = frozenset("不没沒無无未非别勿")
_HANGUL_PRONOUNS = {"내": "<나>", "나": "<나>", "제": "<나>", "우리": "<우리>", "저희": "<우리>"}
_HANGUL_OWNERS = {
    "내": "<나의>", "나의": "<나의>", "제": "<나의>", "우리": "<우리의>", "우리의": "<우리의>",
    "저희": "<우리의>", "저희의": "<우리의>",
}  # fmt: skip
_HANGUL_ROLES = ("에게서", "에서", "에게", "한테", "까지", "부터", "보다", "으로", "로", "에")
_HANGUL_FUNCTION = word_set(
    "그리고 그러나 하지만 그래서 그 이 저 것 및 또 또는 또한 매우 정말 지금 이제 현재"
)
_PARTICLES = sorted(
    word_set(
        """은 는 이 가 을 를 에 의 로 으로 와 과 도 만 나 이나 랑 이랑 에서 에게 한테 께서 까지 부터
        처럼 보다 라고 이라고 에서는 에게서 으로는 로는 에는 에도 에서도 이며 입니다 이에요 예요 이다
        이었다 였다 이고 인"""
    ),
    key=len,
    reverse=True,
)
_ENDINGS = sorted(
    word_set(
        """습니다 니다 는다 다 고 며 면서 지만 는데 은데 아서 어서 서 니까 면 려고 기 지 게 요 아요 어요
        았다 었다 였다 았고 었고 았습니다 었습니다 였습니다 는 은 을 던 자 네 음 고는"""
    ),
    key=len,
    reverse=True,
)
_SUBJECT = ("은", "는", "이", "가", "께서")
_JAPANESE_SUBJECT = ("は", "が", "も")
_AFTER_NOUNS = ("は", "が", "も", "を", "に", "で", "と", "の", "へ", "や", "から", "まで", "だ")
_VERB_ENDINGS = ("다", "요", "고", "며", "지만", "는데")
_KOREAN_COPULAS = ("이다", "입니다", "이에요", "예요", "이었다", "이고", "이며")
_VERB_LAST = re.compile(r"[가-힣ぁ-ゟ]")
_OPENING_PRONOUNS = frozenset(
    (*(f"<{c}>" for c in _HAN_PRONOUNS), *(f"<{c}的>" for c in _HAN_PRONOUNS))
).union(_HANGUL_PRONOUNS.values(), _HANGUL_OWNERS.values())
_JAPANESE_ENDINGS = word_set(
    "です ます でした ました である だ する した して いる ある から まで など"
)

_CLAUSE_END = re.compile(
    r"[,:]\s+|,(?=[㐀-䶿一-鿿가-힣])|(?<=[぀-ヿ㐀-䶿一-鿿豈-﫿가-힣])[,:、]\s*|\s+[-–—]\s+"
    r"|(?<=[가-힣][고며])\s+|(?<=지만)\s+|(?<=는데)\s+"
    r"|\s+(?:and|but|while|because|although)\s+|并且|而且|並且|但是|但",
    re.IGNORECASE,
)
_STARTS_WITH_PRONOUN = re.compile(r"(?:it|its|he|she|they|his|her|their|this)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Term:
    """One word of a clause.

    Attributes:
        keys: what it is found by; any one of them will do.
        place: where it stands among all tokens of the clause, function words counted.
        kind: ``number``, ``date``, ``name`` (a capitalised word), ``word``, ``han`` or ``hangul``.
        unit: which of the clause's inseparable parts it belongs to: the characters of one Chinese
            word are several terms of one unit.
        raw: as it is written, in lower case.
        marks_subject: it has the particle of a subject (은, 는, 이, 가; は, が).
        verbal: it ends like a verb, in Korean and Japanese.
        owner: what follows belongs to it: Bob's, 밥의, 鲍勃的.
    """

    keys: frozenset[str]
    place: int
    kind: str
    unit: int
    raw: str
    marks_subject: bool = False
    verbal: bool = False
    owner: bool = False

    @property
    def is_value(self) -> bool:
        """Whether it is a number or a date, which one can only exchange for another."""
        return self.kind in ("number", "date")


@dataclass(frozen=True, slots=True)
class Clause:
    """A statement, as far as commas and conjunctions tell one from the next.

    Attributes:
        text: as it is written.
        terms: its words without function words, in order.
        tokens: all its tokens in lower case.
        extra: keys of pronouns, roles and tense, for those who compare them too.
        verb_last: it is Korean or Japanese, where values stand before the verb.
        hedges: what makes it less than a plain statement: "if", "may", "said".
        of_pronoun: it begins with a pronoun, so that its first word is none that it is about.
    """

    text: str
    terms: tuple[Term, ...]
    tokens: tuple[str, ...]
    extra: frozenset[str]
    hedges: frozenset[str] = frozenset()
    verb_last: bool = False
    of_pronoun: str = ""

    @property
    def has_own_subject(self) -> bool:
        """Whether it clearly does not go on about the subject of the clause before it."""
        first = self.tokens[0] if self.tokens else ""
        hangul = any(term.kind == "hangul" for term in self.terms)
        return (
            first in _DETERMINERS
            or first in _PRONOUNS
            or any(term.kind == "name" for term in self.terms[:1])
            or (hangul and any(term.marks_subject for term in self.terms[:-1]))
        )

    @property
    def lacks_subject(self) -> bool:
        """Whether it clearly does: "and owns a boat"."""
        if self.terms and self.terms[0].kind == "hangul":
            return not any(term.marks_subject for term in self.terms[:-1])
        if len(self.tokens) < 2 or self.has_own_subject:
            return False
        first, second = self.tokens[:2]
        return first.endswith(("s", "ed")) and (second in _BEFORE_OBJECT or second[0].isdigit())

    def keys(self) -> Keys:
        """Return all keys of its terms."""
        return keys_of(self.terms)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and its clauses.

    Attributes:
        conditions: "if" and the like, which hold for all of its clauses.
    """

    text: str
    clauses: tuple[Clause, ...]
    conditions: frozenset[str]

    @property
    def goes_on(self) -> bool:
        """Whether it begins with a pronoun, so that it is about what the one before is about."""
        return bool(_STARTS_WITH_PRONOUN.match(self.text))

    def extra(self) -> frozenset[str]:
        """Return the keys of its pronouns, roles and tenses."""
        return frozenset(key for clause in self.clauses for key in clause.extra)


@lru_cache(maxsize=64)
def sentences(text: str) -> tuple[Sentence, ...]:
    """Return the sentences of a text, those without any term left out."""
    found: list[Sentence] = []
    for part in facts.sentences(text):
        if clauses := tuple(_clauses(part)):
            hedges = frozenset().union(*(clause.hedges for clause in clauses))
            found.append(Sentence(part, clauses, _CONDITIONS & hedges))
    return tuple(found)


def is_filler(term: Term) -> bool:
    """Tell whether a merged text may leave a word out: it only says that something changed."""
    return term.raw in _CHANGES or term.raw.startswith(_CHANGE_STEMS)


def keys_of(terms: Iterable[Term]) -> Keys:
    """Return all keys of some terms."""
    return frozenset(key for term in terms for key in term.keys)


def alike(term: Term, other: Term) -> bool:
    """Tell whether two words are the same, and both own what follows or neither does."""
    return term.owner == other.owner and not term.keys.isdisjoint(other.keys)


def is_past(term: Term) -> bool:
    """Tell whether a word has the form of the past tense, in English."""
    raw = term.raw
    if raw in _IRREGULAR:
        return True
    return raw.isascii() and raw.endswith("ed") and not raw.endswith("eed") and len(raw) > 3


class _Said(Protocol):
    @property
    def terms(self) -> tuple[Term, ...]: ...
    @property
    def extra(self) -> frozenset[str]: ...


def is_over(said: _Said) -> bool:
    """Tell whether a statement is about the past: what was says nothing about what is.

    A word such as "moved" tells what is now.
    """
    return "<past>" in said.extra and not any(map(is_filler, said.terms))


def _clauses(sentence: str) -> Iterator[Clause]:
    """Yield the clauses of a sentence; a piece of one word is no clause of its own."""
    edges = [0]
    for match in _CLAUSE_END.finditer(sentence):
        edges += match.span()
    edges.append(len(sentence))
    pieces = list(zip(edges[::2], edges[1::2], strict=True))
    words = [_units(sentence[left:right]) for left, right in pieces]
    start: int | None = None
    here, left_over = 0, sum(words)
    for (begin, end), count in zip(pieces, words, strict=True):
        start = begin if start is None else start
        here += count
        left_over -= count
        if end < len(sentence) and (here < 2 or left_over < 2):
            continue
        clause = _clause(sentence[start:end])
        if clause.terms:
            yield clause
        start, here = None, 0


def _units(piece: str) -> int:
    """Count the words of a piece; two Chinese characters are about one."""
    terms = _clause(piece).terms
    characters = sum(term.kind == "han" for term in terms)
    return len({term.unit for term in terms if term.kind != "han"}) + (characters + 1) // 2


@lru_cache(maxsize=1024)
def _clause(text: str) -> Clause:
    terms: list[Term] = []
    tokens: list[str] = []
    extra: set[str] = set()
    unit = 0
    verb_last = False
    pronoun = ""
    written = facts.words(text)
    for index, token in enumerate(written):
        lower = token.casefold()
        if token in _PARTICLES and tokens and tokens[-1].isascii() and tokens[-1].isalpha():
            # Of the Latin word before it: MySQL로, Tom이.
            tokens.append(token)
            extra.update(_roles(f" {token}"))
            if token in _SUBJECT and terms:
                terms[-1] = replace(terms[-1], marks_subject=True)
            if token == "의" and terms:
                terms[-1] = replace(terms[-1], owner=True)
            continue
        if _RUN.match(token):
            for run, piece, keys in _pieces(token):
                terms += (replace(t, place=len(tokens), unit=len(tokens)) for t in piece)
                extra.update(keys)
                if not terms and not pronoun:
                    pronoun = next((k for k in keys if k in _OPENING_PRONOUNS), "")
                tokens.append(run)
            verb_last = verb_last or bool(_VERB_LAST.search(token))
            continue
        unit = len(tokens)
        tokens.append(lower)
        if lower in _PRONOUNS:
            key = "<her>" if lower == "her" and not terms else _PRONOUNS[lower]
            extra.add(key)
            if not terms:
                pronoun = pronoun or key
        elif facts.negates(lower):
            pass  # compared clause by clause
        elif lower in _FUNCTION and not (
            token == "A" and not COPULAS.isdisjoint(written[index + 1 : index + 2])
        ):  # "A is 3": then it is a name
            if lower in _ROLES:
                extra.add(f"<{lower}>")
        else:
            owner = lower.endswith(("'s", "s'"))
            term = Term(_keys(lower), unit, _kind(token), unit, lower, owner=owner)
            terms.append(term)
            before = tokens[-2] if len(tokens) > 1 else ""
            being = before in _BEING or before.endswith("'s")
            if term.kind == "word" and is_past(term) and not being:
                extra.add("<past>")
    certain = [word.casefold() for n, word in enumerate(written) if not (n and word == "May")]
    hedges = _HEDGES.intersection(certain).union(_HEDGING_PARTS.findall(text))
    return Clause(text, tuple(terms), tuple(tokens), frozenset(extra), hedges, verb_last, pronoun)


def _kind(token: str) -> str:
    lower = token.casefold()
    if lower.lstrip("-")[:1].isdigit():
        return "number"
    if lower in facts.CALENDAR:
        return "date"
    return "name" if token[0].isupper() else "word"


@lru_cache(maxsize=1 << 14)
def _keys(word: str) -> frozenset[str]:
    if word.lstrip("-")[:1].isdigit():
        return frozenset({word})
    stems = tokenize(word)
    return frozenset(stems[:1] or [word])


_Piece = tuple[str, list[Term], list[str]]


def _pieces(token: str) -> Iterator[_Piece]:
    """Yield the words of a run of Korean, Chinese or Japanese: as written, terms, keys beside them.

    A piece without terms is a function word or a pronoun; places and units are not set yet.
    """
    runs = [(match.lastgroup, match[0]) for match in _RUN.finditer(token)]
    for index, (script, run) in enumerate(runs):
        after = runs[index + 1][1] if index + 1 < len(runs) and runs[index + 1][0] == "hira" else ""
        if script == "hangul":
            yield _hangul_piece(run)
        elif script == "han":
            yield from _han_pieces(run, after)
        elif script == "kata":
            yield run, [_term(run, "word", after.startswith(_JAPANESE_SUBJECT))], []
        elif index and runs[index - 1][0] in ("han", "kata"):
            yield run, [], []  # particles and endings
        elif len(run) > 2 and run not in _JAPANESE_ENDINGS:
            yield run, [_term(run, "word", False)], []
        else:
            yield run, [], []


def _term(key: str, kind: str, marks_subject: bool) -> Term:
    return Term(frozenset({key}), 0, kind, 0, key, marks_subject)


def _hangul_piece(run: str) -> _Piece:
    pronoun = _HANGUL_OWNERS.get(run) or _HANGUL_PRONOUNS.get(run) or _HANGUL_PRONOUNS.get(run[:-1])
    if pronoun:
        return run, [], [pronoun]
    if run in _HANGUL_FUNCTION:
        return run, [], []
    subject = len(run) > 1 and run.endswith(_SUBJECT)
    verbal = run.endswith(_VERB_ENDINGS) and not run.endswith(_KOREAN_COPULAS)
    owner = len(run) > 1 and run.endswith("의")
    term = Term(hangul_keys(run), 0, "hangul", 0, run, subject, verbal, owner)
    return run, [term], list(_roles(run))


def _han_pieces(run: str, after: str) -> Iterator[_Piece]:
    word: list[Term] = []
    for place, character in enumerate(run):
        if character in _HAN_PRONOUNS or character in _HAN_NEGATIONS or character in _HAN_FUNCTION:
            if word:
                owner = character == "的"
                yield (
                    "".join(term.raw for term in word),
                    [replace(term, owner=owner) for term in word],
                    [],
                )
                word = []
            keys: list[str] = []
            if character in _HAN_PRONOUNS:
                owner = bool(_HAN_OWNED.match(run, place + 1))
                keys = [f"<{character}{'的' * owner}>"]
            yield character, [], keys
        else:
            word.append(_term(character, "han", False))
    if word:
        subject = after.startswith(_JAPANESE_SUBJECT)
        verbal = bool(after) and not after.startswith(_AFTER_NOUNS)
        owner = after.startswith("の")
        yield (
            "".join(term.raw for term in word),
            [replace(term, marks_subject=subject, verbal=verbal, owner=owner) for term in word],
            [],
        )


@lru_cache(maxsize=1 << 14)
def hangul_keys(word: str) -> frozenset[str]:
    """Return a Korean word as it is, without a particle, and as the stem of a verb."""
    found = {word}
    for particle in _PARTICLES:
        if word.endswith(particle) and len(word) > len(particle):
            found.add(word[: -len(particle)])
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) > len(ending):
            stem = word[: -len(ending)]
            # The last syllable of a stem changes: 산다, 살고; 마신다, 마셔요; 좋아한다, 좋아해요.
            last = unicodedata.normalize("NFD", stem[-1])
            found.add(f"{stem[:-1]}{last[0]}" if len(stem) > 1 else last[:2])
    return frozenset(found)


def _roles(word: str) -> Iterator[str]:
    """Yield keys for the particle of direction or role of a Korean word, and for its tense."""
    for particle in _HANGUL_ROLES:
        if word.endswith(particle) and len(word) > len(particle):
            yield f"<{particle}>"
            break
    for syllable in word:
        if syllable == "겠":
            yield "<future>"
        elif (ord(syllable) - 0xAC00) % 28 == 20 and syllable != "있":  # it ends in ㅆ
            yield "<past>"
