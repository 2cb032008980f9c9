"""Whether one thing changed as a language model says, told from what it quotes of both texts.

Form alone cannot tell "Sarah leads the team, Tom leads the team", a change, from "Ann takes
bisoprolol, Ann takes ramipril", which may both be true. The model can, but it may be wrong. So it
is believed only where its quotes fit: the old value stands in the old statement and the new one in
the new, what is around them is about the same subject, and either it is something of which there
is one at a time (`predicates`), or the new text has a word that tells of a change ("switched",
"now", "바꿨", "改用"). The owner of a thing is not the thing: Bob is not Bob's brother.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from mnemotrace import facts
from mnemotrace.facts import word_set

from .clauses import (
    COPULAS,
    Clause,
    Keys,
    Term,
    alike,
    is_filler,
    is_over,
    keys_of,
    sentences,
)
from .predicates import (
    ARTICLES,
    ATTRIBUTE_PARTS,
    ATTRIBUTES,
    MORE_OF,
    PREPOSITIONS,
    ROLE_PARTS,
    ROLES,
    STATES,
    holds,
    one_value,
    open_on_days,
)
from .windows import clauses_of

_LONGEST_VALUE = 4
"""Words of a value. A quote of more is a statement, not a value."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a model says has changed, quoted from an old and a new text.

    Attributes:
        subject: whom or what both texts are about, as the old one has it; empty where it does not
            say.
        old_value: words of the old text that no longer hold.
        new_value: words of the new text that hold instead.
    """

    subject: str
    old_value: str
    new_value: str


class _Kind(NamedTuple):
    """Words that tell of a change, and what such a change is one of."""

    words: Keys
    parts: tuple[str, ...]
    changed: Keys
    changed_parts: tuple[str, ...]


_NOW = _Kind(
    word_set("now instead anymore nowadays henceforth"),
    ("이제", "지금은", "앞으로", "더 이상", "现在", "如今", "今后", "不再", "改"),
    frozenset(), (),
)  # fmt: skip
"""Words that make any statement a change, where all else in it is the same."""

_KINDS = (
    _Kind(
        word_set("switch migrat chang replac adopt convert transit upgrad downgrad"),
        ("바꾸", "바꿨", "바꿔", "바뀌", "바뀐", "전환", "교체", "변경", "갈아",
         "改用", "换成", "换到", "換成", "切换", "迁移到", "迁移至", "改为", "改成", "替换", "升级到"),
        word_set("use run reli depend written write built build host deploy store commun subscrib keep manag"),
        ("쓴", "쓰고", "써", "사용한", "사용하", "사용해", "사용 중", "이용", "운영", "돌아", "배포", "저장", "관리",
         "用", "使用", "采用", "运行", "部署", "存"),
    ),
    _Kind(
        word_set("move"), ("옮", "이전", "迁移"),
        word_set("run host store keep"), ("운영", "돌아", "저장", "运行", "部署", "存"),
    ),
    _Kind(
        word_set("move reloc return"), ("이사", "옮", "이전", "搬", "迁", "遷"),
        word_set("live resid stay base locat offic headquart home"),
        ("살", "산다", "사는", "거주", "위치", "사무실", "본사", "住", "位于", "总部", "办公室"),
    ),
    _Kind(
        word_set("join switch chang"), ("이직", "입사", "옮", "跳槽", "加入", "入职", "换"),
        word_set("work employ"), ("일하", "일한", "근무", "다니", "다닌", "工作", "上班", "就职"),
    ),
    _Kind(
        word_set("reschedul postpon move shift chang delay"),
        ("연기", "변경", "바뀌", "바뀐", "바꿨", "옮", "미뤄", "미뤘", "당겨", "당겼", "改到", "改为", "改在", "推迟", "提前", "延期"),
        frozenset(), (),
    ),
    _Kind(
        word_set("went up down rise rose rais increas grew climb drop fell lower decreas cut shrank"),
        ("올랐", "올렸", "인상", "늘었", "내렸", "인하", "줄었", "涨到", "上调", "提高", "降到", "下调", "减少到"),
        frozenset(), (),
    ),
)  # fmt: skip
_TOOLS, _MOVING = _KINDS[:2]
_OF_VALUES = _KINDS[-2:]
_FROM = frozenset("从從由自")
_SUCCESSION = _Kind(
    word_set("took take replac succeed succe appoint promot"),
    ("맡", "교체", "임명", "취임", "후임", "이어받", "接任", "接替", "任命", "取代", "接管"),
    frozenset(), (),
)  # fmt: skip
_TIME = re.compile(
    r"\d+[시일월분년]|[点號号日月年]$|[월화수목금토일]요일|오전|오후|내일|모레|星期|周[一二三四五六日末天]|上午|下午|晚上|早上|明天|后天"
)
_AROUND = word_set("over as from with to the")
_GROUPS = word_set("team compani project everyon organ group startup depart crew squad user")
_GROUP_PARTS = ("팀", "회사", "모두", "团队", "公司", "项目", "小组", "部门")
_THE = word_set("the our my your his her their")
_OURS = ("<we>", "<우리>", "<我们>")
_OWNERS = (
    ("<our>", "<we>"), ("<my>", "<i>"), ("<his>", "<he>"), ("<her>", "<she>"), ("<their>", "<they>"),
)  # fmt: skip
_OWNING = ("<우리의>", "<나의>", *(owner for owner, _ in _OWNERS))


def is_changed(clause: Clause, hedges: Keys, new: str, change: Change) -> bool:
    """Tell whether the new text gives a statement of the old one another value, as the model says.

    Args:
        clause: of the old text.
        hedges: what makes it less than a plain statement.
        new: the new text.
        change: what the model quotes.
    """
    gone = _quoted(clause, change.old_value)
    if not gone or "?" in new or "？" in new:
        return False
    return any(
        said == hedges
        and (come := _quoted(other, change.new_value))
        and _Pair(clause, gone, other, come).is_change()
        for other, said in clauses_of(new)
    )


def _quoted(clause: Clause, quote: str) -> tuple[Term, ...]:
    """Return the words of a clause that are this quote; none when it has no such words in a row."""
    parts = [part for sentence in sentences(quote) for part in sentence.clauses]
    if len(parts) != 1:
        return ()
    wanted = tuple(term for term in parts[0].terms if not is_filler(term))
    if not wanted or len({term.unit for term in wanted}) > _LONGEST_VALUE:
        return ()
    terms = clause.terms
    for start in range(len(terms) - len(wanted) + 1):
        found = terms[start : start + len(wanted)]
        if all(map(_is_quote_of, wanted, found)):
            return found
    return ()


def _is_quote_of(wanted: Term, term: Term) -> bool:
    if not wanted.keys.isdisjoint(term.keys):
        return True
    ending = len(term.raw) - len(wanted.raw)
    return term.kind == wanted.kind == "hangul" and 0 < ending <= 3 and (
        term.raw.startswith(wanted.raw) and len(wanted.raw) > 1
    )  # fmt: skip


class _Pair:
    """An old statement with the value that went, and a new one with the value that came."""

    def __init__(
        self, old: Clause, gone: tuple[Term, ...], new: Clause, come: tuple[Term, ...]
    ) -> None:
        self.old, self.new = old, new
        self.who_was, self.who_is = _pronoun(old), _pronoun(new)
        self.gone, self.come = gone, come
        self.now = _told(_NOW, new) - _told(_NOW, old)
        self.was_around = _without(old.terms, gone)
        self.is_around = _without(new.terms, come, self.now)

    def is_change(self) -> bool:
        """Tell whether the one value took the other's place."""
        if _all_in(self.gone, self.come) or _all_in(self.come, self.gone):
            return False
        if _negations(self.old) != _negations(self.new):
            return False
        if {"<will>", "<would>", "<future>"} & self.new.extra - self.old.extra:
            return False
        return (self._same_statement() and self._has_one()) or self._is_told()

    # -- the same statement with another value

    def _same_statement(self) -> bool:
        """Tell whether all but the value is the same: no word more, none less, the same tense."""
        if is_over(self.old) != is_over(self.new):
            return False
        was, stays = self.was_around, self.is_around
        if not was or not stays:
            return False
        if _match(was, stays):
            return self.who_was == self.who_is or not (self.who_was or self.who_is)
        without = _without(was, _subject(self.old, was))
        if len(without) < len(was) and _match(without, stays):
            return _stands_for(self.who_is, _subject(self.old, was))
        without = _without(stays, _subject(self.new, stays))
        if len(without) < len(stays) and _match(was, without):
            return self.who_was in _OURS and _stands_for(self.who_was, _subject(self.new, stays))
        return False

    def _has_one(self) -> bool:
        """Tell whether there is one such value at a time, or the new text says that it changed."""
        if self._is_subject(self.old, self.gone) or self._is_subject(self.new, self.come):
            return (
                self._is_subject(self.old, self.gone)
                and self._is_subject(self.new, self.come)
                and _one_holder(self.old, self.was_around)
                and _one_holder(self.new, self.is_around)
            )
        if not (_after_verb(self.old, self.gone) and _after_verb(self.new, self.come)):
            return False
        if open_on_days(self.old) or _only_values(self.gone) != _only_values(self.come):
            return False
        if not _alike_placed(self.old, self.gone, self.new, self.come):
            return False
        if self.now:
            return self._is_of_a_kind()
        if is_over(self.old):  # one may have done several things
            return False
        kept = keys_of(self.was_around)
        if not kept.isdisjoint(MORE_OF) and kept.isdisjoint(ATTRIBUTES):
            return False
        if self.old.verb_last or self.gone[0].kind == "han":
            return one_value(self.old, kept, self.new.text) or holds(self.old.text, ROLE_PARTS)
        if not kept.isdisjoint(STATES):
            told = {*self.old.tokens, *self.new.tokens}
            return not ("work" in kept and not {"on", "with"}.isdisjoint(told))
        # "The lead is Ann" tells of one lead; "Ann leads sales" not of one team.
        before = self.old.tokens[: self.gone[0].place]
        return not kept.isdisjoint(ATTRIBUTES) and not COPULAS.isdisjoint(before)

    def _is_of_a_kind(self) -> bool:
        """Tell whether what is now may be instead of what was: a vet and a nurse, not a vet and tall.

        Only where no word but "is" tells in what.
        """
        if self.old.verb_last or len(self.was_around) > len(_subject(self.old, self.was_around)):
            return True
        if self.gone[0].kind == "han" or self.who_was not in ("", *_OWNING):
            return True
        before = (
            clause.tokens[value[0].place - 1 : value[0].place]
            for clause, value in ((self.old, self.gone), (self.new, self.come))
        )
        return len({("a",) if tokens == ("an",) else tokens for tokens in before}) == 1

    @staticmethod
    def _is_subject(clause: Clause, value: tuple[Term, ...]) -> bool:
        if any(term.marks_subject for term in value):
            return True
        if clause.verb_last and any(term.kind == "hangul" for term in clause.terms):
            return False
        return not clause.of_pronoun and clause.terms[0] in value

    # -- a text that says that something changed

    def _is_told(self) -> bool:
        """Tell whether the new text has a word that tells of such a change."""
        for kind in _KINDS:
            told = _told(kind, self.new)
            if told and self._fits(kind) and self._is_of_it(told, kind):
                return True
        return self._is_succession()

    def _fits(self, kind: _Kind) -> bool:
        if kind in _OF_VALUES:
            return _are_values(self.gone) and _are_values(self.come)
        if _only_values(self.gone) or _only_values(self.come):
            return False
        keys = keys_of(self.was_around)
        return (
            not keys.isdisjoint(kind.changed)
            or holds(self.old.text, kind.changed_parts)
            or (kind is _TOOLS and self._is_attribute())
            or (kind is _TOOLS and self._is_named() and keys.isdisjoint(MORE_OF))
        ) and _after_verb(self.old, self.gone)

    def _is_attribute(self) -> bool:
        """Tell whether the old value is one of what there is one of: "our database is"."""
        keys = keys_of(self.was_around)
        return not keys.isdisjoint(ATTRIBUTES) or holds(self.old.text, ATTRIBUTE_PARTS)

    def _is_named(self) -> bool:
        """Tell whether the new text names the old value: "switched from Jira to Linear"."""
        return _all_in(self.gone, self.is_around)

    def _is_of_it(self, told: Keys, kind: _Kind) -> bool:
        """Tell whether all else in the new statement is about what the old one is about."""
        rest = tuple(
            term
            for term in _without(self.is_around, (), told)
            if not _all_in((term,), self.gone)
            and not _is_date(term, kind)
            and not (term.raw in _FROM and self._is_named())
        )
        subject = _subject(self.old, self.was_around)
        # In Chinese a verb may be part of the first word, where none is told apart.
        verbs = (*kind.parts, *kind.changed_parts)
        unverbed = (
            t for t in subject if t.kind != "han" or not any(t.raw in part for part in verbs)
        )
        subject = tuple(unverbed) or subject
        if not all(any(alike(term, other) for other in self.was_around) for term in rest):
            return _our_group(rest) and self.who_was in _OURS and _one_script(self.who_was, rest[0])
        if any(term.kind in ("name", "number") for term in _without(self.was_around, subject)
               if not any(alike(term, other) for other in rest)):  # fmt: skip
            return False
        if subject and all(any(alike(t, other) for other in rest) for t in subject):
            return True
        if self._is_role():  # who has one is not what "we" use
            return False
        if kind is _MOVING and not rest:  # "we moved to Munich" is not about the server
            return False
        if self.who_is:
            return (
                self.who_is == self.who_was
                or _stands_for(self.who_is, subject)
                or self._is_our_attribute()
            )
        if self.who_was in _OWNING and any(term.marks_subject for term in rest):
            return True
        # Korean and Chinese leave out whom everybody has in mind.
        unsaid = _leaves_out(self.old) and _leaves_out(self.new) == _leaves_out(self.old)
        if not unsaid or rest or any(term.marks_subject for term in self.new.terms):
            return False
        return kind is not _TOOLS or not self._is_attribute()

    def _is_our_attribute(self) -> bool:
        """Tell whether it is something one has one of, and those who have it say what it is now."""
        keys = keys_of(self.was_around)
        return (self.who_was, self.who_is) in _OWNERS and not keys.isdisjoint(ATTRIBUTES)

    def _is_role(self) -> bool:
        """Tell whether the old statement says who has a role."""
        keys = keys_of(self.was_around)
        return not keys.isdisjoint(ROLES) or holds(self.old.text, ROLE_PARTS)

    def _is_succession(self) -> bool:
        """Tell whether somebody took over what there is one of: "Tom replaced Sarah as lead"."""
        told = _told(_SUCCESSION, self.new)
        if not told or not self._is_role() or not self._is_subject(self.new, self.come):
            return False
        rest = tuple(
            term
            for term in _without(self.is_around, (), told)
            if term.raw not in _AROUND and not _is_date(term, _SUCCESSION)
        )
        named = any(_all_in((term,), self.gone) for term in rest)
        about = [term for term in rest if not _all_in((term,), self.gone)]
        known = all(any(alike(term, other) for other in self.was_around) for term in about)
        return known and (named or bool(about))


