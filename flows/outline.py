"""The outline of a flow: its steps and the events that may lead from one to the next.

It is read off the step functions themselves, so a drawing of a flow is never out of date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workflows.events import StartEvent, StopEvent

from .encoding import EncodingFlow
from .extraction import ExtractionFlow
from .recall import RecallFlow, ShallowRecall
from .steps import TracedWorkflow

START = "start"
END = "end"


@dataclass(frozen=True, slots=True)
class Transition:
    """One way on: a step may return this event, which the other step accepts.

    `source` is `START` for the event that begins a run, `target` is `END` for one that ends it.
    """

    source: str
    event: str
    target: str


@dataclass(frozen=True, slots=True)
class Outline:
    """A flow's name, its steps and every possible transition between them."""

    name: str
    steps: tuple[str, ...]
    transitions: tuple[Transition, ...]


def outline(flow: type[TracedWorkflow]) -> Outline:
    """Return the outline of a flow class; steps and transitions are in alphabetical order."""
    configs = {
        name: function._step_config for name, function in flow._get_steps_from_class().items()
    }
    found: set[Transition] = set()
    for name, config in configs.items():
        for event in config.accepted_events:
            if isinstance(event, type) and issubclass(event, StartEvent):
                found.add(Transition(START, event.__name__, name))
        for event in config.return_types:
            if isinstance(event, type) and issubclass(event, StopEvent):
                found.add(Transition(name, event.__name__, END))
            found.update(
                Transition(name, event.__name__, other)
                for other, accepting in configs.items()
                if event in accepting.accepted_events
            )
    ordered = sorted(found, key=lambda way: (way.source, way.event, way.target))
    return Outline(flow.__name__, tuple(sorted(configs)), tuple(ordered))


def flow_of(kind: str, attrs: Mapping[str, Any]) -> type[TracedWorkflow] | None:
    """Return the flow behind a run of this kind; None when the run is not one flow.

    Args:
        kind: the kind of its trace, such as ``recall``.
        attrs: the facts of the run; a recall has its depth there.
    """
    if kind == "recall":
        return ShallowRecall if attrs.get("depth") == "shallow" else RecallFlow
    if kind == "encode":
        return EncodingFlow
    return ExtractionFlow if kind == "extract" else None
