"""The configuration: defaults of the seeds, refusals that say what is allowed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from mnemotrace.config import MemoryConfig
from mnemotrace.errors import ConfigurationError

SEED_DEFAULTS = {
    "recency_weight": 0.3,
    "semantic_weight": 0.5,
    "importance_weight": 0.2,
    "recency_half_life_days": 30,
    "consolidation_threshold": 0.85,
    "consolidation_limit": 5,
    "default_importance": 0.5,
    "batch_dedup_threshold": 0.98,
    "confidence_threshold_high": 0.8,
    "confidence_threshold_low": 0.5,
    "complex_query_threshold": 0.7,
    "exploration_budget": 1,
    "query_analysis_threshold": 200,
}
OUR_DEFAULTS = {
    "lexical_weight": 0.6,
    "conversation_context": True,
    "llm_concurrency": 8,
    "llm_timeout": 60.0,
    "recall_timeout": 120.0,
    "encode_timeout": 600.0,
    "save_attempts": 5,
    "trace": "on",
}


def test_the_defaults_are_those_of_the_seeds_table_and_ours() -> None:
    assert MemoryConfig.build().model_dump() == SEED_DEFAULTS | OUR_DEFAULTS


def test_given_values_are_kept_and_whole_numbers_serve_as_floats() -> None:
    config = MemoryConfig.build(recency_half_life_days=7, exploration_budget=0, trace="full")
    assert config.recency_half_life_days == 7.0
    assert config.exploration_budget == 0
    assert config.trace == "full"


def test_numpy_scalars_are_taken_as_the_numbers_they_are() -> None:
    config = MemoryConfig.build(
        recency_weight=np.float32(0.25), consolidation_limit=np.int64(3), llm_timeout=np.float64(2)
    )
    assert config.recency_weight == 0.25
    assert type(config.consolidation_limit) is int
    assert config.consolidation_limit == 3


def test_the_configuration_cannot_be_changed_afterwards() -> None:
    config = MemoryConfig.build()
    with pytest.raises(ValidationError):
        config.recency_weight = 0.9


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("recency_weight", -0.1, "0 or more"),
        ("semantic_weight", math.nan, "finite"),
        ("importance_weight", math.inf, "finite"),
        ("recency_half_life_days", 0, "above 0"),
        ("recency_half_life_days", -3, "above 0"),
        ("recency_half_life_days", math.inf, "finite"),
        ("consolidation_threshold", 1.2, "from 0 to 1"),
        ("batch_dedup_threshold", -0.01, "from 0 to 1"),
        ("default_importance", 2.0, "from 0 to 1"),
        ("confidence_threshold_high", math.nan, "from 0 to 1"),
        ("complex_query_threshold", "high", "from 0 to 1"),
        ("lexical_weight", "0.35", "from 0 to 1"),
        ("consolidation_limit", -1, "whole number, 0 or more"),
        ("consolidation_limit", 2.5, "whole number, 0 or more"),
        ("exploration_budget", True, "whole number, 0 or more"),
        ("query_analysis_threshold", None, "whole number, 0 or more"),
        ("llm_concurrency", 0, "1 or more"),
        ("save_attempts", 0, "1 or more"),
        ("llm_timeout", 0, "above 0"),
        ("recall_timeout", None, "above 0"),
        ("encode_timeout", math.inf, "finite"),
        ("trace", "loud", "'off', 'on' or 'full'"),
        ("trace", True, "'off', 'on' or 'full'"),
    ],
)
def test_a_wrong_value_is_refused_by_name_value_and_what_is_allowed(
    name: str, value: Any, allowed: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        MemoryConfig.build(**{name: value})
    message = str(caught.value)
    assert message.startswith(f"{name}={value!r}: must be ")
    assert allowed in message


def test_several_wrong_values_are_all_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        MemoryConfig.build(recency_weight=-1, save_attempts=0)
    assert "recency_weight=-1" in str(caught.value)
    assert "save_attempts=0" in str(caught.value)


def test_a_huge_wrong_value_is_not_repeated_whole() -> None:
    with pytest.raises(ConfigurationError) as caught:
        MemoryConfig.build(trace="x" * 10_000)
    assert len(str(caught.value)) < 200


def test_weights_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="all 0"):
        MemoryConfig.build(recency_weight=0, semantic_weight=0, importance_weight=0)
    assert MemoryConfig.build(recency_weight=0, semantic_weight=0, importance_weight=0.1)


def test_a_low_threshold_above_the_high_one_is_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        MemoryConfig.build(confidence_threshold_low=0.9)
    assert "confidence_threshold_low=0.9" in str(caught.value)
    assert "confidence_threshold_high=0.8" in str(caught.value)
    assert MemoryConfig.build(confidence_threshold_low=0.8).confidence_threshold_low == 0.8


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("recency_wieght", "recency_weight"),
        ("half_life_days", "recency_half_life_days"),
        ("confidence_high", "confidence_threshold_high"),
        ("embeder", "embedder"),
        ("read_olny", "read_only"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_known_one(wrong: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        MemoryConfig.build(known=("llm", "storage", "embedder", "read_only"), **{wrong: 1})
    assert str(caught.value) == f"Unknown parameter {wrong!r}. Did you mean {meant!r}?"


def test_an_unknown_name_like_no_other_is_answered_with_all_names() -> None:
    with pytest.raises(ConfigurationError) as caught:
        MemoryConfig.build(known=("llm",), zzz=1)
    assert "'zzz'" in str(caught.value)
    assert "recency_weight" in str(caught.value)
    assert "llm" in str(caught.value)


def test_names_known_to_the_caller_are_not_parameters_here() -> None:
    with pytest.raises(ConfigurationError, match="'llm'"):
        MemoryConfig.build(known=("llm",), llm="gpt")
