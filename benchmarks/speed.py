"""mnemotrace beside CrewAI's memory on LanceDB and remembrane, in one run, as a ratio table.

Each system lives in its own virtual environment under `benchmarks/.envs/`, made here on first
use, and is measured in worker processes of its own, all with the same embedder, records and
queries. The systems take turns operation by operation and round by round, so that noise on the
machine hits all alike. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from report import LARGE, OPERATIONS, RECALLS, render, verdicts

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ENVIRONMENTS = HERE / ".envs"
SEED = 1
FIRST_WRITE = "remember"
CALLS = {
    "shallow": 30,
    "deep": 20,
    "scoped": 30,
    "tree": 3,
    "remember": 20,
    "turn": 10,
    "remember_many": 1,
}
ROUND_SECONDS = 5.0
FRESH_PROCESSES = 5


@dataclass(frozen=True)
class System:
    """One system under measurement.

    Attributes:
        name: as in the report.
        distribution: what pip calls it.
        requirements: what pip installs into its environment.
        statement: the import that a user writes.
    """

    name: str
    distribution: str
    requirements: tuple[str, ...]
    statement: str

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        folder = "Scripts" if os.name == "nt" else "bin"
        return ENVIRONMENTS / self.name / folder / "python"


SYSTEMS = {
    system.name: system
    for system in (
        System("mnemotrace", "mnemotrace", ("-e", str(ROOT)), "from mnemotrace import Memory"),
        System(
            "crewai",
            "crewai",
            ("crewai==1.15.30", "lancedb==0.40.0", "numpy"),
            "from crewai import Memory",
        ),
        System(
            "remembrane",
            "remembrane",
            ("remembrane[fast]==0.5.1",),
            "from remembrane import MemoryStore",
        ),
    )
}


def say(text: str) -> None:
    """Report progress, apart from the result on stdout."""
    print(text, file=sys.stderr, flush=True)


def prepare(system: System) -> str:
    """Make the system's environment unless it is there and up to date; return its version."""
    folder = ENVIRONMENTS / system.name
    wanted = "\n".join(system.requirements)
    if system.name == "mnemotrace":
        wanted += (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    stamp = folder / "installed"
    digest = hashlib.sha256(wanted.encode()).hexdigest()
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != digest:
        say(f"{system.name}: making its environment")
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(system.python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *system.requirements], check=True)
        stamp.write_text(digest, encoding="utf-8")
    code = f"from importlib.metadata import version; print(version({system.distribution!r}))"
    return _output([str(system.python), "-c", code], dict(os.environ)).strip()


def _output(command: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    return done.stdout.decode()


def environment_of_workers(work: Path) -> dict[str, str]:
    """Return an environment without keys, telemetry or the user's own settings.

    CrewAI traces the first runs of a new user unless told not to, and its memory then waits five
    seconds in every save and deep recall; it is measured without that.
    """
    home = work / "home"
    home.mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_TOKEN"))}
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home),
        "CREWAI_STORAGE_DIR": str(home),
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "OTEL_SDK_DISABLED": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONPATH": "",
    }


class Runnable(Protocol):
    """What a worker needs to know of the system it runs."""

    @property
    def name(self) -> str:
        """As in the report."""

    @property
    def python(self) -> Path:
        """The interpreter to run it with."""


