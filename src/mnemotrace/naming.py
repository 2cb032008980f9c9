"""What a name that is not known was meant to be: the nearest one there is, or the one here.

Other memories have other words for the same thing. Where a word of theirs has one clear meaning
here, the refusal says so.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

NEAR = 0.7
"""Share of letters in common, as `difflib` counts, from which a name is a likely misspelling."""
_NEAR_IF_SHORT = 0.66
"""The same for three letters: one of them may be wrong."""
_TELLING = 4
"""Letters from which the first word of a name says which one is meant."""

_LIMIT = ("k", "n", "size", "count", "top_k", "top_n", "similarity_top_k", "max_results",
          "num_results", "n_results", "results_limit")  # fmt: skip
_FILTER = ("filter", "filters", "where", "search_filter", "metadata_filters", "filter_dict")
_ELSEWHERE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_LIMIT, ("limit",)),
    **dict.fromkeys(_FILTER, ("metadata_filter",)),
    **dict.fromkeys(("text", "input", "data", "value", "message", "memory"), ("content", "query")),
    **dict.fromkeys(("q", "question", "query_str", "query_text", "search_query"), ("query",)),
    **dict.fromkeys(("texts", "messages", "documents", "memories", "values"), ("contents",)),
    **dict.fromkeys(("id", "key", "memory_id", "doc_id"), ("record_id", "record_ids")),
    **dict.fromkeys(("ids", "memory_ids", "doc_ids"), ("record_ids",)),
    **dict.fromkeys(("tags", "tag", "labels"), ("categories",)),
    **dict.fromkeys(("meta", "extra_info", "additional_metadata"), ("metadata",)),
    **dict.fromkeys(("namespace", "path", "scope_prefix"), ("scope",)),
    **dict.fromkeys(("thread_id", "session_id", "conversation_id", "run_id"), ("session",)),
    **dict.fromkeys(("author", "agent_role"), ("source",)),
    **dict.fromkeys(("timestamp", "date"), ("created_at", "now")),
    **dict.fromkeys(
        ("expiration_date", "expires", "valid_until", "valid_to", "ttl"), ("expires_at",)
    ),
    **dict.fromkeys(("start_date", "after"), ("since",)),
    **dict.fromkeys(("end_date", "before"), ("until", "older_than")),
    **dict.fromkeys(("max_tokens", "token_limit"), ("budget_tokens",)),
    **dict.fromkeys(("persist_dir", "persist_directory", "db_path", "url"), ("storage",)),
    **dict.fromkeys(("embeddings", "embed_model", "embedding_model"), ("embedder",)),
    **dict.fromkeys(("model", "llm_model"), ("llm",)),
}
"""What CrewAI, LangChain, LlamaIndex and mem0 call an argument, and its names here."""

_OWNERS = ("user_id", "agent_id", "app_id", "user", "tenant_id")
"""Of mem0 and others: whose memories they are. A scope keeps them apart, but is no bare id."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that this one is likely a misspelling of, or the only one that begins
    as it does; None when there is no such name.

    Args:
        word: as it was written; capitals make no difference.
        known: the names there are.
    """
    names = list(known)
    cutoff = _NEAR_IF_SHORT if len(word) == 3 else NEAR
    near = difflib.get_close_matches(word.lower(), names, n=1, cutoff=cutoff)
    if near:
        return near[0]
    start = _first_word(word.lower())
    begun = [name for name in names if _is_begun(name, start)] if len(start) >= _TELLING else []
    return begun[0] if len(begun) == 1 else None


def _first_word(name: str) -> str:
    return re.split("[_-]", name)[0]


def _is_begun(name: str, start: str) -> bool:
    """Whether the first word of a name begins, or is nearly, what was written."""
    first = _first_word(name)
    alike = difflib.SequenceMatcher(None, first, start).ratio() >= NEAR
    return first.startswith(start) or alike


def meant(word: str, known: Iterable[str], everything: str) -> str:
    """Return the sentence that says which name there is instead of one that is not known.

    Args:
        word: the name that is not known.
        known: the names there are.
        everything: begins the list of them, where none is like it: "It takes".
    """
    names = sorted(set(known))
    here = next((name for name in _ELSEWHERE.get(word, ()) if name in names), None)
    if here is not None:
        return f"Here that is {here!r}."
    near = nearest(word, names)
    if near is not None:
        return f"Did you mean {near!r}?"
    if word in _OWNERS and "scope" in names:
        return (
            "Memories of different users or agents are kept apart by their 'scope', such as "
            "scope='/users/ana'."
        )
    return f"{everything}: {', '.join(names)}." if names else f"{everything} none."
