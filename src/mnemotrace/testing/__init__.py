"""A kit for testing agents that remember: no model, no key, no network, and no pytest needed.

- `FakeEmbedder`: known vectors for known texts, and every fault an embedder can have;
- `ScriptedLLM`: a language model that answers from a script and keeps what it was asked;
- `FakeServer`: an OpenAI-compatible server on this machine, for code that talks HTTP;
- `RecordingListener`: keeps the memory events of a block.
"""

from .embedder import FakeEmbedder
from .listener import RecordingListener
from .llm import ScriptedLLM
from .server import FakeServer, ServerRequest

__all__ = ["FakeEmbedder", "FakeServer", "RecordingListener", "ScriptedLLM", "ServerRequest"]
