"""What memory holds and what it gives back: records, matches, scope summaries, results."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Self, SupportsIndex, overload

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from . import scopes
from .checks import checked_budget, counted
from .quoting import inert

if TYPE_CHECKING:
    from .explanation import Explanation
    from .trace import Trace

ANALYSIS_PENDING = "pending"
ANALYSED_FIELDS = ("scope", "categories", "importance")
"""What a language model fills in where the caller leaves it out."""


_SHOWN = 5
"""Matches that the repr of a recall shows."""
_BEGINNING = 80
"""Characters of a text in a repr."""


def pending_analysis(missing: Iterable[str]) -> str | None:
    """Return the state of a record whose analysis could not be made.

    Args:
        missing: those of `ANALYSED_FIELDS` that the caller left out.

    Returns:
        ``pending`` when all were left out, else the ones that were
        (``pending:categories,importance``); None when none was.
    """
    wanted = set(missing)
    names = [name for name in ANALYSED_FIELDS if name in wanted]
    if not names:
        return None
    if len(names) == len(ANALYSED_FIELDS):
        return ANALYSIS_PENDING
    return f"{ANALYSIS_PENDING}:{','.join(names)}"


def pending_fields(analysis: str | None) -> tuple[str, ...]:
    """Return the fields that wait for an analysis; empty when there is none to be made."""
    if analysis == ANALYSIS_PENDING:
        return ANALYSED_FIELDS
    state, _, names = (analysis or "").partition(":")
    if state != ANALYSIS_PENDING:
        return ()
    return tuple(name for name in ANALYSED_FIELDS if name in names.split(","))


def utc_now() -> datetime:
    """Return the current time in UTC, timezone-aware."""
    return datetime.now(UTC)


def as_utc(value: datetime) -> datetime:
    """Return `value` in UTC; a naive time is taken as UTC.

    Raises:
        ValueError: in UTC it is before the year 1 or after the year 9999.
    """
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError(
            f"{value.isoformat()} is outside the years 1 to 9999 in UTC: give a later or an earlier "
            "time"
        ) from None


def _parse_time(value: Any) -> Any:
    """Let dates stand for their first instant; leave the rest to pydantic."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


UtcDatetime = Annotated[datetime, BeforeValidator(_parse_time), AfterValidator(as_utc)]
ScopePath = Annotated[str, AfterValidator(scopes.normalise)]


def unit_interval(value: float) -> float:
    """Refuse NaN, infinities and numbers outside 0..1."""
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
        raise ValueError(f"must be a number from 0 to 1, not {value!r}")
    return value


UnitFloat = Annotated[float, AfterValidator(unit_interval)]


