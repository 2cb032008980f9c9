"""What a language model may answer in each place where it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

_NAMES = ("name", "text", "value", "title", "date", "label")
_STATEMENTS = ("memory", "fact", "statement", "content", "text")
LONGEST_PHRASE = 300
"""Characters of an explanation that are read."""


def _words(value: Any) -> Any:
    """Make of what models write for a list of words a list of distinct words.

    None is none, one text is one, an object gives its name, a number its digits; what is anything
    else, or blank, is left out: a label is not worth a failed analysis.
    """
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    texts = (_text_in(item, _NAMES) for item in items)
    return list(dict.fromkeys(text for text in texts if text))


def _text_in(value: Any, keys: Iterable[str]) -> str | None:
    if isinstance(value, dict):
        value = next((value[key] for key in keys if isinstance(value.get(key), str)), None)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    return " ".join(value.split()) if isinstance(value, str) else None


Words = Annotated[list[str], BeforeValidator(_words)]


class _Answer(BaseModel):
    """Extra keys are ignored; missing required ones make the answer invalid."""

    model_config = ConfigDict(extra="ignore")


class SaveAnalysis(_Answer):
    """Where a text belongs and how much it matters."""

    scope: str = Field(description="A path")  # small models copy what more it says
    categories: Words = Field(default_factory=list)
    importance: float = Field(description="0 (trivial) to 1 (critical)")
    entities: Words = Field(default_factory=list)
    dates: Words = Field(default_factory=list)
    topics: Words = Field(default_factory=list)

    @field_validator("importance")
    @classmethod
    def _bounded(cls, value: float) -> float:
        if not 0.0 <= value <= 1.0:
            raise ValueError("importance must be from 0 to 1")
        return value


def _phrase(value: Any) -> str:
    """Return a short text as one line; nothing for what is none: it only explains a decision."""
    text = _text_in(value, _STATEMENTS) or ""
    return text[:LONGEST_PHRASE]


def _yes_or_no(value: Any) -> bool | None:
    if isinstance(value, str):
        value = {"true": True, "yes": True, "false": False, "no": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


Phrase = Annotated[str, BeforeValidator(_phrase)]
YesOrNo = Annotated[bool | None, BeforeValidator(_yes_or_no)]


class ConsolidationAction(_Answer):
    """What becomes of one stored record, and why.

    The explanation may be missing or wrong: it never makes an answer invalid. What it quotes is
    compared with the texts before it is believed.
    """

    id: str
    action: Annotated[
        Literal["keep", "update", "delete"],
        BeforeValidator(lambda value: value.strip().lower() if isinstance(value, str) else value),
    ]
    content: str | None = Field(default=None, description="The merged text, for update only")
    reason: Phrase = Field(default="", description="Why, in a few words")
    subject: Phrase = Field(default="", description="Who or what has changed, as the record says")
    attribute: Phrase = Field(default="", description="What about it has changed")
    old_value: Phrase = Field(default="", description="The record's words that no longer hold")
    new_value: Phrase = Field(default="", description="The new text's words instead")
    both_hold: YesOrNo = Field(default=None, description="Both can be true at once")
    same_meaning: YesOrNo = Field(default=None, description="Both say the same in other words")


class ConsolidationPlan(_Answer):
    """What becomes of the stored records that are like a new text, and of the new text."""

    actions: list[ConsolidationAction]
    insert_new: bool


_MOMENT: TypeAdapter[datetime] = TypeAdapter(datetime)
_FIRST_STAMP = 100_000_000
"""Seconds since 1970 (in 1973). A smaller number is no time stamp: rather a year or a count."""


def _is_moment(value: Any) -> bool:
    if isinstance(value, str) and value.strip().replace(".", "", 1).isdigit():
        value = float(value)
    if isinstance(value, bool) or (isinstance(value, (int, float)) and value < _FIRST_STAMP):
        return False
    try:
        _MOMENT.validate_python(value)
    except ValidationError:
        return False
    return True


class QueryAnalysis(_Answer):
    """A long query, distilled.

    Each field stands for itself: a time that cannot be read is no reason to lose the phrases. It
    is named in `unread` and counts as not given; an unknown complexity is simple.
    """

    sub_queries: Words = Field(default_factory=list, description="1 to 3 search phrases")
    keywords: Words = Field(default_factory=list)
    scopes: Words = Field(default_factory=list)
    complexity: Literal["simple", "complex"] = "simple"
    since: datetime | None = None
    until: datetime | None = None
    _unread: tuple[str, ...] = PrivateAttr(())

    @property
    def unread(self) -> tuple[str, ...]:
        """The fields whose value could not be read and was left out."""
        return self._unread

    @model_validator(mode="wrap")
    @classmethod
    def _field_by_field(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, dict):
            return handler(value)
        value, unread = dict(value), []
        for name in ("since", "until"):
            given = value.get(name)
            if given is None or (isinstance(given, str) and not given.strip()):
                value[name] = None
            elif not _is_moment(given):
                value[name] = None
                unread.append(name)
        given = value.get("complexity")
        level = given.strip(" .").lower() if isinstance(given, str) else given
        if level not in ("simple", "complex"):
            if level not in (None, ""):
                unread.append("complexity")
            level = "simple"
        value["complexity"] = level
        answer = handler(value)
        answer._unread = tuple(unread)
        return answer


class Exploration(_Answer):
    """What the evidence lacks, and where to look for it."""

    gaps: Words = Field(default_factory=list, description="What is missing, in a few words")
    sub_queries: Words = Field(default_factory=list)
    scopes: Words = Field(default_factory=list)


class ExtractedMemories(_Answer):
    """Atomic, self-contained facts.

    A bare list of them, and objects with the text under a name such as ``fact``, are understood;
    an item without a text makes the answer invalid, for it may be a fact.
    """

    memories: list[str]

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        if isinstance(value, list):
            value = {"memories": value}
        if not isinstance(value, dict) or not isinstance(value.get("memories"), list):
            return value
        items = [
            next((item[k] for k in _STATEMENTS if isinstance(item.get(k), str)), item)
            if isinstance(item, dict)
            else item
            for item in value["memories"]
        ]
        return {**value, "memories": items}

    @field_validator("memories")
    @classmethod
    def _says_something(cls, value: list[str]) -> list[str]:
        if value and not any(item.strip() for item in value):
            raise ValueError("every statement is blank")
        return value
