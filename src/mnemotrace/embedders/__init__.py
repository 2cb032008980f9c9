"""Text to vectors: bundled and hosted embedders, callables and objects, and the lexical vector."""

from .resolve import build_embedder

__all__ = ["build_embedder"]
