"""The numbers that steer a memory: one frozen, validated object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from .checks import shortened
from .errors import ConfigurationError
from .naming import meant


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What a parameter may be, in words, for error messages."""

    text: str


def _plain_number(value: Any) -> Any:
    """Turn numpy scalars into plain numbers; refuse truth values and numbers written as text."""
    if isinstance(value, (bool, str, bytes)):
        raise ValueError("must be a number")  # noqa: TRY004  pydantic only reports ValueError
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


_Number = BeforeValidator(_plain_number)
Weight = Annotated[
    float, Field(ge=0, allow_inf_nan=False), _Number, _Allowed("a finite number, 0 or more")
]
Unit = Annotated[
    float, Field(ge=0, le=1, allow_inf_nan=False), _Number, _Allowed("a number from 0 to 1")
]
Positive = Annotated[
    float, Field(gt=0, allow_inf_nan=False), _Number, _Allowed("a finite number above 0")
]
Count = Annotated[int, Field(ge=0), _Number, _Allowed("a whole number, 0 or more")]
AtLeastOne = Annotated[int, Field(ge=1), _Number, _Allowed("a whole number, 1 or more")]
Switch = Annotated[bool, Field(strict=True), _Allowed("True or False")]
TraceLevel = Annotated[
    Literal["off", "on", "full"], _Allowed("'off', 'on' or 'full' ('full' keeps texts)")
]


class MemoryConfig(BaseModel):
    """Every parameter of a `Memory` besides its language model, storage and embedder.

    The defaults of the seeds' reference table are kept. Use `build` for messages that name the
    parameter at fault.

    Attributes:
        recency_weight: weight of recency in the composite score.
        semantic_weight: weight of the semantic term in the composite score.
        importance_weight: weight of importance in the composite score. Not all three may be 0.
        recency_half_life_days: days until the recency term halves.
        consolidation_threshold: cosine similarity, 0..1, from which a save is compared with what
            is stored; 1.0 turns consolidation off.
        consolidation_limit: the most stored records one save is compared with.
        default_importance: 0..1, given when neither the caller nor an analysis sets it.
        batch_dedup_threshold: cosine similarity, 0..1, from which two texts of one batch may be
            the same.
        confidence_threshold_high: confidence, 0..1, from which results are returned directly.
        confidence_threshold_low: confidence, 0..1, below which recall explores further.
        complex_query_threshold: confidence, 0..1, below which a complex query explores further.
        exploration_budget: the most rounds of exploration in one deep recall.
        query_analysis_threshold: characters from which a query is analysed by the model.
        lexical_weight: share, 0..1, of the lexical signal in the semantic term when the best
            lexical match holds every term of the query (`mnemotrace.scoring.lexical_share`).
        conversation_context: let turns of a conversation be found by the words of the turns around
            them too; settled when they are written.
        llm_concurrency: calls of the language model at the same time.
        llm_timeout: seconds for one call of the language model.
        recall_timeout: seconds for one recall.
        encode_timeout: seconds for encoding one batch.
        save_attempts: how often a background save is tried before it becomes a dead letter.
        trace: ``off``, ``on``, or ``full`` to keep texts in the trace too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    recency_weight: Weight = 0.3
    semantic_weight: Weight = 0.5
    importance_weight: Weight = 0.2
    recency_half_life_days: Positive = 30.0
    consolidation_threshold: Unit = 0.85
    consolidation_limit: Count = 5
    default_importance: Unit = 0.5
    batch_dedup_threshold: Unit = 0.98
    confidence_threshold_high: Unit = 0.8
    confidence_threshold_low: Unit = 0.5
    complex_query_threshold: Unit = 0.7
    exploration_budget: Count = 1
    query_analysis_threshold: Count = 200
    lexical_weight: Unit = 0.6
    conversation_context: Switch = True
    llm_concurrency: AtLeastOne = 8
    llm_timeout: Positive = 60.0
    recall_timeout: Positive = 120.0
    encode_timeout: Positive = 600.0
    save_attempts: AtLeastOne = 5
    trace: TraceLevel = "on"

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        weights = (self.recency_weight, self.semantic_weight, self.importance_weight)
        if not any(weights):
            raise ValueError(
                "recency_weight, semantic_weight and importance_weight are all 0: "
                "at least one must be above 0."
            )
        if self.confidence_threshold_low > self.confidence_threshold_high:
            raise ValueError(
                f"confidence_threshold_low={self.confidence_threshold_low!r} is above "
                f"confidence_threshold_high={self.confidence_threshold_high!r}: "
                "the low threshold must not be above the high one."
            )
        return self

    @classmethod
    def build(cls, *, known: Iterable[str] = (), **kwargs: Any) -> MemoryConfig:
        """Return the configuration for these keyword arguments.

        Args:
            known: further names the caller itself accepts (``llm``, ``storage``, ...); they are
                only offered when an unknown name resembles one.
            kwargs: parameters of this class.

        Raises:
            ConfigurationError: for a value that is not allowed, naming the parameter, the value
                and what is allowed; for an unknown name, naming the nearest known one.
        """
        names = [*cls.model_fields, *known]
        for name in kwargs:
            if name not in cls.model_fields:
                raise ConfigurationError(unknown_parameter(name, names))
        try:
            return cls(**kwargs)
        except ValidationError as error:
            raise ConfigurationError(cls._explain(error)) from None

    @classmethod
    def _explain(cls, error: ValidationError) -> str:
        lines = []
        for problem in error.errors(include_url=False):
            if not problem["loc"]:
                lines.append(str(problem["ctx"]["error"]))
                continue
            name = str(problem["loc"][0])
            allowed = next(
                item.text for item in cls.model_fields[name].metadata if isinstance(item, _Allowed)
            )
            lines.append(f"{name}={shortened(problem['input'], 77)}: must be {allowed}.")
        return "\n".join(lines)


def unknown_parameter(name: str, names: Iterable[str]) -> str:
    """Return the message for an unknown keyword argument, with the nearest known name."""
    return f"Unknown parameter {name!r}. {meant(name, names, 'Known parameters')}"
