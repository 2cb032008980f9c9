"""One batch of texts on its way into the store: its items, its twins, and the changes it makes.

Everything here is plain computation over records; the encoding flow does the asking and writing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np

from mnemotrace import facts, scopes
from mnemotrace.capture import capturing
from mnemotrace.embedders.lexical import text_hash
from mnemotrace.errors import ScopeError
from mnemotrace.llm.service import Patience
from mnemotrace.records import MemoryRecord, pending_analysis, pending_fields
from mnemotrace.stores.backend import (
    NewVersion,
    Retirement,
    SparseVector,
    Vector,
    WriteBatch,
)
from mnemotrace.stores.selection import Selection

from .answers import SaveAnalysis
from .context import is_named
from .merging import says_all
from .plans import CheckedPlan, Decision
from .requests import SaveRequest

_MOST_COMPARED = 32
"""Near-identical earlier texts that one text is compared with, word by word: texts made from one
template are all near each other, and comparing every pair would be quadratic."""

_ONE_THREAD = 2**18
"""Multiplications up to which OpenBLAS stays in one thread."""

MOST_CATEGORIES = 20
MOST_NAMED = 50
LONGEST_LABEL = 200
"""Most categories, most entities, dates or topics of one text, and most characters of one: a model
that goes on for ever must not fill a record with what nobody reads."""


@dataclass(slots=True, eq=False)
class Item:
    """One text on its way into the store."""

    request: SaveRequest
    hash: str
    dense: Vector | None = None
    lexical: SparseVector | None = None
    """Of its words alone; None for a turn of a conversation, and while nobody has counted them."""
    twin: Item | None = None
    """The earlier item of this batch that says the same."""
    existing: MemoryRecord | None = None
    """The stored record with exactly this text."""
    similar: list[MemoryRecord] = field(default_factory=list)
    judged: frozenset[tuple[str, int]] = frozenset()
    """The (id, version) of the similar records the plan was made for."""
    analysis: SaveAnalysis | None = None
    analysis_failed: str = ""
    """Why the analysis that was due could not be made; empty when it was, or none was due."""
    plan: CheckedPlan | None = None
    decisions: list[Decision] = field(default_factory=list)
    """What the plan decided, as far as it was done."""
    adopted: MemoryRecord | None = None
    """What this very save became before a crash."""
    outcome: MemoryRecord | None = None

    @property
    def visible(self) -> Selection:
        """The records this save may merge with: same privacy, within the writer's reach."""
        request = self.request
        return _mergeable(request.reach, request.source, request.private, None)

    def neighbourhood(self, *, inferring: bool) -> Selection:
        """`visible`, cut down to the scope it will be in, as far as that is known.

        Args:
            inferring: whether a model is there to infer a scope that was not given. Before it has
                answered, any scope in reach may be meant, and a text that is stored already is not
                worth a question; so the whole reach is searched.
        """
        request = self.request
        anywhere = request.scope is None and inferring and not self.analysis_failed
        place = None if anywhere else request.home
        return _mergeable(request.reach, request.source, request.private, place)


@lru_cache(maxsize=256)
def _mergeable(
    reach: tuple[str, ...], source: str | None, private: bool, scope: str | None
) -> Selection:
    """Return what a save may merge with; the texts of a batch mostly share it."""
    return Selection(
        roots=reach,
        at_scope=scope,
        viewer=source,
        private_only=private,
        public_only=not private,
    )


@dataclass(slots=True, eq=False)
class EncodingRun:
    """One batch on its way through the flow."""

    items: list[Item]
    now: datetime
    sequence: int = -1
    attempts: int = 0
    patience: Patience | None = None
    """How long the model is asked; None for as long as it takes."""
    inferring: bool = False
    """Whether a model is there to fill in what was left out, the scope for one."""
    judge: bool = False
    """Whether a model is there to judge similar records."""
    failures: list[str] = field(default_factory=list)
    """Why analysis or consolidation by a language model was given up, one line each."""
    merged: dict[str, Vector] = field(default_factory=dict)
    """The vectors of the texts that the model merged."""

    @classmethod
    def of(cls, requests: list[SaveRequest], now: datetime) -> EncodingRun:
        """Return a run over these requests."""
        keeper = capturing()
        if keeper is not None:
            keeper.began(now)
        return cls([Item(r, text_hash(r.content)) for r in requests], now)

    def __repr__(self) -> str:
        return f"EncodingRun({len(self.items)} items)"

    @property
    def open_items(self) -> list[Item]:
        """Items still to be decided: neither the twin of an earlier one nor already stored."""
        return [item for item in self.items if item.twin is None and item.adopted is None]

    @property
    def outcomes(self) -> list[MemoryRecord]:
        """What each text became, in order; texts that say the same share one record."""
        results = [(item.twin or item).outcome for item in self.items]
        return [record for record in results if record is not None]

    @property
    def decisions(self) -> Iterator[tuple[Decision, MemoryRecord]]:
        """What the model decided about stored records, with what the new text became."""
        for item in self.items:
            if item.outcome is not None:
                for decision in item.decisions:
                    yield decision, item.outcome


