"""A terminal for tests: runs a command in a pseudo-terminal, types, and reads the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import pyte


class Terminal:
    """A command on a screen of its own. Leaving the block ends the command.

    Args:
        words: the command.
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
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            | (environment or {}),
            preexec_fn=_own_terminal,
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
        """Press keys."""
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.killpg(self.process.pid, signal.SIGWINCH)

    def read(self, seconds: float) -> bool:
        """Read what is there, waiting for at most `seconds`; False when the command has ended."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
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


def _own_terminal() -> None:
    """Make the pseudo-terminal the controlling one, so that the size change is signalled."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
