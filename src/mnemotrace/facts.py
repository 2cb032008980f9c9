"""What must not be lost when texts are merged: numbers, negations, dates, units and names.

Two sentences can be nearly identical for an embedding and state opposite things. These pure
functions compare the words on which facts turn; they never prove equality, they only forbid a
merge or a drop that could lose one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass


def word_set(words: str) -> frozenset[str]:
    """Return the words of a list that is written with spaces between."""
    return frozenset(words.split())


# Words that turn a statement round, in the languages our users write.
NEGATIONS = word_set(
    """
    not no never none neither nor without cannot can't won't don't doesn't didn't isn't
    aren't wasn't weren't hasn't haven't hadn't wouldn't couldn't shouldn't nobody nothing
    nowhere unable hardly stopped quit former formerly except unless against
    """
)
CALENDAR = word_set(
    """
    january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday
    friday saturday sunday mon tue tues wed thu thur thurs fri sat sun today tomorrow
    yesterday tonight morning afternoon evening night am pm bc ad weekly daily monthly
    yearly
    """
)
_UNITS = word_set(
    """
    ms sec second seconds min minute minutes hour hours day days week weeks month months
    year years mm cm m km inch inches feet ft mile miles g kg lb lbs oz ton tons ml l litre
    litres liter liters gb mb kb tb gib mib percent degrees celsius fahrenheit usd eur krw
    cny jpy won yen yuan dollar dollars euro euros thousand million billion k
    """
)
# Words that carry nothing of their own; a difference in these alone is no difference.
FUNCTION_WORDS = word_set(
    """
    a an the is are was were be been being am to of in on at for and or that this it its
    with as by from has have had will would do does did so very really just also
    indeed actually basically simply
    """
)
# Words whose opposite, or absence, turns a statement: two texts of a batch that differ in one of
# these are two facts. A merge may reword them.
TURNING = word_set(
    """
    was were had did will would or by for with
    to from in out on off up down into before after since until more less most least over under
    above below left right all some every each only with yes true false open opened opens close
    closed closes start started starts end ended ends stop enable enabled disable disabled allow
    allowed allows deny denied forbid forbidden accept accepted reject rejected approve approved
    love loves like likes hate hates dislike dislikes prefer prefers avoid avoids always sometimes
    often rarely seldom increase increased decrease decreased rise rose fall fell gain gained lost
    lose win won buy bought sell sold first last high higher low lower max min hot cold new old
    best worst good bad safe unsafe present absent empty full public private alive dead able
    """
)
# Opposites: a text with a word of one side does not say what a text with one of the other says.
OPPOSITES = tuple(
    (word_set(one), word_set(other))
    for one, other in (
        ("like likes liked love loves loved enjoy enjoys", "dislike dislikes disliked hate hates hated"),
        ("open opens opened", "close closes closed shut"),
        ("start starts started begin begins began", "stop stops stopped end ends ended quit"),
        ("enable enables enabled on active", "disable disables disabled off inactive"),
        ("allow allows allowed permit permits permitted",
         "deny denies denied forbid forbids forbidden disallow disallowed prohibited banned"),
        ("accept accepts accepted approve approves approved", "reject rejects rejected declined"),
        ("increase increases increased rise rises rose rising grow grew gain gained",
         "decrease decreases decreased fall falls fell falling drop dropped shrink shrank lost"),
        ("before", "after"),
        ("above over", "below under"),
        ("buy buys bought", "sell sells sold"),
        ("always", "never"),
        ("true yes", "false no"),
        ("high higher highest max maximum", "low lower lowest min minimum"),
        ("more most", "less least"),
        ("hot warm", "cold cool"),
        ("first", "last"),
        ("best good", "worst bad"),
        ("safe", "unsafe dangerous"),
        ("present", "absent"),
        ("empty", "full"),
        ("public", "private"),
        ("alive", "dead"),
        ("win wins won", "lose loses lost"),
        ("able can", "unable cannot can't"),
        ("left", "right"),
        ("include includes included with", "exclude excludes excluded without"),
        ("pass passes passed succeed succeeds succeeded", "fail fails failed"),
        ("up", "down"),
    )
)  # fmt: skip
_OPPOSITE_PARTS = (
    ("좋아", "싫어"), ("허용", "금지"), ("찬성", "반대"), ("증가", "감소"), ("성공", "실패"),
    ("喜欢", "讨厌"), ("允许", "禁止"), ("同意", "反对"), ("增加", "减少"), ("成功", "失败"),
    ("好き", "嫌い"), ("許可", "禁止"), ("賛成", "反対"), ("増加", "減少"), ("成功", "失敗"),
)  # fmt: skip
"""The same for scripts in which words are not told apart by spaces: parts of a text."""
_NEGATING_PARTS = re.compile(
    r"[不没沒无無未非别勿]|않|없|못|아니|(?<![가-힣])안(?![가-힣])|지\s?마|ない|なく|なかっ|ません"
)
_CJK = "぀-ヿ㐀-䶿一-鿿豈-﫿가-힯ᄀ-ᇿ"
_SENTENCE_END = re.compile(r"[.!?;]+(?=\s|$)|(?<=[぀-ヿ㐀-䶿一-鿿豈-﫿가-힯])[!?;]+|[。！？；\n]+")
_SCRIPTS = re.compile(rf"[{_CJK}]+")
_LETTERS = rf"(?:(?![{_CJK}])[^\W\d_])+"
_TOKEN = re.compile(
    rf"[{_CJK}]+"
    r"|(?:(?<!\w)[-−])?\d+(?:[.,:/\-]\d+)*"
    rf"|{_LETTERS}(?:['’]{_LETTERS})*"
    r"|[^\w\s.,;:!?\"'’“”()\[\]{}·。、，；：！？…\-–—]"
)


def _number(token: str) -> str:
    """Write a number one way: ``1,000`` and ``1000`` are the same, ``1.5`` and ``15`` are not."""
    token = token.replace("−", "-")
    if "," in token and re.fullmatch(r"-?\d{1,3}(?:,\d{3})+", token):
        return token.replace(",", "")
    return token


def words(text: str) -> list[str]:
    """Split a text into words, numbers and symbols, case kept, numbers in one spelling."""
    plain = unicodedata.normalize("NFKC", text).replace("’", "'")
    return [_number(token) for token in _TOKEN.findall(plain)]


def protected_terms(text: str) -> Counter[str]:
    """Return the words of a text on which its facts turn, with their counts.

    Numbers, negations, calendar words, units, capitalised words (names), symbols such as emoji or
    currency signs, and every word in Korean, Chinese or Japanese, where names and negation cannot
    be told apart by their looks.
    """
    found: Counter[str] = Counter()
    for token in words(text):
        lower = token.casefold()
        if (
            token[0].isdigit()
            or lower in NEGATIONS
            or lower.endswith("n't")
            or lower in CALENDAR
            or lower in _UNITS
            or (token[0].isupper() and lower not in FUNCTION_WORDS)
            or _SCRIPTS.match(token)
            or not token[0].isalnum()
        ):
            found[lower] += 1
    return found


def may_be_duplicates(first: str, second: str) -> bool:
    """Tell whether two near-identical texts may be treated as one.

    Returns:
        True only when they hold the same words in the same order, but for function words, case and
        punctuation: any other difference, in a number, a name or who owes whom, may be a fact.
    """
    return telling_words(first) == telling_words(second)


def telling_words(text: str) -> tuple[str, ...]:
    """Return the words that two texts must share, in order, to be duplicates of each other."""
    return tuple(_telling(words(text)))


def _telling(tokens: list[str]) -> list[str]:
    kept = (token.casefold() for token in tokens)
    return [word for word in kept if word not in FUNCTION_WORDS or word in TURNING]


def covers(survivor: str, text: str) -> bool:
    """Tell whether `survivor` may stand for `text`.

    It must have every protected term of `text`, and must not say the opposite.
    """
    return not missing_terms(survivor, text) and not contradicts(survivor, text)


def contradicts(survivor: str, text: str) -> bool:
    """Tell whether a sentence of `text` seems to be said the other way round in `survivor`.

    When in doubt the answer is True: a text that is kept twice costs less than one that is lost.
    """
    return next(contradicted(survivor, text), None) is not None


def contradicted(survivor: str, text: str) -> Iterator[str]:
    """Yield the sentences of `text` that seem to be said the other way round in `survivor`.

    Each sentence is compared with the one in `survivor` that shares the most words with it: they
    must be negated equally often, and hold no opposites (``open``, ``closed``).
    """
    there = {part: Sentence.of(part) for part in sentences(survivor)}
    where: dict[str, list[str]] = {}
    for part, sentence in there.items():
        for term in sentence.topic:
            where.setdefault(term, []).append(part)
    for part in dict.fromkeys(sentences(text)):
        if part in there:
            continue
        said = Sentence.of(part)
        shared: Counter[str] = Counter()
        for term in said.topic:
            shared.update(where.get(term, ()))
        most = max(shared.values(), default=0)
        nearest = [there[other] for other, count in shared.items() if count == most]
        if nearest and not any(said.agrees(other) for other in nearest):
            yield part


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, in NFKC, without what ends them."""
    plain = unicodedata.normalize("NFKC", text)
    return [part for text in _SENTENCE_END.split(plain) if (part := text.strip())]