def find_twins(items: list[Item], threshold: float, *, inferring: bool = True) -> None:
    """Mark items that repeat an earlier item with the same place and privacy.

    Args:
        items: the batch, in order.
        threshold: the least cosine of texts that are compared word by word.
        inferring: whether a model infers the scopes that were left out; else those are known, and
            may be the same as one that was given.
    """
    by_hash: dict[tuple[object, ...], Item] = {}
    groups: dict[tuple[object, ...], list[Item]] = {}
    for item in items:
        request = item.request
        source = request.source if request.private else None
        session = request.session if is_named(request.session) else None
        scope = request.scope if inferring else request.home
        place = (scope, request.private, source, session)
        twin = by_hash.setdefault((*place, item.hash), item)
        if twin is not item and not request.explicit_id:
            item.twin = twin
        else:
            groups.setdefault(place, []).append(item)
    if threshold > 1.0:
        return
    for group in groups.values():
        if len(group) < 2:
            continue
        matrix = np.stack([item.dense for item in group if item.dense is not None])
        matrix = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
        for start, block in _cosines(matrix):
            for row, later in enumerate(group[start : start + len(block)]):
                if later.request.explicit_id:
                    continue
                cosines = block[row, : start + row]
                near = np.flatnonzero(cosines >= threshold - 1e-6)
                if len(near) > _MOST_COMPARED:
                    near = near[np.argsort(-cosines[near], kind="stable")[:_MOST_COMPARED]]
                later.twin = next((group[i] for i in near.tolist() if _says(group[i], later)), None)


