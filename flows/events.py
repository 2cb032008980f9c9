"""The typed events the flows pass from step to step.

Each carries the run it belongs to by reference and little else: the workflow engine prints and
copies event fields, so texts and vectors stay in the run object.
"""

from __future__ import annotations

from typing import Any

from workflows.events import Event, StartEvent, StopEvent


class EncodingStarted(StartEvent):
    """A batch of texts was accepted for saving."""

    run: Any


class Embedded(Event):
    """Every text has its vectors."""

    run: Any


class Deduplicated(Event):
    """Items that repeat an earlier item of the batch are settled."""

    run: Any


class SimilarFound(Event):
    """Stored records like the new ones are known, and a language model has work to do."""

    run: Any


class Analyzed(Event):
    """Missing fields are filled in; some items still have similar records to be judged."""

    run: Any


class Settled(Event):
    """Every item has its outcome; nothing is written yet."""

    run: Any


class EncodingFinished(StopEvent):
    """The batch is durable and visible."""

    run: Any


class RecallStarted(StartEvent):
    """A query was accepted."""

    run: Any


class QueryAnalyzed(Event):
    """The query has become one to three sub-queries with vectors."""

    run: Any


class ScopesSelected(Event):
    """Where to search next is decided."""

    run: Any


class Searched(Event):
    """The searches of this round are done."""

    run: Any


class Confident(Event):
    """The evidence suffices, or nothing more can be tried."""

    run: Any


class Uncertain(Event):
    """The evidence is weak and budget is left."""

    run: Any


class RecallFinished(StopEvent):
    """The matches are ranked."""

    run: Any


class ExtractionStarted(StartEvent):
    """A text was accepted, to be split into statements."""

    run: Any


class Recognised(Event):
    """What the text repeats from memory is known and marked."""

    run: Any


class Divided(Event):
    """The text is cut into parts."""

    run: Any


class Extracted(Event):
    """Every part has its statements, or is kept as it is."""

    run: Any


class ExtractionFinished(StopEvent):
    """The statements are put together, each said once."""

    run: Any