class MemoryRecord(BaseModel):
    """One memory: a text with its place, its origin, its times and its version.

    Times are timezone-aware UTC always; naive input is taken as UTC. `version` counts from 1:
    changing a record writes a new version and retires the old one, it never overwrites.
    """

    model_config = ConfigDict(validate_assignment=True, extra="forbid")
    # A slot, not a field: it is no part of the memory, so it is not dumped, copied or compared.
    __slots__ = ("_trace",)

    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    """What it is called in every method; yours (`record_id`) or a new UUID."""
    content: str
    """The text."""
    scope: ScopePath = scopes.ROOT
    """The path it is at, such as ``/project/alpha``."""
    categories: list[str] = Field(default_factory=list)
    """Labels."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Your own values, and what a model named in the text: ``entities``, ``dates``, ``topics``."""
    importance: UnitFloat = 0.5
    """0..1."""
    created_at: UtcDatetime = Field(default_factory=utc_now)
    """When it was said; recency counts from it."""
    last_accessed: UtcDatetime = Field(default_factory=utc_now)
    """When it was last recalled, else saved; written in batches, some minutes later."""
    embedding: list[float] | None = Field(default=None, exclude=True, repr=False)
    """None on records that a memory returns; vectors stay in the store."""
    source: str | None = None
    """Who or what said it."""
    private: bool = False
    """Only those who ask as its `source` see it; where it has none, only ``include_private``."""

    sources: list[str] = Field(default_factory=list)
    """Every source that said this; `source` is the first of them."""
    updated_at: UtcDatetime | None = None
    """When this version was written, if it is not the first."""
    access_count: int = Field(default=0, ge=0)
    """How often it was recalled; written in batches, some minutes later."""
    usefulness: float = 0.0
    """Reserved for feedback; 0 in this release."""
    version: int = Field(default=1, ge=1)
    """Counts from 1."""
    valid_from: UtcDatetime | None = None
    """When this version became, or is to become, current."""
    valid_to: UtcDatetime | None = None
    """When this version stopped being current; None while it is."""
    retired: str | None = None
    """Why this version is no longer current: ``superseded`` or ``forgotten``; None while it is."""
    supersedes: list[str] = Field(default_factory=list)
    """Ids of the records this one took over from."""
    superseded_by: str | None = None
    """Id of the record that took over (the same id when this is an older version)."""
    expires_at: UtcDatetime | None = None
    """From when on it is no longer recalled, listed or counted; None for never."""
    pinned: bool = False
    """Kept first when memories are packed into a budget."""
    analysis: str | None = None
    """``pending`` when analysis by a language model was due but could not be made; where only some
    fields wait for it, with their names (``pending:categories,importance``). See `reanalyze`."""
    session: str | None = None
    """The batch or session this was remembered in."""
    position: int | None = None
    """A number that rises from save to save: the place within the session, and among records of
    one `created_at` the place in a list. None for what was saved before there was one."""

    @property
    def trace(self) -> Trace | None:
        """The step-by-step record of the run that saved it, on the record `remember` returned.

        None on every other record, on copies, and when tracing is off. It is no part of the
        memory: it is never stored, dumped or compared.
        """
        return getattr(self, "_trace", None)

    def keep_trace(self, trace: Trace | None) -> None:
        """Let this very object know the run that saved it; for mnemotrace's own use."""
        object.__setattr__(self, "_trace", trace)

    def _repr_html_(self) -> str:
        from .trace_views import record_html

        return record_html(self)

    @property
    def is_current(self) -> bool:
        """Whether this is the living version."""
        return self.retired is None

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Show what was set: defaults and the embedding are left out."""
        for name, value in super().__repr_args__():
            if name is None or value not in (None, False, [], {}, 0):
                yield name, value


@dataclass(frozen=True, slots=True)
class ScoreComponents:
    """Every number in a match's score.

    `score = semantic_weight*semantic + recency_weight*recency + importance_weight*importance`,
    where `semantic` is the documented fusion (`mnemotrace.scoring.fuse`) of `similarity` and
    `lexical`, times `phrase_weight`.
    """

    cosine: float
    """Cosine of query and record embeddings, -1..1."""
    similarity: float
    """``1 / (1 + distance)`` with cosine distance, 1/3..1."""
    lexical: float
    """Lexical (BM25) score over the best lexical score of the search, 0..1."""
    semantic: float
    recency: float
    """``0.5 ** (age_days / half_life_days)``, 0..1."""
    importance: float
    semantic_weight: float
    recency_weight: float
    importance_weight: float
    lexical_weight: float
    phrase_weight: float = 1.0
    """Multiplies `semantic`: below 1 when only a phrase made from other evidence found it."""

    @property
    def score(self) -> float:
        """The composite score."""
        return (
            self.semantic_weight * self.semantic
            + self.recency_weight * self.recency
            + self.importance_weight * self.importance
        )


@dataclass(frozen=True, slots=True)
class ScoreBasis:
    """What the numbers of a match follow from, besides the record itself."""

    query: str
    """The sub-query whose search gave the score."""
    now: datetime
    """The time from which recency was judged."""
    half_life_days: float
    lexical_setting: float
    """`MemoryConfig.lexical_weight`; the share in force is that times ``coverage ** 2``."""
    coverage: float
    """Share of the query's terms in the record with the best lexical score of that search, 0..1."""
    best_lexical: float
    """That best lexical (BM25) score; 0.0 when no visible record has a term of the query."""


