"""What a language model may answer in each place where it is asked."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class _Answer(BaseModel):
    """Extra keys are ignored; missing required ones make the answer invalid."""

    model_config = ConfigDict(extra="ignore")


class SaveAnalysis(_Answer):
    """Where a text belongs and how much it matters."""

    scope: str = Field(description="Path such as /project/alpha; reuse an existing one if it fits")
    categories: list[str] = Field(default_factory=list)
    importance: float = Field(description="0 (trivial) to 1 (critical)")
    entities: list[str] = Field(default_factory=list)
    dates: list[str] = Field(default_factory=list)
    topics: list[str] = Field(default_factory=list)

    @field_validator("importance")
    @classmethod
    def _bounded(cls, value: float) -> float:
        if not 0.0 <= value <= 1.0:
            raise ValueError("importance must be from 0 to 1")
        return value


class ConsolidationAction(_Answer):
    """What becomes of one stored record."""

    id: str
    action: Literal["keep", "update", "delete"]
    content: str | None = Field(default=None, description="The merged text, for update only")


class ConsolidationPlan(_Answer):
    """What becomes of the stored records that are like a new text, and of the new text."""

    actions: list[ConsolidationAction]
    insert_new: bool


class QueryAnalysis(_Answer):
    """A long query, distilled."""

    sub_queries: list[str] = Field(default_factory=list, description="1 to 3 search phrases")
    keywords: list[str] = Field(default_factory=list)
    scopes: list[str] = Field(default_factory=list)
    complexity: Literal["simple", "complex"] = "simple"
    since: datetime | None = None
    until: datetime | None = None


class Exploration(_Answer):
    """What the evidence lacks, and where to look for it."""

    gaps: list[str] = Field(default_factory=list, description="What is missing, in a few words")
    sub_queries: list[str] = Field(default_factory=list)
    scopes: list[str] = Field(default_factory=list)


class ExtractedMemories(_Answer):
    """Atomic, self-contained facts."""

    memories: list[str]
