"""What is wrong with a memory, told without changing it."""

from .examine import examine
from .report import Check, Report

__all__ = ["Check", "Report", "examine"]
