"""Whether one text may stand for another: what a model decides is only done where nothing is lost.

Pure functions over clauses (`clauses`). They know no meaning. They look for the words of every
statement, in one clause or sentence of the other text, negated as often; and where words are
missing, for the shape of an update: what the statement is about is still there, and its value has
become another one that the new text brings ("lives in Paris", "lives in Rome"). Whatever is in
doubt is refused. Then both texts stay as records, which costs a repetition at most.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from mnemotrace import facts

from .changes import Change, is_changed
from .clauses import OWNERS, Clause, Keys, Term, is_filler, keys_of, sentences
from .replacing import is_ended, is_replaced
from .windows import (
    Text,
    Window,
    clauses_of,
    in_order,
    same_word,
    strict_windows,
    whole_window,
    windows,
    with_subjects,
)

MOST_JOINED = 400
"""Characters of a record with several wordings of one fact."""
_STOPS = frozenset(".!?。！？…")


def says_all(survivor: str, text: str) -> bool:
    """Tell whether a text says everything that another one does, so that this can be left out.

    Every sentence must be in one clause of the survivor, word by word and in order, function words
    aside; or each of its clauses must, with the subject that it goes on about. Pronouns, tense,
    direction and negation must be the same. Other words for the same thing are other words.
    """
    if facts.contradicts(survivor, text):
        return False
    there = Text(strict_windows(survivor))
    for sentence in sentences(text):
        if _is_said(whole_window(sentence), there):
            continue
        if len(sentence.clauses) < 2 or not all(
            _is_said(part, there) for part in with_subjects(sentence)
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
    there, said = Text(windows(merged)), Text(windows(new))
    if not all(_survives(clause, hedges, there) for clause, hedges in clauses_of(new)):
        return False
    return all(
        _survives(clause, hedges, there)
        or is_replaced(clause, there, said)
        or (change is not None and is_changed(clause, hedges, new, change))
        for clause, hedges in clauses_of(old)
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
    if _differ_in_one_place(before, after):  # who likes tea, and who likes coffee
        return ""
    names = tuple(term for term in before if term.kind == "name")
    shared = keys_of(before)
    if not in_order(tuple(t for t in names if not _starts(t)), tuple(after)):
        return ""
    return both if any(not shared.isdisjoint(term.keys) for term in after) else ""


def _differ_in_one_place(terms: list[Term], others: list[Term]) -> bool:
    """Tell whether two texts are the same but for what stands at one place."""

    def same(pairs: Iterable[tuple[Term, Term]]) -> int:
        alike = (not term.keys.isdisjoint(other.keys) for term, other in pairs)
        return sum(1 for _ in takewhile(bool, alike))

    least = min(len(terms), len(others))
    begin = same(zip(terms, others, strict=False))
    end = min(same(zip(terms[::-1], others[::-1], strict=False)), least - begin)
    return 2 * (begin + end) >= least


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
    said = Text(windows(new))
    return all(
        _survives(clause, hedges, said)
        or is_replaced(clause, said, said)
        or is_ended(clause, said)
        or (change is not None and is_changed(clause, hedges, new, change))
        for clause, hedges in clauses_of(old)
    )


def _is_said(part: Window, there: Text) -> bool:
    return any(
        part.extra <= window.extra
        and part.hedges == window.hedges
        and part.said.negations == window.said.negations
        and (_repeats if window.whole else in_order)(part.terms, window.terms)
        for window in there.around(part.terms)
    )


def _repeats(terms: tuple[Term, ...], there: tuple[Term, ...]) -> bool:
    """Tell whether terms stand in this order with nothing between."""
    starts = range(len(there) - len(terms) + 1)
    return any(all(map(same_word, terms, there[i : i + len(terms)])) for i in starts)


def _survives(clause: Clause, hedges: Keys, there: Text) -> bool:
    """Tell whether a clause is still said: all its words at one place, negated as often.

    It must be as certain, too: neither said by somebody, nor possible, nor on a condition.
    """
    terms = tuple(term for term in clause.terms if not is_filler(term))
    said = facts.Sentence.of(clause.text)
    return not terms or any(
        said.agrees(window.said)
        and hedges == window.hedges
        and _belong_together(terms, window)
        and _is_of_the_same(clause, window)
        for window in there.around(terms)
    )


def _is_of_the_same(clause: Clause, window: Window) -> bool:
    """Tell whether what belongs to "me" is not said there of what belongs to somebody else."""
    mine = clause.of_pronoun.endswith("의>") or clause.of_pronoun in OWNERS
    return (
        not mine
        or clause.of_pronoun in window.extra
        or not any(term.owner for term in window.terms)
    )


def _belong_together(terms: tuple[Term, ...], window: Window) -> bool:
    """Tell whether words that a window has are said of each other there, as they were.

    Names stand in the same order: who owes whom. Where a window is several clauses, all words but
    numbers and dates do, and these stand between the same words, unless the window has no other
    number, or date, that they could be confused with.
    """
    if not window.whole:
        names = tuple(term for term in terms if term.kind == "name")
        return len(names) < 2 or in_order(names, window.terms)
    if not in_order(tuple(term for term in terms if not term.is_value), window.terms):
        return False
    return all(
        _stands_beside(terms, index, window)
        for index, term in enumerate(terms)
        if term.is_value
        and any(
            other.kind == term.kind and other.keys.isdisjoint(term.keys) for other in window.terms
        )
    )


def _stands_beside(terms: tuple[Term, ...], index: int, window: Window) -> bool:
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
