"""What an examination found: one entry for each check, and a verdict over all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "note", "problem", "unknown"]
"""``note`` is worth knowing and no fault; ``unknown`` could not be checked."""

HEALTHY = 0
PROBLEMS = 1
INCOMPLETE = 3
"""Exit codes: all is well; something is wrong; nothing is wrong in what could be checked."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what, such as ``manifest``.
        message: what was found.
        remedy: what to do about it; empty when there is nothing to be done.
        facts: the numbers and names behind it, as plain JSON data; never a key or a text.
    """

    name: str
    status: Status
    message: str
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the check as plain JSON data."""
        return {
            "name": self.name,
            "status": self.status,
            "message": self.message,
            "remedy": self.remedy,
            "facts": self.facts,
        }


@dataclass(slots=True)
class Report:
    """Everything that was looked at, in order.

    Attributes:
        place: the folder, or the URL of the server.
        checks: what was looked at, each with `name`, `status`, `message` and `remedy`.
    """

    place: str
    checks: list[Check] = field(default_factory=list)

    def add(self, name: str, status: Status, message: str, remedy: str = "", **facts: Any) -> Check:
        """Note what one check found."""
        check = Check(name, status, message, remedy, facts)
        self.checks.append(check)
        return check

    def find(self, name: str) -> Check | None:
        """Return the check of this name; None when it was not made."""
        return next((check for check in self.checks if check.name == name), None)

    @property
    def problems(self) -> list[Check]:
        """What is wrong; empty when nothing is."""
        return [check for check in self.checks if check.status == "problem"]

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 problems, 3 no problem found, but part could not be checked."""
        if self.problems:
            return PROBLEMS
        return INCOMPLETE if any(c.status == "unknown" for c in self.checks) else HEALTHY

    @property
    def status(self) -> str:
        """``healthy``, ``problems`` or ``incomplete``."""
        return {HEALTHY: "healthy", PROBLEMS: "problems", INCOMPLETE: "incomplete"}[self.exit_code]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON data."""
        return {
            "place": self.place,
            "status": self.status,
            "exit_code": self.exit_code,
            "checks": [check.to_json() for check in self.checks],
        }
