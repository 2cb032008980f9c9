"""Where a statement is looked for in a text: its clauses, sentences, and sentences that go on.

Pure functions over clauses (`clauses`). A window is found by the keys of its words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mnemotrace import facts

from .clauses import Clause, Keys, Sentence, Term, is_filler, is_past, keys_of, sentences

_MOST_NEAR = 8
"""Places of a text that are looked at for a statement that it does not repeat."""
_NOWHERE: set[int] = set()


class Window(NamedTuple):
    """A clause or a sentence of a text in which another statement is looked for."""

    keys: Keys
    extra: Keys
    said: facts.Sentence
    terms: tuple[Term, ...]
    hedges: Keys
    whole: bool = False
    """It is several clauses, which say what they say together."""

    def has(self, term: Term) -> bool:
        """Tell whether a word is in it."""
        return not self.keys.isdisjoint(term.keys)


class Text:
    """A text as windows, found by the keys in them."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._windows = list(windows)
        self._by_key: dict[str, set[int]] = {}
        for index, window in enumerate(self._windows):
            for key in window.keys:
                self._by_key.setdefault(key, set()).add(index)

    def near(self, terms: Iterable[Term]) -> list[Window]:
        """Return the windows that have most of these terms, at most so many."""
        shared = Counter(i for term in terms for i in self._where(term))
        best = sorted(shared, key=lambda index: (-shared[index], index))[:_MOST_NEAR]
        return [self._windows[index] for index in best]

    def of(self, pronoun: str) -> list[Window]:
        """Return the windows with this pronoun."""
        return [window for window in self._windows if pronoun in window.extra]

    def around(self, terms: tuple[Term, ...]) -> list[Window]:
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


def strict_windows(text: str) -> Iterator[Window]:
    """Yield the clauses of a text, each with its subject where it has clearly none of its own."""
    for sentence in sentences(text):
        first = sentence.clauses[0]
        for index, clause in enumerate(sentence.clauses):
            terms, extra = clause.terms, clause.extra
            if index and clause.lacks_subject:
                terms, extra = (*subject_of(first), *terms), extra | first.extra
            yield _window(terms, extra, clause.text, clause.hedges | sentence.conditions)
        if len(sentence.clauses) > 1:
            yield whole_window(sentence)._replace(whole=True)


def _window(terms: tuple[Term, ...], extra: Keys, text: str, hedges: Keys) -> Window:
    return Window(keys_of(terms), extra, facts.Sentence.of(text), terms, hedges)


def _all_hedges(sentence: Sentence) -> Keys:
    return frozenset(hedge for clause in sentence.clauses for hedge in clause.hedges)


def whole_window(sentence: Sentence) -> Window:
    """Return all of a sentence as one window."""
    terms = tuple(term for clause in sentence.clauses for term in clause.terms)
    return _window(terms, sentence.extra(), sentence.text, _all_hedges(sentence))


def with_subjects(sentence: Sentence) -> Iterator[Window]:
    """Yield the clauses of a sentence, each with the subject of the first in case it needs it."""
    first = sentence.clauses[0]
    for index, clause in enumerate(sentence.clauses):
        terms = clause.terms
        if index and not clause.has_own_subject:
            terms = (*subject_of(first), *terms)
        yield _window(terms, clause.extra, clause.text, clause.hedges | sentence.conditions)


def same_word(term: Term, other: Term) -> bool:
    """Tell whether two words are the same in the same role, and verbs in the same tense."""
    return (
        not term.keys.isdisjoint(other.keys)
        and term.marks_subject <= other.marks_subject
        and (term.kind not in ("word", "name") or is_past(term) == is_past(other))
    )


def in_order(terms: tuple[Term, ...], there: tuple[Term, ...]) -> bool:
    """Tell whether terms stand in this order, with others between; subjects must be subjects."""
    position = iter(there)
    return all(any(same_word(term, other) for other in position) for term in terms)


def clauses_of(text: str) -> Iterator[tuple[Clause, Keys]]:
    """Yield the clauses of a text, each with its hedges."""
    for sentence in sentences(text):
        for clause in sentence.clauses:
            yield clause, clause.hedges | sentence.conditions


def windows(text: str) -> Iterator[Window]:
    """Yield clauses, sentences, and sentences with the next one where that goes on with them."""
    found = sentences(text)
    for index, sentence in enumerate(found):
        if len(sentence.clauses) > 1:
            first = sentence.clauses[0]
            for clause in sentence.clauses:
                hedges = clause.hedges | sentence.conditions
                yield _window(clause.terms, clause.extra, clause.text, hedges)
                if clause is not first and (clause.lacks_subject or clause.terms[0].is_value):
                    terms = (*subject_of(first), *clause.terms)
                    yield _window(terms, clause.extra | first.extra, clause.text, hedges)
        whole = whole_window(sentence)._replace(whole=len(sentence.clauses) > 1)
        yield whole
        if index + 1 < len(found) and found[index + 1].goes_on:
            after = whole_window(found[index + 1])
            yield _window(
                (*whole.terms, *after.terms), whole.extra | after.extra,
                f"{sentence.text} {found[index + 1].text}", whole.hedges | after.hedges,
            )._replace(whole=True)  # fmt: skip


def subject_of(clause: Clause) -> tuple[Term, ...]:
    """Return what a clause is about: its first word, with the names and numbers right after it.

    Where the first word owns something, that belongs to it: Bob's brother.

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
        adjacent = term.place == found[-1].place + 1 and term.kind in ("number", "name")
        same_word = term.kind == "han" and term.unit == found[-1].unit
        if not (adjacent or same_word or found[-1].owner):
            break
        found.append(term)
    return tuple(found)