def _pronoun(clause: Clause) -> str:
    """Return the pronoun that a clause begins with, "we" apart from "I" in Chinese too."""
    plural = clause.of_pronoun == "<我>" and not {"<们>", "<們>"}.isdisjoint(clause.extra)
    return "<我们>" if plural else clause.of_pronoun


def _leaves_out(clause: Clause) -> str:
    """Return the script of a clause whose language may leave out the subject; else nothing."""
    kinds = {term.kind for term in clause.terms}
    return "hangul" if "hangul" in kinds else "han" if "han" in kinds else ""


def _told(kind: _Kind, clause: Clause) -> Keys:
    """Return the words of a clause that tell of a change of this kind."""
    found = {key for term in clause.terms for key in term.keys if key in kind.words}
    found |= kind.words.intersection(clause.tokens)
    for part in kind.parts:
        if part in clause.text:
            found.add(part)
    return frozenset(found)


def _without(
    terms: Iterable[Term], taken: tuple[Term, ...], told: Keys = frozenset()
) -> tuple[Term, ...]:
    """Return terms without some of them, fillers, and what tells of a change."""
    parts = tuple(part for part in told if not part.isascii())
    return tuple(
        term
        for term in terms
        if term not in taken
        and not (is_filler(term) and term.keys.isdisjoint(keys_of(taken)))
        and term.keys.isdisjoint(told)
        and not any(term.raw in part if term.kind == "han" else part in term.raw for part in parts)
    )


