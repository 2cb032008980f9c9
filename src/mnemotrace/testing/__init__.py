"""A kit for testing agents that remember: no model, no key, no network, and no pytest needed.

- `FakeEmbedder`: known vectors for known texts, and every fault an embedder can have;
- `ScriptedLLM`: a language model that answers from a script and keeps what it was asked;
- `RecordingListener`: keeps the memory events of a block.
"""

from .embedder import FakeEmbedder
from .listener import RecordingListener
from .llm import ScriptedLLM

__all__ = ["FakeEmbedder", "RecordingListener", "ScriptedLLM"]
