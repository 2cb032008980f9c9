"""A lock for many readers or one writer, who get their turn in the order they came."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator


class ReadWriteLock:
    """Many readers or one writer, first come, first served. Not reentrant.

    It is handed from one to the next: without that, a thread that writes in a loop takes it again
    before anybody who waits has woken up.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._readers = 0
        self._writing = False
        self._queue: deque[tuple[bool, threading.Lock]] = deque()
        """Who waits: whether to write, and a lock that is released when the turn has come."""

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Hold the lock together with other readers."""
        self._acquire(writing=False)
        try:
            yield
        finally:
            self._release(writing=False)

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """Hold the lock alone."""
        self._acquire(writing=True)
        try:
            yield
        finally:
            self._release(writing=True)

    def _free(self, writing: bool) -> bool:
        return not self._writing and not (writing and self._readers)

    def _take(self, writing: bool) -> None:
        if writing:
            self._writing = True
        else:
            self._readers += 1

    def _acquire(self, writing: bool) -> None:
        with self._mutex:
            if not self._queue and self._free(writing):
                self._take(writing)
                return
            turn = threading.Lock()
            turn.acquire()
            self._queue.append((writing, turn))
        try:
            turn.acquire()
        except BaseException:  # such as Ctrl-C while waiting
            with self._mutex:
                waits = (writing, turn) in self._queue
                if waits:
                    self._queue.remove((writing, turn))
                    self._pass_on()
            if not waits:  # the turn came all the same
                self._release(writing)
            raise

    def _release(self, writing: bool) -> None:
        with self._mutex:
            if writing:
                self._writing = False
            else:
                self._readers -= 1
            self._pass_on()

    def _pass_on(self) -> None:
        while self._queue and self._free(self._queue[0][0]):
            writing, turn = self._queue.popleft()
            self._take(writing)
            turn.release()
