"""What must not be lost when texts are merged: numbers, negations, dates, units and names.

Two sentences can be nearly identical for an embedding and state opposite things. These pure
functions compare the words on which facts turn; they never prove equality, they only forbid a
merge or a drop that could lose one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Words that turn a statement round, in the languages our users write.
_NEGATIONS = _set(
    """
    not no never none neither nor without cannot can't won't don't doesn't didn't isn't
    aren't wasn't weren't hasn't haven't hadn't wouldn't couldn't shouldn't nobody nothing
    nowhere unable hardly stopped quit former formerly except unless against
    """
)
_CALENDAR = _set(
    """
    january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday
    friday saturday sunday mon tue tues wed thu thur thurs fri sat sun today tomorrow
    yesterday tonight morning afternoon evening night am pm bc ad weekly daily monthly
    yearly
    """
)
_UNITS = _set(
    """
    ms sec second seconds min minute minutes hour hours day days week weeks month months
    year years mm cm m km inch inches feet ft mile miles g kg lb lbs oz ton tons ml l litre
    litres liter liters gb mb kb tb gib mib percent degrees celsius fahrenheit usd eur krw
    cny jpy won yen yuan dollar dollars euro euros thousand million billion k
    """
)
# Words that carry nothing of their own; a difference in these alone is no difference.
_FUNCTION_WORDS = _set(
    """
    a an the is are was were be been being am to of in on at for and or that this it its
    with as by from has have had will would do does did so very really just also
    indeed actually basically simply
    """
)
# Words whose opposite, or absence, turns a statement: two texts of a batch that differ in one of
# these are two facts. A merge may reword them.
_TURNING = _set(
    """
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
_SCRIPTS = re.compile(r"[぀-ヿ㐀-䶿一-鿿豈-﫿가-힯ᄀ-ᇿ]+")
_TOKEN = re.compile(
    r"[぀-ヿ㐀-䶿一-鿿豈-﫿가-힯ᄀ-ᇿ]+"
    r"|(?:(?<!\w)[-−])?\d+(?:[.,:/\-]\d+)*"
    r"|[^\W\d_]+(?:['’][^\W\d_]+)*"
    r"|[^\w\s.,;:!?\"'’“”()\[\]{}·。、，；：！？…\-–—]"
)


def _number(token: str) -> str:
    """Write a number one way: ``1,000`` and ``1000`` are the same, ``1.5`` and ``15`` are not."""
    token = token.replace("−", "-")
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+", token):
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
            or lower in _NEGATIONS
            or lower.endswith("n't")
            or lower in _CALENDAR
            or lower in _UNITS
            or (token[0].isupper() and lower not in _FUNCTION_WORDS)
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
    return [word for word in kept if word not in _FUNCTION_WORDS or word in _TURNING]


def covers(survivor: str, text: str) -> bool:
    """Tell whether every protected term of `text` is also in `survivor`."""
    return not missing_terms(survivor, text)


def missing_terms(survivor: str, text: str) -> set[str]:
    """Return the protected terms of `text` that are not in `survivor`."""
    present = {word.casefold() for word in words(survivor)}
    joined = unicodedata.normalize("NFKC", survivor).casefold()
    return {
        term
        for term in protected_terms(text)
        if term not in present and not (_SCRIPTS.match(term) and term in joined)
    }


def may_replace(merged: str, old: str, new: str) -> bool:
    """Tell whether a merged text may stand for an old and a new one.

    It must have every protected term of the new text, and those of the old one but for values that
    the new text replaces: as many as it brings itself, numbers for numbers (``14`` becomes ``16``).
    So a merge cannot cut off what else the old text says, at its end for instance.
    """
    if not covers(merged, new):
        return False
    lost = missing_terms(merged, old)
    brought = protected_terms(new).keys() - protected_terms(old).keys()
    return len(lost) <= len(brought) and _numbers(lost) <= _numbers(brought)


def _numbers(terms: Iterable[str]) -> int:
    return sum(term.removeprefix("-")[:1].isdigit() for term in terms)
