"""One loop thread for everyone: threads, running loops, forks, Ctrl-C and the end of the process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mnemotrace.errors import RuntimeMisuseError
from mnemotrace.flows.runtime import Runtime, get_runtime
from mnemotrace.trace import span, start_trace

number = contextvars.ContextVar("number", default=0)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime()
    yield made
    made.close()


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)


async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


async def fail() -> None:
    raise LookupError("gone")


class Work:
    """A coroutine that waits for ever and remembers what became of it."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cancelled = threading.Event()

    async def run(self) -> None:
        self.started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_a_sync_caller_gets_the_result_and_the_error_itself(runtime: Runtime) -> None:
    assert runtime.run(double(21)) == 42
    with pytest.raises(LookupError, match="gone"):
        runtime.run(fail())


async def test_an_async_caller_gets_the_result_and_the_error_itself(runtime: Runtime) -> None:
    assert await runtime.arun(double(21)) == 42
    with pytest.raises(LookupError, match="gone"):
        await runtime.arun(fail())


def test_everything_runs_on_one_daemon_thread_started_when_needed(runtime: Runtime) -> None:
    async def where() -> threading.Thread:
        return threading.current_thread()

    first = runtime.run(where())
    assert first.daemon
    assert first is not threading.current_thread()
    assert runtime.run(where()) is first
    assert asyncio.run(runtime.arun(where())) is first


def test_the_process_has_one_runtime() -> None:
    assert get_runtime() is get_runtime()


def test_context_variables_reach_the_work_and_stay_the_callers(runtime: Runtime) -> None:
    async def read_and_change() -> int:
        seen = number.get()
        number.set(99)
        return seen

    number.set(7)
    assert runtime.run(read_and_change()) == 7
    assert asyncio.run(runtime.arun(read_and_change())) == 7
    assert number.get() == 7
    number.set(0)


def test_many_threads_at_once_each_get_their_own_answer(runtime: Runtime) -> None:
    def ask(start: int) -> list[int]:
        return [runtime.run(double(start + n)) for n in range(20)]

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, range(0, 640, 20)))
    assert answers == [[2 * (start + n) for n in range(20)] for start in range(0, 640, 20)]


async def test_a_sync_call_inside_a_running_loop_works_as_in_a_notebook(runtime: Runtime) -> None:
    assert runtime.run(double(4)) == 8


def test_a_sync_call_on_the_loop_thread_is_refused_not_deadlocked(runtime: Runtime) -> None:
    async def careless() -> int:
        return runtime.run(double(1))

    with pytest.raises(RuntimeMisuseError, match="arecall"):
        runtime.run(careless(), timeout=10)


def test_an_async_call_on_the_loop_thread_runs_in_place(runtime: Runtime) -> None:
    async def nested() -> int:
        return await runtime.arun(double(5))

    assert runtime.run(nested(), timeout=10) == 10


def test_a_timeout_cancels_the_work_and_says_so(runtime: Runtime) -> None:
    work = Work()
    with pytest.raises(TimeoutError, match=r"within 0\.05 s and was cancelled"):
        runtime.run(work.run(), timeout=0.05)
    assert work.cancelled.wait(5)


def test_a_timeout_of_the_work_itself_keeps_its_own_message(runtime: Runtime) -> None:
    async def slow_service() -> None:
        raise TimeoutError("the model took 60 s")

    with pytest.raises(TimeoutError, match="the model took 60 s"):
        runtime.run(slow_service(), timeout=10)


async def test_cancelling_the_awaiting_task_cancels_the_work(runtime: Runtime) -> None:
    work = Work()
    task = asyncio.create_task(runtime.arun(work.run()))
    await asyncio.to_thread(work.started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(work.cancelled.wait, 5)


def test_cancelling_a_submitted_future_cancels_the_work(runtime: Runtime) -> None:
    work = Work()
    future = runtime.submit(work.run())
    assert work.started.wait(5)
    future.cancel()
    assert work.cancelled.wait(5)


async def test_the_callers_loop_keeps_ticking_while_it_awaits_blocking_work(
    runtime: Runtime,
) -> None:
    async def busy() -> None:
        # The loop thread itself is held up, and then a worker.
        time.sleep(0.2)  # noqa: ASYNC251
        await runtime.in_thread(time.sleep, 0.2)

    gaps = []

    async def ticker() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.005)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticking = asyncio.create_task(ticker())
    await runtime.arun(busy())
    ticking.cancel()
    assert len(gaps) > 20
    assert max(gaps) < 0.18  # a blocked loop would show a gap of 0.2 s or more


