"""Answers JSON commands from stdin with one line of JSON each; what libraries print is kept apart."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def serve(start: Callable[[list[str]], Any]) -> None:
    """Answer commands until stdin ends or `close` arrives, then close the worker.

    A command is an object with a `do` key, the name of a method of the worker; its other keys are
    the arguments.

    Args:
        start: makes the worker from the command line's arguments; it has a method `close`.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # before anything is made: libraries print while they load
    worker = start(sys.argv[1:])
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        if do == "close":
            break
        print(json.dumps(getattr(worker, do)(**command)), file=answers)
    worker.close()
