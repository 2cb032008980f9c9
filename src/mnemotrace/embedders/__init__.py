"""Text to vectors: the bundled offline embedder, callables and objects, and the lexical vector."""