def test_a_worker_thread_has_the_context_and_the_trace(runtime: Runtime) -> None:
    def blocking(value: int, *, plus: int) -> tuple[int, str]:
        with span("blocking"):
            return number.get() + value + plus, threading.current_thread().name

    async def work() -> tuple[int, str]:
        with span("async"):
            return await runtime.in_thread(blocking, 1, plus=2)

    number.set(10)
    with start_trace("x") as trace:
        result, thread_name = runtime.run(work())
    number.set(0)
    assert result == 13
    assert thread_name == "mnemotrace-worker"
    assert trace is not None
    assert [(item.name, item.parent) for item in trace.spans] == [("async", 0), ("blocking", 1)]


async def test_worker_threads_also_serve_other_loops_and_pass_errors(runtime: Runtime) -> None:
    def blocking() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await runtime.in_thread(blocking)
    assert await runtime.in_thread(lambda: 5) == 5


def test_to_thread_on_the_loop_uses_the_same_workers(runtime: Runtime) -> None:
    async def work() -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    assert runtime.run(work()) == "mnemotrace-worker"


def test_blocking_calls_run_side_by_side_up_to_the_limit() -> None:
    runtime = Runtime(workers=3)
    running = 0
    most = 0
    lock = threading.Lock()

    def blocking() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    async def work() -> None:
        await asyncio.gather(*(runtime.in_thread(blocking) for _ in range(12)))

    runtime.run(work(), timeout=10)
    runtime.close()
    assert most == 3


def test_workers_that_call_the_runtime_again_do_not_starve_each_other() -> None:
    runtime = Runtime(workers=2)

    def callback(value: int) -> int:
        async def again() -> int:
            return await runtime.in_thread(lambda: 10 * value)

        return runtime.run(again(), timeout=10)

    async def work() -> list[int]:
        return await asyncio.gather(*(runtime.in_thread(callback, n) for n in range(8)))

    try:
        assert runtime.run(work(), timeout=20) == [10 * n for n in range(8)]
    finally:
        runtime.close()


def test_idle_workers_keep_nothing_of_the_last_call_alive(runtime: Runtime) -> None:
    class Big:
        pass

    async def work() -> weakref.ref[Big]:
        big = Big()
        await runtime.in_thread(lambda kept: None, big)
        return weakref.ref(big)

    reference = runtime.run(work())
    wait_until(lambda: gc.collect() >= 0 and reference() is None)


def test_spawned_work_runs_to_its_end_without_anyone_holding_it(runtime: Runtime) -> None:
    done = threading.Event()

    async def background() -> None:
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0.005)
        done.set()

    runtime.spawn(background())
    assert done.wait(5)


