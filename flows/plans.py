"""What a language model's consolidation plan may do, told from the full texts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mnemotrace.errors import MnemotraceError
from mnemotrace.records import MemoryRecord

from .answers import ConsolidationAction, ConsolidationPlan
from .merging import may_replace, outdates, says_all
from .requests import checked_text


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan as far as it may be carried out.

    Attributes:
        heir: the stored record that takes the new text in; None when there is none.
        merged: what the heir will say; None when it already says all of the new text.
        insert_new: the new text becomes a record of its own, whatever the heir says.
        deleted: records that the new text outdates.
        absorbed: records that the heir outdates once it took the new text in, not the text alone.
        refused: what the plan must not do, one line each.
    """

    heir: MemoryRecord | None = None
    merged: str | None = None
    insert_new: bool = True
    deleted: tuple[MemoryRecord, ...] = ()
    absorbed: tuple[MemoryRecord, ...] = ()
    refused: tuple[str, ...] = ()

    def takes_in(self, current: MemoryRecord, text: str) -> str | None:
        """Return what the heir says after it took in the new text.

        Args:
            current: the heir as it stands now; another text of the batch may have changed it.
            text: the new text.

        Returns:
            None when a fact of `current` or of `text` could be lost.
        """
        if self.merged is None:
            return current.content if says_all(current.content, text) else None
        unchanged = self.heir is not None and current.content == self.heir.content
        return self.merged if unchanged else None


def checked_plan(
    plan: ConsolidationPlan, similar: Sequence[MemoryRecord], text: str, merging: bool = True
) -> CheckedPlan:
    """Return the plan without what it must not do.

    The new text is only left out when a record that says all of it remains. A merged text must say
    what both say, but for what the new text changes, and bring nothing of its own. A record is
    only outdated when the new text, or the record that took it in, speaks of all that it says.
    What is refused, ids that were not shown, and records that two actions disagree about are left
    alone.

    Args:
        plan: as the model gave it.
        similar: the records it was shown.
        text: the new text.
        merging: whether the new text may become part of a stored record.
    """
    shown = {record.id: record for record in similar}
    kinds: dict[str, set[str]] = {}
    for action in plan.actions:
        kinds.setdefault(action.id, set()).add(action.action)
    heir: MemoryRecord | None = None
    merged: str | None = None
    doomed: dict[str, MemoryRecord] = {}
    refused: dict[str, None] = {}
    for action in plan.actions:
        record = shown.get(action.id)
        if record is None:
            # Without the id: a model may put anything there, and traces hold no content.
            refused[f"{action.action} of a record that was not shown"] = None
        elif len(kinds[action.id]) > 1:
            refused[f"{' and '.join(sorted(kinds[action.id]))} of {action.id} at once"] = None
        elif action.action == "delete":
            doomed[record.id] = record
        elif heir is not None or not merging:
            continue
        elif action.action == "update":
            if problem := _fault(action, record, text):
                refused[f"update of {record.id} {problem}"] = None
            else:
                heir, merged = record, (action.content or "").strip()
        elif not plan.insert_new:
            if says_all(record.content, text):
                heir = record
            else:
                refused[f"keep of {record.id} instead of the new text, which says more"] = None
    deleted, absorbed = [], []
    for record in doomed.values():
        if outdates(text, record.content):
            deleted.append(record)
        elif heir is not None and outdates(merged or heir.content, record.content):
            absorbed.append(record)
        else:
            refused[f"delete of {record.id}, which says more than is said now"] = None
    return CheckedPlan(
        heir,
        merged,
        insert_new=plan.insert_new or heir is None,
        deleted=tuple(deleted),
        absorbed=tuple(absorbed),
        refused=tuple(refused),
    )


def _fault(action: ConsolidationAction, record: MemoryRecord, text: str) -> str:
    """Return what is wrong with the text of an update, empty when nothing is."""
    try:
        merged = checked_text(action.content or "").strip()
    except MnemotraceError:
        return "without a text"
    if not may_replace(merged, record.content, text):
        return "with a text that loses facts or brings some of its own"
    return ""