class Worker:
    """A running worker process and the pipe to it.

    Args:
        system: what runs in it.
        folder: where it keeps its files; its log goes beside it.
        environment: its environment variables.
        arguments: the script in `peers/` to run and its arguments; by default the worker of this
            benchmark.
    """

    def __init__(
        self,
        system: Runnable,
        folder: Path,
        environment: dict[str, str],
        arguments: Sequence[str] | None = None,
    ) -> None:
        self.name = system.name
        self._log_path = folder.with_suffix(".log")
        self._log = self._log_path.open("ab")
        script, *rest = arguments or ("worker.py", f"{system.name}_peer", str(folder), str(SEED))
        self._process = subprocess.Popen(
            [str(system.python), str(HERE / "peers" / script), *rest],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env=environment,
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send one command and wait for its answer.

        Raises:
            SystemExit: when the worker died; the end of its log is in the message.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            log = self._log_path.read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"The worker of {self.name} ended during {do!r}:\n{log[-3000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Let the worker release its store, and wait for it to end."""
        if self._process.poll() is None and self._process.stdin is not None:
            try:
                self._process.stdin.write('{"do": "close"}\n')
                self._process.stdin.close()
                self._process.wait(timeout=120)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def measure_imports(systems: list[System], environment: dict[str, str]) -> dict[str, list[float]]:
    """Time each system's import in fresh processes, in turn; the first try of each is dropped."""
    found: dict[str, list[float]] = {system.name: [] for system in systems}
    for attempt in range(FRESH_PROCESSES + 1):
        for system in systems:
            code = (
                "import time; start = time.perf_counter()\n"
                f"{system.statement}\n"
                "print((time.perf_counter() - start) * 1000)"
            )
            milliseconds = float(_output([str(system.python), "-c", code], environment))
            if attempt:
                found[system.name].append(milliseconds)
    return found


def measure_size(
    systems: list[System],
    size: int,
    rounds: int,
    patience: float,
    work: Path,
    environment: dict[str, str],
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Measure every operation at one size; reads first, so that they see exactly `size` records.

    Returns:
        What was measured of each system, and the times of recall, engine and embedder where
        mnemotrace takes part.
    """
    folders = {system.name: work / f"{system.name}-{size}" for system in systems}
    found: dict[str, Any] = {system.name: {"ops": {}} for system in systems}
    overhead = None
    workers: list[Worker] = []
    try:
        for system in systems:
            workers.append(Worker(system, folders[system.name], environment))
            found[system.name]["loaded"] = workers[-1].ask("load", size=size)
            seconds = found[system.name]["loaded"]["seconds"]
            say(f"{size:,}: {system.name} loaded in {seconds:.1f} s")
        for worker in workers:
            for op in RECALLS:
                worker.ask("run", op=op, first=1_000_000, calls=20, seconds=ROUND_SECONDS)
        for op in OPERATIONS:
            if op == FIRST_WRITE:
                for worker in workers:
                    found[worker.name]["read"] = worker.ask("stat")
                    if worker.name == "mnemotrace":
                        overhead = worker.ask("overhead", first=2_000_000, calls=rounds * 40)
            _measure_operation(workers, op, rounds, patience, found)
            say(f"{size:,}: {op} done")
        for worker in workers:
            found[worker.name]["written"] = worker.ask("stat")
    finally:
        for worker in workers:
            worker.close()
    for _ in range(FRESH_PROCESSES):
        for system in systems:
            start = time.perf_counter()
            fresh = Worker(system, folders[system.name], environment)
            try:
                fresh.ask("first", size=size)
                milliseconds = (time.perf_counter() - start) * 1000
            finally:
                fresh.close()
            found[system.name].setdefault("first_ms", []).append(milliseconds)
    for folder in folders.values():
        shutil.rmtree(folder)
    return found, overhead


def _measure_operation(
    workers: list[Worker], op: str, rounds: int, patience: float, found: dict[str, Any]
) -> None:
    """Let the systems take turns at one operation; one that used up its patience sits out."""
    results = {worker.name: {"ms": [], "found": 0} for worker in workers}
    spent = dict.fromkeys(results, 0.0)
    for number in range(rounds):
        turn = number % len(workers)
        for worker in workers[turn:] + workers[:turn]:
            result: dict[str, Any] = results[worker.name]
            if spent[worker.name] > patience:
                result["cut"] = True
                continue
            start = time.perf_counter()
            answer = worker.ask(
                "run", op=op, first=number * 1_000, calls=CALLS[op], seconds=ROUND_SECONDS
            )
            spent[worker.name] += time.perf_counter() - start
            result["ms"] += answer["ms"]
            result["found"] += answer["found"]
            if 0 < len(answer["ms"]) < CALLS[op]:
                result["cut"] = True
    for name, result in results.items():
        found[name]["ops"][op] = result


def measure_large(work: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Measure mnemotrace alone at 100,000 records: filtered recalls, embedding and memory."""
    worker = Worker(SYSTEMS["mnemotrace"], work / f"mnemotrace-{LARGE}", environment)
    try:
        found: dict[str, Any] = {"loaded": worker.ask("load", size=LARGE)}
        say(f"{LARGE:,}: loaded in {found['loaded']['seconds']:.0f} s")
        for op in ("scoped", "team", "shallow", "deep"):
            worker.ask("run", op=op, first=1_000_000, calls=20, seconds=60)
        for op in ("scoped", "team", "embed", "shallow", "deep"):
            found[op] = worker.ask("run", op=op, first=0, calls=200, seconds=60)
        found["stat"] = worker.ask("stat")
    finally:
        worker.close()
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes",
        default="1000,10000,50000",
        help="record counts, with commas between; '' for none (default: %(default)s)",
    )
    parser.add_argument(
        "--systems",
        default=",".join(SYSTEMS),
        help="which systems, with commas between (default: %(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each system an operation")
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        help="seconds a system may spend on one operation at one size before it sits out",
    )
    parser.add_argument(
        "--large", action="store_true", help=f"also measure mnemotrace at {LARGE:,} records"
    )
    parser.add_argument("--json", type=Path, help="write every measured time to this file")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 when a requirement is not met"
    )
    options = parser.parse_args(arguments)
    options.sizes = [int(size) for size in options.sizes.split(",") if size]
    names = options.systems.split(",")
    if unknown := [name for name in names if name not in SYSTEMS]:
        parser.error(f"unknown system {unknown[0]!r}; known are {', '.join(SYSTEMS)}")
    if any(size < 100 or size % 100 for size in options.sizes):
        parser.error("sizes must be multiples of 100, so that every scope gets its share")
    options.systems = [SYSTEMS[name] for name in names]
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the report, and return the exit code."""
    options = parse(arguments)
    measured: dict[str, Any] = {
        "schema": 1,
        "versions": {system.name: prepare(system) for system in options.systems},
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.system(),
        },
        "rounds": options.rounds,
        "sizes": {},
        "overhead": {},
    }
    with tempfile.TemporaryDirectory(prefix="mnemotrace-speed-") as name:
        work = Path(name)
        environment = environment_of_workers(work)
        measured["import_ms"] = measure_imports(options.systems, environment)
        say("imports done")
        for size in options.sizes:
            found, overhead = measure_size(
                options.systems, size, options.rounds, options.patience, work, environment
            )
            measured["sizes"][str(size)] = found
            if overhead is not None:
                measured["overhead"][str(size)] = overhead
        if options.large:
            measured["large"] = measure_large(work, environment)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    print(render(measured))
    return int(options.check and not all(verdict.met for verdict in verdicts(measured)))


if __name__ == "__main__":
    sys.exit(main())