def test_spawned_work_that_fails_is_logged_by_name(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        future = runtime.spawn(fail(), name="Writing access statistics")
        wait_until(lambda: future.done() and bool(caplog.records))
    assert "Writing access statistics failed: gone" in caplog.text
    assert "LookupError" in caplog.text


def test_spawned_work_can_be_awaited_and_cancelled(runtime: Runtime) -> None:
    assert runtime.spawn(double(3)).result(5) == 6
    work = Work()
    future = runtime.spawn(work.run())
    assert work.started.wait(5)
    future.cancel()
    assert work.cancelled.wait(5)


def test_spawned_work_leaves_its_callers_trace_but_keeps_other_context(runtime: Runtime) -> None:
    async def background() -> int:
        with span("background"):
            return number.get()

    number.set(5)
    with start_trace("remember") as trace:
        assert runtime.spawn(background()).result(5) == 5
        with span("foreground"):
            pass
    number.set(0)
    assert trace is not None
    assert [item.name for item in trace.spans] == ["foreground"]


def test_exit_callbacks_of_every_kind_run_and_can_be_unregistered(runtime: Runtime) -> None:
    ran: list[str] = []

    class Owner:
        async def leave(self) -> None:
            await asyncio.sleep(0)
            ran.append("bound")

    async def coroutine_function() -> None:
        ran.append("coroutine")

    owner, lost = Owner(), Owner()
    runtime.at_exit(owner.leave)
    runtime.at_exit(lost.leave)
    runtime.at_exit(coroutine_function)
    runtime.at_exit(lambda: ran.append(threading.current_thread().name))
    runtime.at_exit(lambda: ran.append("unregistered"))()
    unregister_twice = runtime.at_exit(lambda: ran.append("unregistered twice"))
    unregister_twice()
    unregister_twice()
    del lost
    gc.collect()
    runtime.drain()
    assert sorted(ran) == ["bound", "coroutine", "mnemotrace-worker"]
    runtime.drain()
    assert len(ran) == 3


def test_registering_an_exit_callback_does_not_keep_its_object_alive(runtime: Runtime) -> None:
    class Owner:
        def leave(self) -> None: ...

    owner = Owner()
    reference = weakref.ref(owner)
    runtime.at_exit(owner.leave)
    del owner
    gc.collect()
    assert reference() is None


def test_an_exit_callback_that_hangs_or_fails_is_logged_and_the_others_run(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    work = Work()

    async def hang() -> None:
        await work.run()

    async def own_timeout() -> None:
        raise TimeoutError("of its own")

    runtime.at_exit(lambda: ran.append("first"))
    runtime.at_exit(fail)
    runtime.at_exit(own_timeout)
    runtime.at_exit(hang)
    runtime.at_exit(lambda: ran.append("last"))
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        runtime.drain(seconds=0.2)
    assert time.monotonic() - began < 2
    assert sorted(ran) == ["first", "last"]
    assert "fail failed at exit: gone" in caplog.text
    assert "own_timeout failed at exit: of its own" in caplog.text
    assert "hang was not done 0.2 s after exit began and was abandoned" in caplog.text
    assert work.cancelled.wait(5)


def test_whose_exit_callback_was_late_says_what_that_means(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    class Owner:
        async def leave(self) -> None:
            await asyncio.sleep(60)

        def late_at_exit(self, seconds: float) -> str:
            return f"3 texts are kept after {seconds:g} s"

    owner = Owner()
    runtime.at_exit(owner.leave)
    with caplog.at_level(logging.WARNING):
        runtime.drain(seconds=0.05)
    assert caplog.messages == ["3 texts are kept after 0.05 s"]


def test_a_blocking_call_still_running_at_exit_is_waited_for_then_logged(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    runtime.spawn(runtime.in_thread(release.wait, 30))
    wait_until(lambda: runtime._workers is not None and runtime._workers.unfinished == 1)
    with caplog.at_level(logging.WARNING):
        runtime.drain(seconds=0.05)
        assert "1 blocking call still running" in caplog.text
        caplog.clear()
        threading.Timer(0.05, release.set).start()
        runtime.drain(seconds=5)
    assert caplog.text == ""


def test_draining_a_runtime_that_never_ran_does_nothing() -> None:
    runtime = Runtime()
    runtime.drain()
    assert runtime._loop is None


def test_after_close_the_work_is_cancelled_and_the_next_call_starts_afresh(
    runtime: Runtime,
) -> None:
    work = Work()
    runtime.spawn(work.run())
    assert work.started.wait(5)
    runtime.close()
    assert work.cancelled.wait(5)
    assert runtime.run(double(2)) == 4


def test_a_coroutine_that_cannot_be_submitted_is_closed(runtime: Runtime) -> None:
    runtime.run(double(1))
    runtime.loop.call_soon_threadsafe(runtime.loop.stop)
    loop = runtime.loop
    wait_until(loop.is_closed)
    with pytest.raises(RuntimeError):
        runtime.run(double(1))  # a coroutine never awaited would be a warning, so an error here


@pytest.mark.slow
@pytest.mark.parametrize("inside", [True, False])
def test_ctrl_c_just_after_the_work_was_handed_over_cancels_it(
    inside: bool, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes while it is being handed over, or before its future is held."""
    begun, cancelled = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    owner, name = (asyncio, "run_coroutine_threadsafe") if inside else (runtime, "submit")
    hand_over = getattr(owner, name)

    def interrupted(*args: Any) -> Any:
        hand_over(*args)
        assert begun.wait(30)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            runtime.run(work())
    assert cancelled.wait(30)
    assert runtime.run(double(6)) == 12


def test_a_hop_costs_about_a_tenth_of_a_millisecond(runtime: Runtime) -> None:
    async def nothing() -> None: ...

    async def native() -> list[float]:
        times = []
        for _ in range(500):
            began = time.perf_counter()
            await runtime.arun(nothing())
            times.append(time.perf_counter() - began)
        return times

    times = []
    for _ in range(500):
        began = time.perf_counter()
        runtime.run(nothing())
        times.append(time.perf_counter() - began)
    # 0.08 and 0.11 ms here; the bound leaves room for a busy or slow machine.
    assert sorted(times)[50] < 0.001
    assert sorted(asyncio.run(native()))[50] < 0.001


PRELUDE = """
import asyncio, os, sys, threading, time
from mnemotrace.flows.runtime import get_runtime
runtime = get_runtime()
async def double(value):
    await asyncio.sleep(0)
    return 2 * value
def say(*words):
    print(*words, flush=True)
"""


def script(code: str, *, seconds: float = 30) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE + code]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)


@pytest.mark.slow
def test_an_idle_runtime_lets_the_process_end_at_once() -> None:
    result = script(
        "runtime.run(double(1)); runtime.run(runtime.in_thread(time.sleep, 0))\n"
        "say('end', time.time())"
    )
    ended = time.time()
    assert (result.returncode, result.stderr) == (0, "")
    assert ended - float(result.stdout.split()[1]) < 2


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "asyncio.run(runtime.arun(double(1)))"])
def test_exit_callbacks_run_when_the_process_ends(ending: str) -> None:
    result = script(
        f"""
class Saver:
    async def leave(self):
        await asyncio.sleep(0.05)
        await runtime.in_thread(say, "saved")
saver = Saver()
runtime.at_exit(saver.leave)
runtime.at_exit(lambda: say("plain"))
{ending}
"""
    )
    assert result.returncode == (3 if "3" in ending else 0)
    assert sorted(result.stdout.split()) == ["plain", "saved"]
    assert result.stderr == ""


@pytest.mark.slow
def test_a_call_that_never_returns_cannot_keep_the_process_alive() -> None:
    result = script(
        """
runtime.spawn(runtime.in_thread(threading.Event().wait))
time.sleep(0.1)
say('end', time.time())
"""
    )
    ended = time.time()
    assert result.returncode == 0
    assert "1 blocking call still running 5 s after exit began" in result.stderr
    assert ended - float(result.stdout.split()[1]) < 10


@pytest.mark.slow
def test_the_memory_can_still_be_used_by_handlers_that_run_after_ours() -> None:
    result = script(
        "import atexit\n"
        "atexit.register(lambda: say(runtime.run(runtime.in_thread(lambda: 8))))\n"
        "say(runtime.run(double(2)))"
    )
    assert (result.returncode, result.stdout.split(), result.stderr) == (0, ["4", "8"], "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_a_runtime_of_its_own() -> None:
    result = script(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
async def write(path):
    await asyncio.sleep(0.3)
    open(path, "a").write("x")
import tempfile
path = os.path.join(tempfile.mkdtemp(), "f")
runtime.at_exit(lambda: say("parent leaves" if os.getpid() == parent else "PARENT'S CALLBACK"))
parent = os.getpid()
runtime.run(runtime.in_thread(time.sleep, 0))
pending = runtime.spawn(write(path))
pid = os.fork()
if pid == 0:
    import gc
    say("child", runtime.run(double(4), timeout=10), runtime.run(runtime.in_thread(lambda: 9)))
    runtime.at_exit(lambda: say("child leaves"))
    gc.collect()
    sys.exit(5)
_, status = os.waitpid(pid, 0)
pending.result(10)
say("parent", runtime.run(double(5)), os.waitstatus_to_exitcode(status), open(path).read())
"""
    )
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "child 8 9", "child leaves", "parent 10 5 x", "parent leaves",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize(
    "call", ["runtime.run(work())", "asyncio.run(runtime.arun(work()))"], ids=["sync", "async"]
)
def test_ctrl_c_cancels_the_run_and_the_next_call_works(call: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + f"""
cancelled = threading.Event()
async def work():
    say("started")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        cancelled.set()
        raise
try:
    {call}
except KeyboardInterrupt:
    say("interrupted", cancelled.wait(5), runtime.run(double(6)))
"""],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "interrupted True 12\n", "")