def _match(left: tuple[Term, ...], right: tuple[Term, ...]) -> bool:
    return all(any(alike(a, b) for b in right) for a in left) and all(
        any(alike(a, b) for b in left) for a in right
    )


def _all_in(terms: tuple[Term, ...], others: tuple[Term, ...]) -> bool:
    return all(any(not t.keys.isdisjoint(o.keys) for o in others) for t in terms)


def _negations(clause: Clause) -> int:
    return facts.Sentence.of(clause.text).negations


def _are_values(terms: tuple[Term, ...]) -> bool:
    return any(term.is_value for term in terms) or bool(_TIME.search(_written(terms)))


def _only_values(terms: tuple[Term, ...]) -> bool:
    return all(term.is_value for term in terms) or bool(_TIME.search(_written(terms)))


def _written(terms: Iterable[Term]) -> str:
    return "".join(term.raw for term in terms)


def _is_date(term: Term, kind: _Kind) -> bool:
    return kind not in _OF_VALUES and term.is_value


def _our_group(terms: tuple[Term, ...]) -> bool:
    if not terms:
        return False
    if all(term.kind == "han" for term in terms):
        return _written(terms) in _GROUP_PARTS
    return all(
        not term.keys.isdisjoint(_GROUPS) or not term.keys.isdisjoint(_GROUP_PARTS)
        for term in terms
    )


