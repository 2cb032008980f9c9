"""Explaining: why a recall returned a record, or why it did not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from mnemotrace.twins import awaitable, blocking

from .base import Depth, Handle, Time

if TYPE_CHECKING:
    from mnemotrace.recall_explanation import RecallExplanation


class Explaining(Handle):
    """The method that answers why."""

    async def _explain(
        self,
        query: str,
        record_id: str,
        scope: str | None = None,
        categories: Iterable[str] | None = None,
        limit: int = 10,
        depth: Depth = "deep",
        source: str | None = None,
        include_private: bool = False,
        *,
        viewer: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        now: Time | None = None,
        wait_for_writes: bool = True,
        trace: Literal["off", "on", "full"] | None = None,
    ) -> RecallExplanation:
        """Explain why a recall returns a record, or why it does not and what would change that.

        The recall runs as `recall` would with the same arguments, then what could return the
        record is tried. Nothing is written, and no access is counted. With ``depth="shallow"`` no
        language model is asked; a deep one may ask as often as the recall does, and again for each
        change that makes it ask something else (docs/explaining.md).

        Args:
            query: as in `recall`, and so are all arguments that are not named here.
            record_id: the record.

        Returns:
            A verdict with reasons, facts and changes that were tried. A record that may not be
            seen from here has the verdict ``unknown``, just like one that does not exist. Only the
            memory itself, asked without `source` and `viewer`, is told of private records of others.

        Raises:
            As `recall`.
        """
        from mnemotrace.explaining import Inquiry

        labels = categories
        if labels is not None and not isinstance(labels, str) and isinstance(labels, Iterable):
            labels = list(labels)  # it is read more than once
        arguments: dict[str, Any] = {
            "query": query,
            "scope": scope,
            "categories": labels,
            "limit": limit,
            "depth": depth,
            "source": source,
            "include_private": include_private,
            "viewer": viewer,
            "since": since,
            "until": until,
            "as_of": as_of,
            "metadata_filter": metadata_filter,
            "now": now,
            "wait_for_writes": wait_for_writes,
            "trace": trace,
        }
        return await Inquiry(self, record_id, arguments).run()

    explain = blocking(_explain)
    aexplain = awaitable(_explain)