@dataclass(slots=True, repr=False)
class MemoryMatch:
    """One recalled record with its score and the reasons for its rank."""

    record: MemoryRecord
    """The record, as it was at the time that was asked for."""
    score: float
    """The composite score it was ranked by."""
    match_reasons: list[str]
    """What speaks for it: ``semantic``, ``lexical``, ``recency``, ``importance``."""
    components: ScoreComponents
    """Every number in the score."""
    evidence_gaps: list[str] = field(default_factory=list)
    """What the exploration found missing, as on the recall."""
    found_by: list[str] = field(default_factory=list)
    """The sub-queries that found it."""
    basis: ScoreBasis | None = None
    """What the numbers follow from; None for a match that no search made."""

    def __repr__(self) -> str:
        return f"<MemoryMatch {_brief(self)}>"

    def explain(self) -> Explanation:
        """Return every number in the score: a dict that also prints as a derivation."""
        from .explanation import explain_match

        return explain_match(self)

    def format(self) -> str:
        """Return one readable line: score, content, scope and reasons; nothing in it is markup."""
        reasons = ", ".join(self.match_reasons) or "none"
        place = inert(self.record.scope)
        return f"[{self.score:.2f}] {inert(self.record.content)} ({place}; {reasons})"


class ScopeInfo(BaseModel):
    """What one scope holds, counted over its whole subtree."""

    path: str
    """The scope."""
    record_count: int = 0
    """Records in its subtree."""
    categories: list[str] = Field(default_factory=list)
    """Their categories, sorted."""
    oldest_record: datetime | None = None
    """When the oldest of them was created; None when there is none."""
    newest_record: datetime | None = None
    """When the newest of them was created; None when there is none."""
    child_scopes: list[str] = Field(default_factory=list)
    """The scopes immediately below, sorted."""

    def __str__(self) -> str:
        return repr(self)


class Recall(list[MemoryMatch]):
    """The matches of one recall, best first, with how they were found.

    It is a list; slices of it are plain lists.

    Attributes:
        query: what was asked.
        trace: the step-by-step record of the run; None only when tracing was off.
        confidence: 0..1, from relevance alone; 0.0 when nothing was found.
        evidence_gaps: what the exploration found missing; set even when there are no matches.
        errors: one line per part of the search that failed; empty when all of it ran.
    """

    def __init__(
        self,
        matches: Iterable[MemoryMatch] = (),
        *,
        query: str = "",
        trace: Trace | None = None,
        confidence: float = 0.0,
        evidence_gaps: Iterable[str] = (),
        errors: Iterable[str] = (),
    ) -> None:
        super().__init__(matches)
        self.query = query
        self.trace = trace
        self.confidence = confidence
        self.evidence_gaps = list(evidence_gaps)
        self.errors = list(errors)

    @property
    def status(self) -> str:
        """``ok``, or ``partial`` when part of the search failed (see `errors`)."""
        return "partial" if self.errors else "ok"

    @overload
    def __getitem__(self, index: SupportsIndex) -> MemoryMatch: ...
    @overload
    def __getitem__(self, index: slice) -> list[MemoryMatch]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> MemoryMatch | list[MemoryMatch]:
        """Return one match, or a plain list for a slice."""
        return super().__getitem__(index)

    def format(self, budget_tokens: int | None = None) -> str:
        """Return the matches as text for a prompt, best first.

        A memory is data, whatever it says: each is one line that ends with who said it, if that is
        known, and its scope. Line breaks and markup in it are escaped (`mnemotrace.quoting.inert`),
        so none can pass for another entry, a role or an instruction of yours.

        Args:
            budget_tokens: the most tokens (tiktoken, o200k_base) the text may have; None for no
                bound. Entries that have no room are left out whole, and shorter ones may follow;
                where none has room, the text is the beginning of the first, with ``… [cut]``
                where it ends.

        Returns:
            The text; ``""`` when nothing was found, or when not even one word of the first has
            room.

        Raises:
            InvalidInputError: for a budget that is not a whole number of at least 1.
        """
        most = checked_budget(budget_tokens, "budget_tokens")
        from .entries import entry, within

        records = (match.record for match in self)
        if most is None:
            return "\n".join(entry(record) for record in records)
        return within(records, most)

    def __repr__(self) -> str:
        """Show the first matches in a line each; printing `format` shows all of them whole."""
        count = counted(len(self), "match", "matches")
        parts = counted(len(self.errors), "part")
        failed = f", {parts} of the search failed" if self.errors else ""
        lines = [f"<Recall of {count}, confidence {self.confidence:.2f}{failed}"]
        lines += [f"  {_brief(match)}" for match in self[:_SHOWN]]
        if len(self) > _SHOWN:
            lines.append(f"  … and {len(self) - _SHOWN} more")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        from .trace_views import recall_html

        return recall_html(self)