def _cosines(matrix: Vector) -> Iterator[tuple[int, Vector]]:
    """Yield, for some rows at a time, the first one's number and their products.

    Those with every row up to the last of them. In squares so small that numpy's library multiplies
    each in this thread: a second one spins for 0.1 s after every product, on a core that the calls
    of the model need.
    """
    side = max(1, isqrt(_ONE_THREAD // matrix.shape[1]))
    for start in range(0, len(matrix), side):
        rows = matrix[start : start + side]
        squares = [rows @ matrix[at : at + side].T for at in range(0, start + 1, side)]
        yield start, np.concatenate(squares, axis=1)


def _says(earlier: Item, later: Item) -> bool:
    return earlier.twin is None and facts.may_be_duplicates(
        earlier.request.content, later.request.content
    )


class Draft:
    """The changes of one batch, before they are committed; several items may touch one record."""

    def __init__(self, run: EncodingRun, default_importance: float) -> None:
        self.run = run
        self.default_importance = default_importance
        self.base: dict[str, MemoryRecord] = {}
        """The stored version of every record that the batch touches."""
        self.now: dict[str, MemoryRecord] = {}
        """What the touched and the new records become."""
        self.new: dict[str, Item] = {}
        self.retired: dict[str, str] = {}
        """Records that are replaced by another one, and by which."""
        self.became: list[tuple[Item, str]] = []

    def settle(self, item: Item) -> None:
        """Decide what becomes of one item."""
        if item.existing is not None:
            self._repeat(item, item.existing)
        elif item.plan is not None:
            self._follow(item, item.plan)
        else:
            self._insert(item)

    def _repeat(self, item: Item, existing: MemoryRecord) -> None:
        """Fold a text into the record that says it, unless this batch has changed that record."""
        current = self.now.get(existing.id, existing)
        unchanged = current.content == existing.content
        if existing.id in self.retired or not (
            unchanged or says_all(current.content, item.request.content)
        ):
            self._insert(item)
        else:
            self._merge(item, current, current.content)

    def fold_twins(self) -> None:
        """Give each record what was said with the items that repeat it: sources, metadata, ..."""
        records = {id(item): record_id for item, record_id in self.became}
        for item in self.run.items:
            record_id = records.get(id(item.twin))
            if item.twin is not None and record_id is not None:
                record = self.now[record_id]
                self._merge(item, record, record.content)

    def _follow(self, item: Item, plan: CheckedPlan) -> None:
        """Carry out a plan, as far as the other texts of the batch leave room for it."""
        survivor: str | None = None
        doomed = [*plan.deleted]
        heir = plan.heir
        if heir is not None and heir.id not in self.retired:
            current = self.now.get(heir.id, heir)
            text = plan.takes_in(current, item.request.content)
            if text is not None:
                survivor = self._merge(item, current, text)
                doomed += plan.absorbed
        if survivor is None or plan.insert_new:
            survivor = self._insert(item)
        gone = [r for r in doomed if r.id != survivor and r.id not in self.now]
        for record in gone:
            self.base[record.id] = record
            self.retired[record.id] = survivor
        if gone:
            kept = self.now[survivor]
            self._change(kept, supersedes=[*kept.supersedes, *(record.id for record in gone)])

    def _merge(self, item: Item, stored: MemoryRecord, text: str) -> str:
        """Fold a save into a stored record: its text, sources and explicit fields."""
        old, request = self.now.get(stored.id, stored), item.request
        sources = list(old.sources or ([old.source] if old.source else []))
        if request.source and request.source not in sources:
            sources.append(request.source)
        changes: dict[str, Any] = {
            "content": text,
            "sources": sources,
            "categories": list(dict.fromkeys([*old.categories, *(request.categories or ())])),
            "metadata": {**old.metadata, **request.metadata},
            "pinned": old.pinned or request.pinned,
        }
        waiting = pending_fields(old.analysis)
        if request.importance is not None:
            # A default that stands in for an analysis weighs nothing against what is said now.
            given = "importance" not in waiting
            changes["importance"] = max(old.importance * given, request.importance)
        if old.expires_at is not None:
            # Said again without an end, it no longer ends.
            ends = request.expires_at
            changes["expires_at"] = None if ends is None else max(old.expires_at, ends)
        if old.valid_from is not None and old.valid_from > self.run.now:
            # Said again for an earlier time, it is valid from then on.
            changes["valid_from"] = min(old.valid_from, request.valid_from or self.run.now)
        if waiting:
            # What the caller has said now is no longer for a model to fill in.
            changes["analysis"] = pending_analysis(set(waiting) & set(request.missing))
        changes = {name: value for name, value in changes.items() if getattr(old, name) != value}
        if changes:
            self._change(old, **changes)
        else:
            self.now.setdefault(old.id, old)
            self.base.setdefault(old.id, old)
        self.became.append((item, old.id))
        return old.id

    def _change(self, old: MemoryRecord, **changes: Any) -> None:
        if old.id in self.new:
            self.now[old.id] = old.model_copy(update=changes)
            return
        base = self.base.setdefault(old.id, old)
        changed = next_version(old, self.run.now, **changes)
        self.now[old.id] = changed.model_copy(update={"version": base.version + 1})

    def _insert(self, item: Item) -> str:
        record = _new_record(item, self.run.now, self.default_importance)
        self.new[record.id] = item
        self.now[record.id] = record
        self.became.append((item, record.id))
        return record.id

    def batch(self) -> WriteBatch:
        """Return the changes as one atomic batch."""
        changed = [
            (self.base[record_id], record)
            for record_id, record in self.now.items()
            if record_id not in self.new and record.version != self.base[record_id].version
        ]
        merged = {
            new.id: self.run.merged[new.content]
            for old, new in changed
            if new.content != old.content
        }
        following = succession(changed, merged)
        versions = [*following.versions]
        retire = [*following.retire]
        expect = {**following.expect}
        for record_id, item in self.new.items():
            record = self.now[record_id]
            expect[record_id] = 0
            versions.append(NewVersion(record, item.hash, item.dense, item.lexical))
        for record_id, heir in self.retired.items():
            version = self.base[record_id].version
            expect[record_id] = version
            ends = self._replaced_at(self.base[record_id], self.now[heir])
            retire.append(Retirement(record_id, version, ends, "superseded", heir))
        return WriteBatch(versions, retire, expect)

    def _replaced_at(self, old: MemoryRecord, heir: MemoryRecord) -> datetime:
        """Return when a record stopped being valid: when the one that replaced it began to be.

        That is now where the new one tells of an earlier time than the old one: each was then
        known by itself.
        """
        begins = heir.valid_from or self.run.now
        return begins if begins > (old.valid_from or old.created_at) else self.run.now

    def publish(self) -> None:
        """Tell each item which record it became."""
        for item, record_id in self.became:
            item.outcome = self.now[record_id]
            if item.plan is not None and item.existing is None and item.twin is None:
                item.decisions = [self._done(d, record_id) for d in item.plan.decisions]

    def _done(self, decision: Decision, became: str) -> Decision:
        """Return a decision as it was carried out beside the other texts of the batch."""
        done = {
            "delete": decision.record_id in self.retired,
            "update": decision.record_id == became or decision.record_id in self.retired,
        }
        if not decision.accepted or done.get(decision.action, True):
            return decision
        return replace(decision, refused="another text of the batch changed the record first")


def next_version(old: MemoryRecord, now: datetime, **changes: Any) -> MemoryRecord:
    """Return the version that follows on one, with these changes; not checked.

    It is valid from now on, or from when the one before would have been.
    """
    begins = changes.pop("valid_from", old.valid_from) or now
    follows = {"version": old.version + 1, "updated_at": now, "valid_from": max(begins, now)}
    return old.model_copy(update={**changes, **follows})


def succession(
    pairs: Iterable[tuple[MemoryRecord, MemoryRecord]],
    dense: Mapping[str, Vector] | None = None,
) -> WriteBatch:
    """Return the batch in which new versions take the place of the current ones.

    Args:
        pairs: the current version and the one that follows on it.
        dense: vectors by record id, of those whose text is another one.
    """
    versions: list[NewVersion] = []
    retire: list[Retirement] = []
    expect: dict[str, int] = {}
    for old, new in pairs:
        vector = None if dense is None else dense.get(new.id)
        versions.append(NewVersion(new, text_hash(new.content), vector))
        since = new.valid_from or new.created_at
        retire.append(Retirement(old.id, old.version, since, "superseded", new.id))
        expect[old.id] = old.version
    return WriteBatch(versions, retire, expect)


def analysed_fields(
    analysis: SaveAnalysis, missing: Collection[str], base: str, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what an analysis adds to a record.

    Args:
        analysis: what the model answered.
        missing: the fields that the caller left out; the others stay as they are.
        base: the writer's own scope; the record stays within it.
        metadata: the caller's own, whose keys are kept.
    """
    found: dict[str, Any] = {}
    if "scope" in missing:
        found["scope"] = _placed(base, analysis.scope)
    if "categories" in missing:
        found["categories"] = _labels(analysis.categories, MOST_CATEGORIES)
    if "importance" in missing:
        found["importance"] = analysis.importance
    named = {
        key: values
        for key in ("entities", "dates", "topics")
        if key not in metadata and (values := _labels(getattr(analysis, key), MOST_NAMED))
    }
    found["metadata"] = {**metadata, **named}
    return found


def _labels(values: Iterable[str], most: int) -> list[str]:
    """Return distinct labels, at most so many, without what is too long to be one."""
    labels = dict.fromkeys(value.strip() for value in values)
    return [label for label in labels if label and len(label) <= LONGEST_LABEL][:most]


def _new_record(item: Item, now: datetime, default_importance: float) -> MemoryRecord:
    """Return the record of a new text; explicit fields win over analysis, analysis over defaults."""
    request, analysis = item.request, item.analysis
    fields: dict[str, Any] = {
        "scope": request.home,
        "categories": list(request.categories or ()),
        "importance": default_importance if request.importance is None else request.importance,
        "metadata": dict(request.metadata),
    }
    if analysis is not None:
        fields |= analysed_fields(analysis, request.missing, request.top, request.metadata)
    return MemoryRecord(
        id=request.record_id,
        content=request.content,
        **fields,
        created_at=request.created_at or now,
        last_accessed=now,
        source=request.source,
        sources=[request.source] if request.source else [],
        private=request.private,
        valid_from=request.begins(now),
        expires_at=request.expires_at,
        pinned=request.pinned,
        analysis=pending_analysis(request.missing) if item.analysis_failed else None,
        session=request.session,
        position=request.position,
    )


def _placed(base: str, suggested: str) -> str:
    """Return a suggested scope within the writer's own subtree; its top where none fits."""
    try:
        path = scopes.normalise(suggested)
        return path if scopes.contains(base, path) else scopes.join(base, path)
    except ScopeError:
        return base
