"""A terminal for tests: runs a command in a pseudo-terminal, types, and reads the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import pyte

# Makes the pseudo-terminal the controlling one, so that a change of its size is signalled.
_OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


KEY_SECONDS = 2.0
"""How long a key may take to show on the screen; some never do."""
REST_SECONDS = 0.08


class Terminal:
    """A command on a screen of its own. Leaving the block ends the command.

    Args:
        words: the command, its program as a path.
        columns, rows: the size of the screen.
        environment: variables to set besides those of this process.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        columns: int = 100,
        rows: int = 30,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            | (environment or {}),
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._fd)

    @property
    def text(self) -> str:
        """The screen as it is, lines without trailing spaces."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def type(self, keys: str) -> None:
        """Press keys, one after the other as a person does: each when the screen is at rest."""
        for key in keys:
            seen = len(self.raw)
            os.write(self._fd, key.encode())
            until = time.monotonic() + KEY_SECONDS
            while len(self.raw) == seen and time.monotonic() < until:
                if not self.read(0.05):
                    return
            while len(self.raw) != seen:  # until nothing more is drawn
                seen = len(self.raw)
                self.read(REST_SECONDS)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds: float) -> bool:
        """Read what is there, waiting for at most `seconds`; False when the command has ended."""
        ready, _, _ = select.select([self._fd], [], [], max(0.0, seconds))
        if not ready:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def wait_for(self, shown: str | Callable[[str], bool], seconds: float = 60.0) -> str:
        """Wait until the screen shows a text, or meets a condition; return the screen."""
        until = time.monotonic() + seconds
        meets = shown if callable(shown) else lambda screen: shown in screen
        while not meets(self.text):
            alive = self.read(0.1)
            assert alive or meets(self.text), f"It ended without {shown!r}:\n{self.text}"
            assert time.monotonic() < until, f"{shown!r} did not show:\n{self.text}"
        return self.text

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for the end of the command; return its exit code."""
        until = time.monotonic() + seconds
        while self.read(0.1) and self.process.poll() is None:
            assert time.monotonic() < until, f"It does not end:\n{self.text}"
        return self.process.wait(max(1.0, until - time.monotonic()))
