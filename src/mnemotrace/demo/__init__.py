"""The demo: a meeting transcript in three languages, and a run of the main job over it."""

from .runner import demo_data, run_demo
from .transcript import Turn, read_transcript

__all__ = ["Turn", "demo_data", "read_transcript", "run_demo"]
