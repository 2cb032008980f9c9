"""Saving: remember, remember_many, extract_memories, and what is still pending."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mnemotrace.checks import checked_seconds, shortened
from mnemotrace.errors import InvalidInputError, ScopePermissionError
from mnemotrace.flows.requests import (
    BATCH,
    SaveRequest,
    checked_labels,
    checked_moment,
    next_position,
    save_request,
)
from mnemotrace.naming import meant
from mnemotrace.recording import expect
from mnemotrace.records import Extraction, MemoryRecord
from mnemotrace.trace import catching
from mnemotrace.twins import awaitable, blocking

from .base import Handle, Time

if TYPE_CHECKING:
    from mnemotrace.receipts import SaveReceipt
    from mnemotrace.stores.outbox import DeadLetter

_ITEM_KEYS = frozenset(
    (
        *("content", "scope", "record_id", "categories", "metadata", "importance", "source"),
        *("private", "created_at", "valid_from", "expires_at", "pinned", "session"),
    )
)
"""What an item of `remember_many` may have: the arguments of `remember`."""


def _wrong_keys(item: Mapping[Any, Any]) -> str:
    """Say what is wrong with the keys of an item of `remember_many`."""
    for key in item:
        if not isinstance(key, str):
            return f"has the key {shortened(key)}. Keys are names of arguments of remember()."
        if key not in _ITEM_KEYS:
            return f"has the unknown key {shortened(key)}. {meant(key, _ITEM_KEYS, 'Known keys')}"
    return "has no 'content', which is the text to remember."


class Saving(Handle):
    """The methods that put memories in."""

    def _request(
        self,
        content: Any,
        scope: str | None,
        **fields: Any,
    ) -> SaveRequest:
        request = save_request(
            content,
            scope=self._reach.writing(scope),
            reach=self._reach.roots,
            **fields,
        )
        return expect(self._core, request)

    async def _remember(
        self,
        content: str,
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        *,
        created_at: Time | None = None,
        valid_from: Time | None = None,
        expires_at: Time | None = None,
        pinned: bool = False,
        record_id: str | None = None,
        session: str | None = None,
    ) -> MemoryRecord:
        """Save one text; it is durable and visible when this returns.

        Args:
            content: the text; blank text is refused.
            scope: where it goes, such as ``/project/alpha``. Left out, the language model infers
                it from the content and the scopes there are; without a model it is the view's
                own scope. A text that this scope already holds is not stored twice; where the
                scope is to be inferred, that goes for the whole view, and no model is asked.
            categories: labels; inferred when left out.
            metadata: your own JSON-like values; dates and times come back as such.
            importance: 0..1; inferred when left out, else `default_importance`.
            source: who or what this comes from.
            private: only visible to those who ask as the same `source`, or with
                `include_private`; without a `source`, only with `include_private`.
            created_at: when it was said; now by default. Recency is judged by it. This and the
                other times are datetimes or ISO 8601 text; without a time zone they are UTC.
            valid_from: from when on it is true; by default since `created_at`, at the latest now.
                ``as_of=`` a time since then finds it, though it was saved later. Before that time
                it is not recalled, listed or counted, but by ``as_of=`` (or ``now=``) at or past that time; `get`,
                `history`, `update`, `forget` and an export reach it at once. It takes nobody's
                place, so no model is asked to merge it.
            expires_at: from when on it is no longer recalled, listed or counted; a time that is
                past only with a `valid_from` or `created_at` before it.
            pinned: kept first when memories are packed into a budget.
            record_id: your own id, any text. The text is then stored under it even where its
                scope already says the same under another id.
            session: the name of the conversation this is the next turn of. Turns of one session
                are also found by the words of the turns around them; they keep the order in which
                they were saved.

        Returns:
            The record the text became, or the one it was merged into, which keeps its own times.
            Its `trace` tells how it was
            saved.

        Raises:
            InvalidInputError: it would expire before it is valid.
            RecordError: blank content, importance outside 0..1, metadata that cannot be stored,
                or a `record_id` that is taken: by a record that says something else, that is not
                current any more, or that is not visible here.
            ScopePermissionError: a read-only view, or a scope outside of it.
            EmbedderError, StoreError: nothing was stored.
            TimeoutError: it took longer than `encode_timeout`.
        """
        request = self._request(
            content,
            scope,
            categories=categories,
            metadata=metadata,
            importance=importance,
            source=source,
            private=private,
            created_at=created_at,
            valid_from=valid_from,
            expires_at=expires_at,
            pinned=pinned,
            record_id=record_id,
            session=session,
        )
        with catching() as caught:
            record = await self._core.remember(request)
        record.keep_trace(caught.trace)
        return record

    remember = blocking(_remember)
    aremember = awaitable(_remember)

    async def _remember_many(
        self,
        contents: Iterable[str | Mapping[str, Any]],
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        *,
        created_at: Time | None = None,
        valid_from: Time | None = None,
        expires_at: Time | None = None,
        pinned: bool = False,
        session: str | None = None,
    ) -> SaveReceipt:
        """Accept many texts and return at once; they are encoded in the background.

        Accepted means on disk: a killed process goes on with them when the store is next opened.
        `recall` and the other reads wait for them.

        Args:
            contents: texts, or dicts with ``content`` and any argument of `remember`, which then
                win over the ones given here for all; times without a time zone are UTC. Texts that begin with a speaker, such as
                ``Ana: see you at ten``, are taken as turns of one conversation.

        Returns:
            A receipt: ``receipt.wait()`` (or ``await receipt``) gives the records or raises
            SaveError.

        Raises:
            As `remember`, before anything is accepted: the whole batch or nothing.
        """
        shared: dict[str, Any] = {
            "categories": checked_labels(categories, "categories"),
            "metadata": metadata,
            "importance": importance,
            "source": source,
            "private": private,
            "created_at": created_at,
            "valid_from": valid_from,
            "expires_at": expires_at,
            "pinned": pinned,
            "session": session,
        }
        if isinstance(contents, (str, bytes, Mapping)) or not isinstance(contents, Iterable):
            raise InvalidInputError(
                f"contents must be a list of texts, not {shortened(contents)}; remember() saves a "
                "single one. Nothing was stored."
            )
        batch = f"{BATCH}{uuid.uuid4().hex}"
        requests: list[SaveRequest] = []
        for number, entry in enumerate(contents, start=1):
            own = dict(entry) if isinstance(entry, Mapping) else {"content": entry}
            if not own.keys() <= _ITEM_KEYS or "content" not in own:
                raise InvalidInputError(
                    f"Item {number} of remember_many {_wrong_keys(own)} Nothing was stored."
                )
            place = own.pop("scope", scope)
            text = own.pop("content")
            fields = {**shared, **own}
            if fields["session"] is None:
                fields["session"] = batch
            try:
                requests.append(self._request(text, place, position=next_position(), **fields))
            except (InvalidInputError, ScopePermissionError) as error:
                raise type(error)(f"Item {number} of remember_many: {error}") from error
        return await self._core.remember_many(requests)

    remember_many = blocking(_remember_many)
    aremember_many = awaitable(_remember_many)

    async def _extract_memories(
        self, content: str, *, now: Time | None = None, source: str | None = None
    ) -> Extraction:
        """Split a text into atomic, self-contained statements; stores nothing.

        Long texts are read in overlapping parts. The language model puts names in place of
        pronouns and dates in place of "yesterday", in the language of the text. What this memory
        gave to the text before (recalled, pasted) is not extracted again; see
        `mnemotrace.flows.echo` for the rule.

        Args:
            content: the text, of any length; blank text is refused.
            now: the time from which "yesterday" or "next week" count, in its own time zone (naive
                is UTC); the present, in this machine's time zone, by default.
            source: who is asking, so that its own private memories count as known, too.

        Returns:
            A list of the statements that also has `trace`, `echoes` and `failures`. Empty when
            nothing is worth remembering. A part of the text that the model cannot help with is
            in it as it stands; without a model, the whole text is the only statement.

        Raises:
            RecordError: blank content.
            InvalidInputError: `now` is not a time.
        """
        moment = checked_moment(now, "now")
        return await self._core.extract(content, self._seen_by(source, False), moment)

    extract_memories = blocking(_extract_memories)
    aextract_memories = awaitable(_extract_memories)

    async def _drain_writes(self, timeout: float | None = None) -> int:
        """Wait until every accepted save was tried.

        Args:
            timeout: seconds to wait; None for as long as it takes.

        Returns:
            How many texts are still not saved; 0 when all are. They are kept and retried, until
            the memory is closed; after that, how many were not saved then.

        Raises:
            TimeoutError: after `timeout` seconds; the saves go on.
            InvalidInputError: `timeout` is not a number.
        """
        return await self._core.drain(checked_seconds(timeout, "timeout"))

    drain_writes = blocking(_drain_writes)
    adrain_writes = awaitable(_drain_writes)

    async def _dead_letters(
        self, *, source: str | None = None, include_private: bool = False
    ) -> list[DeadLetter]:
        """Return the background saves that were given up, with their texts and errors.

        Args:
            source: whose private texts are visible too.
            include_private: see everyone's private texts.

        Returns:
            One for each batch, the oldest first; ``[]`` when there are none.
        """
        return await self._core.dead_letters(self._seen_by(source, include_private))

    dead_letters = blocking(_dead_letters)
    adead_letters = awaitable(_dead_letters)

    async def _retry_dead_letters(self) -> int:
        """Try given-up saves again in the background, private ones included.

        Returns:
            How many batches; one that also holds texts outside of this view is left alone.
        """
        self._reach.require_writable()
        return await self._core.retry_dead_letters(self._selection(include_private=True))

    retry_dead_letters = blocking(_retry_dead_letters)
    aretry_dead_letters = awaitable(_retry_dead_letters)
