"""Fakes for tests, ours and yours: embedders with given vectors, a scripted language model."""
