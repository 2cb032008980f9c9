"""Whether a new text gives a statement another value, says its opposite, or says that it ended.

These rules know form alone, no meaning: what the statement is about is still there, and its value
has become another one that the new text brings ("lives in Paris", "lives in Rome"). What one may
have several of is not replaced (`predicates`). What a model quotes is judged in `changes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from mnemotrace import facts
from mnemotrace.facts import word_set

from .clauses import COPULAS, Clause, Keys, Term, alike, is_filler, is_over, keys_of
from .predicates import (
    ARTICLES,
    ATTRIBUTES,
    GROUPS,
    MORE_OF,
    PREPOSITIONS,
    holds,
    one_place,
    one_value,
    open_on_days,
)
from .windows import Text, Window, subject_of

_PLACING = frozenset("在是为為於于叫")
_NAMING = frozenset("是为為")
_A = word_set("a an another one")
_HAVING = word_set("has have had")


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


@dataclass(frozen=True, slots=True)
class _Unit:
    """A word of a clause: one term, or the characters of one Chinese word."""

    terms: tuple[Term, ...]
    missing: bool

    @property
    def is_value(self) -> bool:
        return self.terms[0].is_value


def is_replaced(clause: Clause, there: Text, new: Text) -> bool:
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


def _is_contradicted(clause: Clause, text: Text) -> bool:
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


def _is_narrower(new: Window, frame: list[_Unit]) -> bool:
    """Tell whether the new statement puts a word of its own before one that stays.

    A return flight is another flight.
    """
    kept = keys_of(term for unit in frame for term in unit.terms)
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


def _takes_the_place(clause: Clause, window: Window, new: Window) -> bool:
    """Tell whether `window` gives a clause other values, all of them from the new text."""
    units = _units(clause, window)
    missing = [unit for unit in units if unit.missing]
    frame = [unit for unit in units if not unit.missing]
    words = [unit for unit in missing if not unit.is_value]
    kept_words = [unit for unit in frame if not unit.is_value]
    subject = subject_of(clause)
    if clause.of_pronoun and clause.of_pronoun not in window.extra & new.extra:
        return False
    if not subject and not clause.of_pronoun:
        return False
    if not _HAVING.isdisjoint(new.said.words) and not {"a", "an"}.isdisjoint(new.said.words):
        return False
    if not missing or not kept_words or not _is_about(subject, window):
        return False
    if _is_less_certain(new, clause):
        return False
    known = tuple(term for term in subject if new.has(term))
    if not _is_about(known, new) or is_over(clause) != is_over(new):
        return False
    if not any(new.has(term) for unit in kept_words for term in unit.terms):
        return False
    has = not _HAVING.isdisjoint(clause.tokens) and "been" not in clause.tokens
    if has and (words or not _A.isdisjoint(clause.tokens)):
        return False
    if _is_narrower(new, frame) or open_on_days(clause):
        return False
    kept = keys_of(term for unit in kept_words for term in unit.terms)
    if words and kept & MORE_OF and not kept & ATTRIBUTES:
        return False
    if "work" in kept and not (new.extra - clause.extra).isdisjoint(("<on>", "<with>")):
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


def _is_less_certain(new: Window, clause: Clause) -> bool:
    """Tell whether what is new is only wanted, possible, said by somebody, or still to come."""
    to_come = {"<will>", "<would>", "<future>"} & new.extra - clause.extra
    return bool(to_come) or not new.hedges <= clause.hedges


def _is_about(subject: tuple[Term, ...], window: Window) -> bool:
    """Tell whether a window has all words of a subject, and not as the owner of something else.

    Bob is not Bob's brother.
    """
    return all(any(alike(term, other) for other in window.terms) for term in subject)


def _units(clause: Clause, window: Window) -> list[_Unit]:
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


def _in_value_places(
    clause: Clause, units: list[_Unit], swapped: set[str], new: Window
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
    kept = keys_of(term for unit in units if not unit.missing for term in unit.terms)
    told = max(
        (i for i, unit in enumerate(units) if any(term.marks_subject for term in unit.terms)),
        default=-1,
    )
    over = copula < 0 and is_over(clause)
    for place, unit in enumerate(units):
        if not unit.missing:
            continue
        first, after = unit.terms[0], unit.terms[-1].place + 1
        if over:  # one may have done several things
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
                if i not in gone and clause.tokens[i] not in ARTICLES
            ),
            "",
        )
        if first.kind == "han":
            yield (
                place > last
                and before in _PLACING
                and before in new.said.text
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


def is_ended(clause: Clause, new: Text) -> bool:
    """Tell whether the new text says that what a clause tells is over."""
    here = clause.keys()
    if clause.of_pronoun:
        windows = new.of(clause.of_pronoun)
    else:
        subject = subject_of(clause)
        windows = [window for window in new.around(subject) if _is_about(subject, window)]
    if is_over(clause):
        return False
    for window in windows:
        if _is_less_certain(window, clause):
            continue
        for end in _ENDS:
            told = end.change & window.keys or holds(window.said.text, end.change_parts)
            if told and (end.ended & here or holds(clause.text, end.ended_parts)):
                return True
    return False
