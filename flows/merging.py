"""Whether one text may stand for another: what a model decides is only done where nothing is lost.

Pure functions over clauses (`clauses`). They know no meaning. They look for the words of every
statement, in one clause or sentence of the other text, negated as often; and where words are
missing, for the shape of an update: what the statement is about is still there, and its value has
become another one that the new text brings ("lives in Paris", "lives in Rome"). Whatever is in
doubt is refused. Then both texts stay as records, which costs a repetition at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from mnemotrace import facts
from mnemotrace.facts import word_set

from .changes import Change, is_changed
from .clauses import COPULAS, Clause, Sentence, Term, is_filler, is_over, is_past, sentences
from .predicates import ATTRIBUTES, GROUPS, MORE_OF, PREPOSITIONS, one_place, one_value

Keys = frozenset[str]

_ARTICLES = frozenset({"a", "an", "the"})
_PLACING = frozenset("在是为為於于叫")
_NAMING = frozenset("是为為")
_A = word_set("a an another one")
_HAVING = word_set("has have had")

MOST_JOINED = 400
"""Characters of a record with several wordings of one fact."""
_STOPS = frozenset(".!?。！？…")

_MOST_NEAR = 8
"""Places of a text that are looked at for a statement that it does not repeat."""
_NOWHERE: set[int] = set()


class _End(NamedTuple):
    """Words that tell of an end, and of what: parts of the text where there are no stems."""

    change: Keys
    change_parts: tuple[str, ...]
    ended: Keys
    ended_parts: tuple[str, ...]


_ENDS = (
    _End(
        word_set("move reloc return"), ("이사", "옮", "搬", "迁", "遷"),
        word_set("live resid stay base locat"), ("살", "산다", "사는", "거주", "住"),
    ),
    _End(
        word_set("join left leav quit retir resign hire"),
        ("이직", "입사", "퇴사", "离职", "離職", "加入", "退休"),
        word_set("work employ"), ("일하", "일한", "근무", "다니", "工作", "上班"),
    ),
    _End(
        word_set("cancel abandon obsolet"), ("취소", "폐지", "取消", "废", "廢"),
        frozenset(), ("",),
    ),
)  # fmt: skip


class _Window(NamedTuple):
    """A clause or a sentence of a text in which another statement is looked for."""

    keys: Keys
    extra: Keys
    said: facts.Sentence
    terms: tuple[Term, ...]
    hedges: Keys
    whole: bool = False
    """It is several clauses, which say what they say together."""

    def has(self, term: Term) -> bool:
        return not self.keys.isdisjoint(term.keys)


@dataclass(frozen=True, slots=True)
class _Unit:
    """A word of a clause: one term, or the characters of one Chinese word."""

    terms: tuple[Term, ...]
    missing: bool

    @property
    def is_value(self) -> bool:
        return self.terms[0].is_value


class _Text:
    """A text as windows, found by the keys in them."""

    def __init__(self, windows: Iterable[_Window]) -> None:
        self._windows = list(windows)
        self._by_key: dict[str, set[int]] = {}
        for index, window in enumerate(self._windows):
            for key in window.keys:
                self._by_key.setdefault(key, set()).add(index)

    def near(self, terms: Iterable[Term]) -> list[_Window]:
        """Return the windows that have most of these terms, at most so many."""
        shared = Counter(i for term in terms for i in self._where(term))
        best = sorted(shared, key=lambda index: (-shared[index], index))[:_MOST_NEAR]
        return [self._windows[index] for index in best]

    def of(self, pronoun: str) -> list[_Window]:
        """Return the windows with this pronoun."""
        return [window for window in self._windows if pronoun in window.extra]

    def around(self, terms: tuple[Term, ...]) -> list[_Window]:
        """Return the windows that have all of these terms."""
        if not terms:
            return []
        rarest = min((self._where(term) for term in terms), key=len)
        found = (self._windows[index] for index in sorted(rarest))
        return [window for window in found if all(map(window.has, terms))]

    def _where(self, term: Term) -> set[int]:
        if len(term.keys) == 1:
            return self._by_key.get(next(iter(term.keys)), _NOWHERE)
        return _NOWHERE.union(*(self._by_key.get(key, ()) for key in term.keys))


def says_all(survivor: str, text: str) -> bool:
    """Tell whether a text says everything that another one does, so that this can be left out.

    Every sentence must be in one clause of the survivor, word by word and in order, function words
    aside; or each of its clauses must, with the subject that it goes on about. Pronouns, tense,
    direction and negation must be the same. Other words for the same thing are other words.
    """
    if facts.contradicts(survivor, text):
        return False
    there = _Text(_strict_windows(survivor))
    for sentence in sentences(text):
        if _is_said(_whole(sentence), there):
            continue
        if len(sentence.clauses) < 2 or not all(
            _is_said(part, there) for part in _with_subjects(sentence)
        ):
            return False
    return bool(sentences(text)) or survivor.split() == text.split()


def may_replace(merged: str, old: str, new: str, change: Change | None = None) -> bool:
    """Tell whether a merged text may stand for an old and a new one.

    Every clause of the new text must be in it, and every clause of the old one, unless the new one
    speaks of the same thing: it says the opposite, or gives another value. It must not bring
    numbers, negations or names of its own, nor be much longer than both.

    Args:
        change: what the model says has changed; believed where its quotes fit (`changes`).
    """
    if len(merged) > 1.5 * (len(old) + len(new)) + 100 or facts.invented_terms(merged, old, new):
        return False
    there, said = _Text(_windows(merged)), _Text(_windows(new))
    if not all(_survives(clause, hedges, there) for clause, hedges in _clauses(new)):
        return False
    return all(
        _survives(clause, hedges, there)
        or _is_replaced(clause, there, said)
        or (change is not None and is_changed(clause, hedges, new, change))
        for clause, hedges in _clauses(old)
    )


def joined(old: str, new: str) -> str:
    """Return both texts in a row, for a model that says they mean the same in other words.

    Returns:
        Nothing where they cannot: another number, date, name or negation, no word in common, or
        too long a text. What is joined by mistake loses nothing.
    """
    both = f"{old.rstrip()}{'' if old.rstrip()[-1:] in _STOPS else '.'} {new.strip()}"
    if len(both) > MOST_JOINED or facts.contradicts(old, new) or facts.contradicts(new, old):
        return ""
    before, after = (
        [term for sentence in sentences(text) for part in sentence.clauses for term in part.terms]
        for text in (old, new)
    )
    if not all(map(_same_particulars, (before, after), (after, before))):
        return ""
    names = tuple(term for term in before if term.kind == "name")
    shared = frozenset(key for term in before for key in term.keys)
    if not _in_order(tuple(t for t in names if not _starts(t)), tuple(after)):
        return ""
    return both if any(not shared.isdisjoint(term.keys) for term in after) else ""


def _same_particulars(terms: list[Term], others: list[Term]) -> bool:
    """Tell whether all numbers, dates and names are among other words."""
    return all(
        any(not term.keys.isdisjoint(other.keys) for other in others)
        for term in terms
        if term.kind in ("number", "date", "name")
    )


def _starts(term: Term) -> bool:
    """Tell whether a word begins its clause, where any word has a capital."""
    return term.place == 0


def outdates(new: str, old: str, change: Change | None = None) -> bool:
    """Tell whether a new text outdates all of an old one, so that this may be retired.

    Every clause of the old text must be said again, be given another value, be contradicted, or be
    ended ("moved", "cancelled"). One that the new text does not speak of keeps the record.

    Args:
        change: what the model says has changed; believed where its quotes fit (`changes`).
    """
    said = _Text(_windows(new))
    return all(
        _survives(clause, hedges, said)
        or _is_replaced(clause, said, said)
        or _is_ended(clause, said)
        or (change is not None and is_changed(clause, hedges, new, change))
        for clause, hedges in _clauses(old)
    )


# -- saying all of a text ------------------------------------------------------------------------


def _strict_windows(text: str) -> Iterator[_Window]:
    """Yield the clauses of a text, each with its subject where it has clearly none of its own."""
    for sentence in sentences(text):
        first = sentence.clauses[0]
        for index, clause in enumerate(sentence.clauses):
            terms, extra = clause.terms, clause.extra
            if index and clause.lacks_subject:
                terms, extra = (*_subject(first), *terms), extra | first.extra
            yield _window(terms, extra, clause.text, clause.hedges | sentence.conditions)
        if len(sentence.clauses) > 1:
            yield _whole(sentence)._replace(whole=True)


def _window(terms: tuple[Term, ...], extra: Keys, text: str, hedges: Keys) -> _Window:
    keys = frozenset(key for term in terms for key in term.keys)
    return _Window(keys, extra, facts.Sentence.of(text), terms, hedges)


def _all_hedges(sentence: Sentence) -> Keys:
    return frozenset(hedge for clause in sentence.clauses for hedge in clause.hedges)


def _whole(sentence: Sentence) -> _Window:
    terms = tuple(term for clause in sentence.clauses for term in clause.terms)
    return _window(terms, sentence.extra(), sentence.text, _all_hedges(sentence))


def _with_subjects(sentence: Sentence) -> Iterator[_Window]:
    """Yield the clauses of a sentence, each with the subject of the first in case it needs it."""
    first = sentence.clauses[0]
    for index, clause in enumerate(sentence.clauses):
        terms = clause.terms
        if index and not clause.has_own_subject:
            terms = (*_subject(first), *terms)
        yield _window(terms, clause.extra, clause.text, clause.hedges | sentence.conditions)


def _is_said(part: _Window, there: _Text) -> bool:
    return any(
        part.extra <= window.extra
        and part.hedges == window.hedges
        and part.said.negations == window.said.negations
        and (_repeats if window.whole else _in_order)(part.terms, window.terms)
        for window in there.around(part.terms)
    )


def _repeats(terms: tuple[Term, ...], there: tuple[Term, ...]) -> bool:
    """Tell whether terms stand in this order with nothing between."""
    starts = range(len(there) - len(terms) + 1)
    return any(all(map(_same, terms, there[i : i + len(terms)])) for i in starts)


def _same(term: Term, other: Term) -> bool:
    """Tell whether two words are the same in the same role, and verbs in the same tense."""
    return (
        not term.keys.isdisjoint(other.keys)
        and term.marks_subject <= other.marks_subject
        and (term.kind not in ("word", "name") or is_past(term) == is_past(other))
    )


def _in_order(terms: tuple[Term, ...], there: tuple[Term, ...]) -> bool:
    """Tell whether terms stand in this order, with others between; subjects must be subjects."""
    position = iter(there)
    return all(any(_same(term, other) for other in position) for term in terms)


# -- merging -------------------------------------------------------------------------------------


def _clauses(text: str) -> Iterator[tuple[Clause, Keys]]:
    """Yield the clauses of a text, each with its hedges."""
    for sentence in sentences(text):
        for clause in sentence.clauses:
            yield clause, clause.hedges | sentence.conditions


def _windows(text: str) -> Iterator[_Window]:
    """Yield clauses, sentences, and sentences with the next one where that goes on with them."""
    found = sentences(text)
    for index, sentence in enumerate(found):
        if len(sentence.clauses) > 1:
            first = sentence.clauses[0]
            for clause in sentence.clauses:
                hedges = clause.hedges | sentence.conditions
                yield _window(clause.terms, clause.extra, clause.text, hedges)
                if clause is not first and (clause.lacks_subject or clause.terms[0].is_value):
                    terms = (*_subject(first), *clause.terms)
                    yield _window(terms, clause.extra | first.extra, clause.text, hedges)
        whole = _whole(sentence)._replace(whole=len(sentence.clauses) > 1)
        yield whole
        if index + 1 < len(found) and found[index + 1].goes_on:
            after = _whole(found[index + 1])
            yield _window(
                (*whole.terms, *after.terms), whole.extra | after.extra,
                f"{sentence.text} {found[index + 1].text}", whole.hedges | after.hedges,
            )._replace(whole=True)  # fmt: skip


def _survives(clause: Clause, hedges: Keys, there: _Text) -> bool:
    """Tell whether a clause is still said: all its words at one place, negated as often.

    It must be as certain, too: neither said by somebody, nor possible, nor on a condition.
    """
    terms = tuple(term for term in clause.terms if not is_filler(term))
    said = facts.Sentence.of(clause.text)
    return not terms or any(
        said.agrees(window.said) and hedges == window.hedges and _belong_together(terms, window)
        for window in there.around(terms)
    )


def _belong_together(terms: tuple[Term, ...], window: _Window) -> bool:
    """Tell whether words that a window has are said of each other there, as they were.

    Names stand in the same order: who owes whom. Where a window is several clauses, all words but
    numbers and dates do, and these stand between the same words, unless the window has no other
    number, or date, that they could be confused with.
    """
    if not window.whole:
        names = tuple(term for term in terms if term.kind == "name")
        return len(names) < 2 or _in_order(names, window.terms)
    if not _in_order(tuple(term for term in terms if not term.is_value), window.terms):
        return False
    return all(
        _stands_beside(terms, index, window)
        for index, term in enumerate(terms)
        if term.is_value
        and any(
            other.kind == term.kind and other.keys.isdisjoint(term.keys) for other in window.terms
        )
    )


def _stands_beside(terms: tuple[Term, ...], index: int, window: _Window) -> bool:
    """Tell whether a value of a clause has the same neighbours in a window."""
    return any(
        not other.keys.isdisjoint(terms[index].keys)
        and all(
            0 <= place + side < len(window.terms)
            and not terms[index + side].keys.isdisjoint(window.terms[place + side].keys)
            for side in (-1, 1)
            if 0 <= index + side < len(terms)
        )
        for place, other in enumerate(window.terms)
    )


def _is_replaced(clause: Clause, there: _Text, new: _Text) -> bool:
    """Tell whether the new text says something else of what a clause is about.

    Args:
        clause: of the old text.
        there: the text that is to stand for it.
        new: the text that must bring what takes the place of what is missing.
    """
    if _is_contradicted(clause, there) and _is_contradicted(clause, new):
        return True
    return any(
        _takes_the_place(clause, window, other)
        for window in there.near(clause.terms)
        for other in new.near(clause.terms)
    )


def _is_contradicted(clause: Clause, text: _Text) -> bool:
    """Tell whether a text says the opposite: the same words, but for a negation or an opposite."""
    said = facts.Sentence.of(clause.text)
    opposites = {
        term.raw
        for term in clause.terms
        for sides in facts.OPPOSITES
        for side in sides
        if term.raw in side
    }
    rest = tuple(
        term
        for term in clause.terms
        if term.raw not in opposites and not is_filler(term) and not _only_negates(term)
    )
    return bool(rest) and any(not said.agrees(window.said) for window in text.around(rest))


def _is_narrower(new: _Window, frame: list[_Unit]) -> bool:
    """Tell whether the new statement puts a word of its own before one that stays.

    A return flight is another flight.
    """
    kept = frozenset(key for unit in frame for term in unit.terms for key in term.keys)
    return any(
        before.kind in ("word", "name")
        and after.place == before.place + 1
        and before.keys.isdisjoint(kept)
        and not after.keys.isdisjoint(kept)
        and not is_filler(before)
        for before, after in pairwise(new.terms)
    )


def _only_negates(term: Term) -> bool:
    """Tell whether a Korean verb says no more than that there is something, or none."""
    return term.kind == "hangul" and term.verbal and term.raw.startswith(("있", "없"))


def _takes_the_place(clause: Clause, window: _Window, new: _Window) -> bool:
    """Tell whether `window` gives a clause other values, all of them from the new text."""
    units = _units(clause, window)
    missing = [unit for unit in units if unit.missing]
    frame = [unit for unit in units if not unit.missing]
    words = [unit for unit in missing if not unit.is_value]
    kept_words = [unit for unit in frame if not unit.is_value]
    subject = _subject(clause)
    if not subject and clause.of_pronoun not in window.extra & new.extra:
        return False
    if not missing or not kept_words or not _is_about(subject, window):
        return False
    known = tuple(term for term in subject if new.has(term))
    if not _is_about(known, new) or is_over(clause) != is_over(new):
        return False
    if not any(new.has(term) for unit in kept_words for term in unit.terms):
        return False
    has = not _HAVING.isdisjoint(clause.tokens) and "been" not in clause.tokens
    if has and (words or not _A.isdisjoint(clause.tokens)):
        return False
    if _is_narrower(new, frame):
        return False
    kept = frozenset(key for unit in kept_words for term in unit.terms for key in term.keys)
    if words and kept & MORE_OF and not kept & ATTRIBUTES:
        return False
    swapped = {
        term.raw
        for unit in words
        for term in unit.terms
        if any(term.raw in group and group & {t.raw for t in new.terms} for group in GROUPS)
    }
    if len(words) > len(kept_words) or not all(_in_value_places(clause, units, swapped, new)):
        return False
    if len(kept_words) == 1 and words and not _is_linked(clause, kept_words[0], words[0]):
        return False
    old = clause.keys()
    brought = [
        term
        for term in new.terms
        if old.isdisjoint(term.keys) and window.has(term) and not is_filler(term)
    ]
    changes = len(words)
    for kind in ("number", "date"):
        gone = sum(unit.terms[0].kind == kind for unit in missing)
        if gone > len({term.raw for term in brought if term.kind == kind}):
            return False
        changes += max(gone - 1, 0)
    return changes <= len(kept_words) and len(words) <= len(
        {term.unit for term in brought if not term.is_value}
    )


def _is_about(subject: tuple[Term, ...], window: _Window) -> bool:
    """Tell whether a window has all words of a subject, and not as the owner of something else.

    Bob is not Bob's brother.
    """
    return all(
        any(
            term.owner == other.owner and not term.keys.isdisjoint(other.keys)
            for other in window.terms
        )
        for term in subject
    )


def _units(clause: Clause, window: _Window) -> list[_Unit]:
    """Return the words of a clause, and which are missing in a window.

    Of a short Chinese word all is missing where a part is: 上午 and 下午 share a character.
    """
    found: list[_Unit] = []
    for _, group in groupby(clause.terms, key=lambda term: term.unit):
        terms = tuple(term for term in group if not is_filler(term))
        if not terms:
            continue
        lacking = [not window.has(term) for term in terms]
        if len(terms) <= 3 or all(lacking) or not any(lacking):
            found.append(_Unit(terms, any(lacking)))
            continue
        for lacks, part in groupby(zip(terms, lacking, strict=True), key=lambda pair: pair[1]):
            found.append(_Unit(tuple(term for term, _ in part), lacks))
    return found


def _subject(clause: Clause) -> tuple[Term, ...]:
    """Return what a clause is about: its first word, with the names and numbers right after it.

    Returns:
        Nothing for a pronoun whose verb comes last.
    """
    if clause.of_pronoun and clause.verb_last:
        return ()
    words = [term for term in clause.terms if not term.is_value and not is_filler(term)]
    if not words:
        return clause.terms[:1]
    first = words[0]
    found = [term for term in clause.terms if term.unit == first.unit]
    if first.marks_subject or clause.of_pronoun:
        return tuple(found)
    for term in clause.terms[clause.terms.index(found[-1]) + 1 :]:
        adjacent = term.place == found[-1].place + 1
        if not adjacent or (term.kind not in ("number", "name")):
            break
        found.append(term)
    return tuple(found)


def _in_value_places(
    clause: Clause, units: list[_Unit], swapped: set[str], new: _Window
) -> Iterator[bool]:
    """Tell of each missing word whether it stands where values do, which one thing has one of.

    Numbers and dates do everywhere but before a verb such as "is". Other words do after a
    preposition, and names and the values of attributes after "is"; not as verbs, objects or
    properties, for one may do and be several things. Nothing but what begins with a preposition
    may follow. In Korean and Japanese they do before the verb, without the particle of a subject.

    Args:
        clause: of the old text.
        units: its words.
        swapped: missing properties for which the new text has another one of their group.
        new: the statement of the new text.
    """
    last = max((place for place, unit in enumerate(units) if not unit.missing), default=-1)
    copula = max((i for i, token in enumerate(clause.tokens) if token in COPULAS), default=-1)
    gone = {term.place for unit in units if unit.missing for term in unit.terms}
    kept = frozenset(
        key for unit in units if not unit.missing for term in unit.terms for key in term.keys
    )
    told = max(
        (i for i, unit in enumerate(units) if any(term.marks_subject for term in unit.terms)),
        default=-1,
    )
    over = copula < 0 and is_over(clause)
    for place, unit in enumerate(units):
        if not unit.missing:
            continue
        first, after = unit.terms[0], unit.terms[-1].place + 1
        if unit.is_value and over:
            yield False
            continue
        if clause.verb_last:
            yield (
                place > told
                and not any(t.marks_subject or t.verbal for t in unit.terms)
                and (unit.is_value or one_value(clause, kept, new.said.text))
            )
            continue
        before = next(
            (
                clause.tokens[i]
                for i in range(first.place - 1, -1, -1)
                if i not in gone and clause.tokens[i] not in _ARTICLES
            ),
            "",
        )
        if first.kind == "han":
            yield (
                place > last
                and before in _PLACING
                and (before not in _NAMING or one_value(clause, frozenset(), new.said.text))
            )
            continue
        followed, named = place < last, first.kind == "name"
        if unit.terms[0].raw in swapped and not followed:
            yield True
            continue
        attribute = any(
            not ATTRIBUTES.isdisjoint(term.keys) for u in units[:place] for term in u.terms
        )
        yield (not followed or copula < after) and (
            unit.is_value
            or (
                (
                    (before in PREPOSITIONS and one_place(clause, before, name=named))
                    or (before in COPULAS and (named or attribute))
                )
                and (not followed or not PREPOSITIONS.isdisjoint(clause.tokens[after : after + 1]))
            )
        )


def _is_linked(clause: Clause, kept: _Unit, value: _Unit) -> bool:
    """Tell whether a word such as "is" or "in" stands between the only word left and its value."""
    if clause.verb_last or clause.terms[0].kind == "han":
        return True
    return value.terms[0].place - kept.terms[-1].place > 1


def _is_ended(clause: Clause, new: _Text) -> bool:
    """Tell whether the new text says that what a clause tells is over."""
    here = clause.keys()
    if clause.of_pronoun:
        windows = new.of(clause.of_pronoun)
    else:
        subject = _subject(clause)
        windows = [window for window in new.around(subject) if _is_about(subject, window)]
    for window in windows:
        for end in _ENDS:
            told = end.change & window.keys or _holds(window.said.text, end.change_parts)
            if told and (end.ended & here or _holds(clause.text, end.ended_parts)):
                return True
    return False


def _holds(text: str, parts: tuple[str, ...]) -> bool:
    return any(part in text for part in parts)
