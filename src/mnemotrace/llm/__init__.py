"""Access to a language model, behind one small protocol."""