def _brief(match: MemoryMatch) -> str:
    """Return a match as one short line: score, the beginning of the text, scope."""
    text = match.record.content
    start = text if len(text) <= _BEGINNING else f"{text[: _BEGINNING - 1]}…"
    return f"[{match.score:.2f}] {start!r} ({match.record.scope})"


class Extraction(list[str]):
    """The statements of one extraction, in the order of the text; a plain list of texts.

    Attributes:
        trace: the step-by-step record of the run; None only when tracing was off.
        echoes: statements left out because they only repeat what this memory already holds and
            had given to the text.
        failures: one line for each reason why a part of the text was kept as it is, or why its
            statements are in another language; empty when the model answered for all of it.
    """

    def __init__(
        self,
        statements: Iterable[str] = (),
        *,
        trace: Trace | None = None,
        echoes: Iterable[str] = (),
        failures: Iterable[str] = (),
    ) -> None:
        super().__init__(statements)
        self.trace = trace
        self.echoes = list(echoes)
        self.failures = list(failures)

    def _repr_html_(self) -> str:
        from .trace_views import extraction_html

        return extraction_html(self)


class Forgotten(int):
    """How many records a `forget` or `reset` removed; an int that also says which.

    Attributes:
        record_ids: the ids, when they were few enough to list (at most 1,000).
        versions: how many stored versions went with them, living ones included.
        erased: False when the versions were only retired and stay in history.
    """

    record_ids: tuple[str, ...]
    versions: int
    erased: bool

    def __new__(  # noqa: D102
        cls, records: int, *, record_ids: Iterable[str] = (), versions: int = 0, erased: bool = True
    ) -> Self:
        self = super().__new__(cls, records)
        self.record_ids = tuple(record_ids)
        self.versions = versions
        self.erased = erased
        return self


class Reanalyzed(int):
    """How many records a `reanalyze` filled in; an int that also says which, and what is left.

    Attributes:
        record_ids: the records that were filled in.
        failed: why each of the others could not be, by record id; they still wait.
        trace: the step-by-step record of the run with tokens, cost and time of every call of the
            model; None when tracing was off.
    """

    record_ids: tuple[str, ...]
    failed: dict[str, str]
    trace: Trace | None

    def __new__(  # noqa: D102
        cls,
        record_ids: Iterable[str] = (),
        *,
        failed: Mapping[str, str] | None = None,
        trace: Trace | None = None,
    ) -> Self:
        ids = tuple(record_ids)
        self = super().__new__(cls, len(ids))
        self.record_ids = ids
        self.failed = dict(failed or {})
        self.trace = trace
        return self

    def _repr_html_(self) -> str:
        from .trace_views import reanalyzed_html

        return reanalyzed_html(self)
