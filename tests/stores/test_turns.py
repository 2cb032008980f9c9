"""The lock of a store: readers together, writers alone, nobody left waiting."""

from __future__ import annotations

import threading
import time

from mnemotrace.stores.turns import ReadWriteLock


def test_readers_hold_it_together_and_writers_alone() -> None:
    lock = ReadWriteLock()
    together = threading.Barrier(3, timeout=10)
    inside: list[str] = []
    wrong: list[list[str]] = []

    def read() -> None:
        with lock.read():
            together.wait()

    def write() -> None:
        for _ in range(200):
            with lock.write():
                inside.append("writer")
                if inside != ["writer"]:
                    wrong.append(list(inside))
                inside.remove("writer")

    def look() -> None:
        for _ in range(200):
            with lock.read():
                if "writer" in inside:
                    wrong.append(list(inside))

    threads = [threading.Thread(target=target) for target in (read, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    threads = [threading.Thread(target=target) for target in (write, write, look, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert wrong == []


def test_a_thread_that_writes_in_a_loop_does_not_starve_the_others() -> None:
    lock = ReadWriteLock()
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with lock.write():
                time.sleep(0.0005)

    writers = [threading.Thread(target=busy) for _ in range(2)]
    for writer in writers:
        writer.start()
    started = time.monotonic()
    for _ in range(20):
        with lock.read():
            pass
        with lock.write():
            pass
    assert time.monotonic() - started < 5
    stop.set()
    for writer in writers:
        writer.join()


def test_a_waiting_thread_that_is_interrupted_gives_its_turn_back() -> None:
    import ctypes

    lock = ReadWriteLock()
    ended: list[str] = []

    def wait() -> None:
        try:
            with lock.read():
                ended.append("in")
        except KeyboardInterrupt:
            ended.append("interrupted")

    with lock.write():
        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.05)
        assert waiter.ident is not None
        # What Ctrl-C does to the main thread; this one wakes up only when its turn has come.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(waiter.ident), ctypes.py_object(KeyboardInterrupt)
        )
    waiter.join(10)
    assert ended == ["interrupted"]
    with lock.write():
        pass