@dataclass(frozen=True, slots=True)
class Sentence:
    """What a sentence is about, and how often it is negated."""

    text: str
    topic: frozenset[str]
    """What it is about: its words but for negations, character pairs where there are no spaces."""
    words: frozenset[str]
    negations: int

    @classmethod
    def of(cls, text: str) -> Sentence:
        """Return what this text says, taken as one sentence."""
        tokens = [token.casefold() for token in words(text)]
        topic: set[str] = set()
        for token in tokens:
            if _SCRIPTS.match(token):
                topic.update(token[i : i + 2] for i in range(max(len(token) - 1, 1)))
            elif not negates(token) and token not in FUNCTION_WORDS and token[0].isalnum():
                topic.add(token)
        negations = sum(negates(token) for token in tokens)
        negations += len(_NEGATING_PARTS.findall(text))
        return cls(text, frozenset(topic), frozenset(tokens), negations)

    def agrees(self, other: Sentence) -> bool:
        """Tell whether nothing shows that the two say opposite things."""
        if self.negations != other.negations:
            return False
        for one, two in OPPOSITES:
            for side, contrary in ((one, two), (two, one)):
                if (
                    self.words & side
                    and other.words & contrary
                    and not other.words & side
                    and not self.words & contrary
                ):
                    return False
        for left, right in _OPPOSITE_PARTS:
            here = (left in self.text, right in self.text)
            if True in here and here == (right in other.text, left in other.text):
                return here[0] and here[1]
        return True


def negates(token: str) -> bool:
    """Tell whether a word, in lower case, turns a statement round."""
    return token in NEGATIONS or token.endswith("n't")


def missing_terms(survivor: str, text: str) -> set[str]:
    """Return the protected terms of `text` that are not in `survivor`."""
    present = {word.casefold() for word in words(survivor)}
    joined = unicodedata.normalize("NFKC", survivor).casefold()
    return {
        term
        for term in protected_terms(text)
        if term not in present and not (_SCRIPTS.match(term) and term in joined)
    }


def invented_terms(merged: str, *texts: str) -> set[str]:
    """Return the numbers, negations and names of `merged` that none of `texts` has.

    A name is a capitalised word within a sentence; in scripts without capitals none is told.
    """
    known = {word.casefold() for text in texts for word in words(text)}
    found: set[str] = set()
    for sentence in sentences(merged):
        for place, token in enumerate(words(sentence)):
            lower = token.casefold()
            name = place > 0 and len(token) > 1 and token[0].isupper()
            number = token.removeprefix("-")[:1].isdigit()
            if lower not in known and (name or number or negates(lower)):
                found.add(lower)
    return found