def _subject(clause: Clause, terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Return what comes before the verb: up to the particle of a subject, or the first words."""
    if clause.of_pronoun or not terms:
        return ()
    for place, term in enumerate(terms):
        if term.marks_subject:
            return terms[: place + 1]
    if clause.verb_last and terms[0].kind == "hangul":
        return ()
    first = terms[0]
    found = [term for term in terms if term.unit == first.unit]
    for term in terms[len(found) :]:
        if not (found[-1].owner or (term.place == found[-1].place + 1 and term.kind == "name")):
            break
        found.append(term)
    return tuple(found)


def _stands_for(pronoun: str, subject: tuple[Term, ...]) -> bool:
    """Tell whether a pronoun may stand for a subject: "we" for a team, "she" for a name."""
    if not pronoun or not subject or any(term.owner for term in subject):
        return False
    if not _one_script(pronoun, subject[0]):
        return False
    if pronoun in _OURS:
        return _our_group(subject)
    if pronoun in ("<he>", "<she>", "<他>", "<她>"):
        return subject[0].kind in ("name", "han", "hangul") and not _our_group(subject)
    return pronoun in ("<they>", "<它>")


def _alike_placed(old: Clause, gone: tuple[Term, ...], new: Clause, come: tuple[Term, ...]) -> bool:
    """Tell whether two values stand after the same preposition, or after none."""
    before = [
        next((t for t in clause.tokens[value[0].place - 1 :: -1] if t not in ARTICLES), "")
        if value[0].place
        else ""
        for clause, value in ((old, gone), (new, come))
    ]
    one, other = (word if word in PREPOSITIONS else "" for word in before)
    return one == other or {one, other} <= {"at", "for", "in"}


def _one_script(pronoun: str, term: Term) -> bool:
    """Tell whether a pronoun and a word may stand in texts of one language."""
    script = "word" if pronoun.isascii() else "hangul" if pronoun[1] >= "가" else "han"
    return script == (term.kind if term.kind in ("hangul", "han") else "word")


def _after_verb(clause: Clause, value: tuple[Term, ...]) -> bool:
    """Tell whether a value stands where values do: after a verb, "is" or "in"; before it in Korean."""
    if clause.verb_last:
        return not any(term.marks_subject for term in value)
    if value[0].kind == "han" or any(term.kind == "han" for term in clause.terms):
        return clause.terms[0] not in value or bool(clause.of_pronoun)
    before = clause.tokens[: value[0].place]
    if not (COPULAS | PREPOSITIONS).isdisjoint(before):
        return True
    verb = clause.terms.index(value[0]) > bool(
        clause.of_pronoun in _OWNING or not clause.of_pronoun
    )
    if verb and before[-1] in ARTICLES:
        return True
    return any(
        not term.keys.isdisjoint(STATES | MORE_OF | ROLES)
        for term in clause.terms
        if term.place < value[0].place
    )


def _one_holder(clause: Clause, around: tuple[Term, ...]) -> bool:
    """Tell whether one has what a clause says somebody has: "leads the team", "is the CEO"."""
    if not {"a", "an", "one", "some", "another"}.isdisjoint(clause.tokens):
        return False
    keys = keys_of(around)
    if not keys.isdisjoint(ROLES):
        return len(around) > 1 or not _THE.isdisjoint(clause.tokens)
    return holds(clause.text, ROLE_PARTS) and bool(around)
