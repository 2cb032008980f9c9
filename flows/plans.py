"""What a language model's consolidation plan may do, told from the full texts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mnemotrace.errors import MnemotraceError
from mnemotrace.records import MemoryRecord

from .answers import ConsolidationAction, ConsolidationPlan
from .changes import Change
from .merging import joined, may_replace, outdates, says_all
from .requests import checked_text


@dataclass(frozen=True, slots=True)
class Decision:
    """What a model decided about one stored record, and whether that is done.

    Attributes:
        record_id: the record; empty when the model named one that it was not shown.
        action: ``keep``, ``update`` or ``delete``.
        refused: why it is not done; empty when it is.
        told: what the model says about it, as it says it: ``reason``, ``subject``, ``attribute``,
            ``old_value``, ``new_value``. It is data, and may hold anything.
    """

    record_id: str
    action: str
    refused: str
    told: dict[str, str]

    @property
    def accepted(self) -> bool:
        """Whether it is done."""
        return not self.refused

    @classmethod
    def of(cls, action: ConsolidationAction, record_id: str, refused: str = "") -> Decision:
        """Return the decision about an action."""
        told = {name: text for name in _TOLD if (text := getattr(action, name))}
        return cls(record_id, action.action, refused, told)

    def facts(self) -> dict[str, Any]:
        """Return what a trace may keep of it: no text."""
        shown = {"id": self.record_id, "action": self.action, "accepted": self.accepted}
        return {**shown, "refused": self.refused} if self.refused else shown


_TOLD = ("reason", "subject", "attribute", "old_value", "new_value")


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan as far as it may be carried out.

    Attributes:
        heir: the stored record that takes the new text in; None when there is none.
        merged: what the heir will say; None when it already says all of the new text.
        insert_new: the new text becomes a record of its own, whatever the heir says.
        deleted: records that the new text outdates.
        absorbed: records that the heir outdates once it took the new text in, not the text alone.
        decisions: what the model decided about each record, in its order.
    """

    heir: MemoryRecord | None = None
    merged: str | None = None
    insert_new: bool = True
    deleted: tuple[MemoryRecord, ...] = ()
    absorbed: tuple[MemoryRecord, ...] = ()
    decisions: tuple[Decision, ...] = ()

    @property
    def refused(self) -> tuple[str, ...]:
        """What the plan must not do, one line each."""
        # Where a record was not shown, without its id: a model may put anything there, and traces
        # hold no content.
        lines = (
            f"{d.action}{f' of {d.record_id}' if d.record_id else ''}: {d.refused}"
            for d in self.decisions
            if d.refused
        )
        return tuple(dict.fromkeys(lines))

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
    doomed: dict[str, ConsolidationAction] = {}
    decisions: list[Decision] = []
    for action in plan.actions:
        record = shown.get(action.id)
        if record is None:
            decisions.append(Decision.of(action, "", "the record was not shown"))
            continue
        problem = ""
        if len(kinds[action.id]) > 1:
            if any(decision.record_id == record.id for decision in decisions):
                continue
            problem = f"{' and '.join(sorted(kinds[action.id]))} of one record"
        elif action.action == "delete":
            doomed.setdefault(record.id, action)
            continue
        elif action.action == "update":
            if not merging:
                continue
            if heir is not None:
                problem = f"the new text is part of {heir.id} already"
            elif not (problem := _fault(action, record, text)):
                heir, merged = record, (action.content or "").strip()
        elif not plan.insert_new and heir is None and merging:
            if says_all(record.content, text):
                heir = record
            elif action.same_meaning and (both := joined(record.content, text)):
                heir, merged = record, both
            else:
                problem = "the new text says more, or says it in other words"
        decisions.append(Decision.of(action, record.id, problem))
    deleted, absorbed = [], []
    for action in doomed.values():
        record = shown[action.id]
        problem = ""
        if action.both_hold:
            problem = "both can be true at once, as the model says itself"
        elif outdates(text, record.content, _change(action)):
            deleted.append(record)
        elif heir is not None and outdates(merged or heir.content, record.content):
            absorbed.append(record)
        else:
            problem = "nothing shows that the new text speaks of all that it says"
        decisions.append(Decision.of(action, record.id, problem))
    return CheckedPlan(
        heir,
        merged,
        insert_new=plan.insert_new or heir is None,
        deleted=tuple(deleted),
        absorbed=tuple(absorbed),
        decisions=tuple(decisions),
    )


def _change(action: ConsolidationAction) -> Change | None:
    """Return what a model says has changed; None where it does not quote it."""
    if not action.old_value or not action.new_value:
        return None
    return Change(action.subject, action.old_value, action.new_value)


def _fault(action: ConsolidationAction, record: MemoryRecord, text: str) -> str:
    """Return what is wrong with the text of an update, empty when nothing is."""
    try:
        merged = checked_text(action.content or "").strip()
    except MnemotraceError:
        return "there is no text"
    if not may_replace(merged, record.content, text, _change(action)):
        return "its text loses facts, or brings some of its own"
    return ""
