"""What mnemotrace and CrewAI's memory ask a language model: calls, tokens and wall time.

Both ask the same fake model over HTTP, a server on this machine that takes 50 ms for each answer
and answers each system's schemas. The systems take turns, operation by operation and round by
round, in environments of their own (see `speed.py`). See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from report import TITLES, Verdict, table
from speed import HERE, SEED, SYSTEMS, Worker, environment_of_workers, prepare, say

LATENCY = 0.05
CONCURRENCY = 8
"""mnemotrace's `llm_concurrency`, left at its default."""
BATCH = 100
RECORDS = 300
SCOPES = 5
BUDGET = 3
MOST_OVER_IDEAL = 1.5
NAMES = ("mnemotrace", "crewai")


@dataclass(frozen=True)
class Operation:
    """One thing that is measured.

    Attributes:
        title: as in the report.
        calls: how often it runs in one round; reported is one of them.
    """

    title: str
    calls: int = 1


OPERATIONS = {
    "given": Operation("100 saves, all fields given, nothing similar"),
    "inferred": Operation("100 saves in one batch, fields left out"),
    "bare": Operation("100 such requests by litellm alone, 8 at a time"),
    "single": Operation("100 saves one by one, fields left out"),
    "similar": Operation("100 saves, all fields given, each like a stored one"),
    "short": Operation("deep recall, short query", 10),
    "long": Operation("deep recall, long query", 10),
    "explore": Operation(f"deep recall, never confident, exploration_budget={BUDGET}", 5),
}


class ModelServer:
    """The fake model in a process of its own, run by mnemotrace's interpreter."""

    def __init__(self, python: Path, environment: dict[str, str], latency: float) -> None:
        script = str(HERE / "peers" / "model_server.py")
        self._process = subprocess.Popen(
            [str(python), script, str(latency), str(SEED)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise SystemExit("The fake model did not start.")

    def take(self) -> dict[str, Any]:
        """Return what was asked since the last time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write('{"do": "take"}\n')
        self._process.stdin.flush()
        taken: dict[str, Any] = json.loads(self._process.stdout.readline())
        return taken

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def measure(
    names: Sequence[str],
    operations: Sequence[str],
    rounds: int,
    latency: float,
    work: Path,
    environment: dict[str, str],
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Measure the operations; for each system and operation one entry a call."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {op: [] for op in operations} for name in names
    }
    model = ModelServer(SYSTEMS["mnemotrace"].python, environment, latency)
    workers: list[Worker] = []
    try:
        for name in names:
            arguments = ("llm_worker.py", name, str(work / name), model.url, str(SEED))
            workers.append(Worker(SYSTEMS[name], work / name, environment, arguments))
            workers[-1].ask("prepare", records=RECORDS, scopes=SCOPES, budget=BUDGET)
            say(f"{name}: filled and warm")
        for op in operations:
            operation = OPERATIONS[op]
            for number in range(rounds):
                turn = number % len(workers)
                for worker in workers[turn:] + workers[:turn]:
                    for call in range(operation.calls):
                        model.take()
                        answer = worker.ask("run", op=op, number=number * operation.calls + call)
                        taken = model.take()
                        if answer["ms"] is not None:
                            found[worker.name][op].append({**answer, **taken})
            say(f"{op} done")
    finally:
        for worker in workers:
            worker.close()
        model.close()
    return found


def middle(measured: dict[str, Any], name: str, op: str, key: str) -> float | None:
    """Return the median of one number of one operation; None where it was not measured."""
    entries = measured["systems"].get(name, {}).get(op, [])
    return median(entry[key] for entry in entries) if entries else None


def most(measured: dict[str, Any], name: str, op: str, asked: str | None = None) -> int:
    """Return the most calls of one operation in any round, of one kind or of all."""
    entries = measured["systems"].get(name, {}).get(op, [])
    numbers = (e["calls"] if asked is None else e["asked"].get(asked, 0) for e in entries)
    return max(numbers, default=0)


def verdicts(measured: dict[str, Any]) -> list[Verdict]:
    """Judge what was measured and is required of mnemotrace, with CrewAI's number beside it."""
    ours, theirs = NAMES
    mine = measured["systems"].get(ours, {})
    crewai = theirs in measured["systems"]

    def beside(number: object) -> str:
        return f" (CrewAI: {number})" if crewai else ""

    found = []
    for op, what in (("given", "calls of 100 saves, all fields given"),
                     ("short", "calls of a deep recall, short query")):  # fmt: skip
        if not mine.get(op):
            continue
        count = most(measured, ours, op)
        shown = f"{count}{beside(most(measured, theirs, op))}"
        found.append(Verdict(what, shown, "none", count == 0))
    if batches := mine.get("inferred"):
        # The least disturbed round: what other programs on the machine add is not mnemotrace's.
        quickest = min(batches, key=lambda entry: entry["ms"] / max(entry["calls"], 1))
        ideal = quickest["calls"] * measured["latency_ms"] / CONCURRENCY
        over = quickest["ms"] / ideal if ideal else 0.0
        found.append(
            Verdict(
                f"wall time of {BATCH} saves, fields left out, over calls x latency / "
                "concurrency, best round",
                f"{over:.2f}x of {ideal:.0f} ms",
                f"at most {MOST_OVER_IDEAL}x",
                0 < over <= MOST_OVER_IDEAL,
            )
        )
    if mine.get("explore"):
        count = most(measured, ours, "explore", "Exploration")
        shown = f"{count}{beside(most(measured, theirs, 'explore', 'Exploration'))}"
        what = f"exploration calls of one recall, {SCOPES} scopes, exploration_budget={BUDGET}"
        found.append(Verdict(what, shown, f"at most {BUDGET}", 0 < count <= BUDGET))
    return found


def render(measured: dict[str, Any]) -> str:
    """Return the whole report as markdown."""
    names = [name for name in NAMES if name in measured["systems"]]
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    machine = measured["machine"]
    setting = (
        f"{versions}. {machine['cores']} cores, Python {machine['python']}, {machine['system']}. "
        f"A fake model that takes {measured['latency_ms']:.0f} ms an answer; medians of "
        f"{measured['rounds']} rounds. Ratios above 1 mean that mnemotrace needs less."
    )
    rows = []
    measured_ops = [op for op in OPERATIONS if any(op in measured["systems"][n] for n in names)]
    for op in measured_ops:
        for key, unit in (("calls", "calls"), ("tokens_in", "tokens in"),
                          ("tokens_out", "tokens out"), ("ms", "wall, ms")):  # fmt: skip
            values = [middle(measured, name, op, key) for name in names]
            first = OPERATIONS[op].title if key == "calls" else ""
            cells = ["-" if value is None else f"{value:,.0f}" for value in values]
            rows.append([first, unit, *cells, *([_ratio(values)] if len(names) > 1 else [])])
    head = ["", "", *(TITLES[name] for name in names)]
    head += [f"{TITLES['crewai']} / ours"] if len(names) > 1 else []
    judged = [
        [v.what, v.measured, v.required, "yes" if v.met else "**no**"] for v in verdicts(measured)
    ]
    parts = ["# What is asked of the language model", setting, table(head, rows)]
    parts += ["## Required", table(["", "measured", "required", "met"], judged)]
    return "\n\n".join(parts) + "\n"


def _ratio(values: Sequence[float | None]) -> str:
    ours, theirs = values
    if ours is None or theirs is None:
        return "-"
    if ours == 0:
        return "1.0x" if theirs == 0 else "none of ours"
    return f"{theirs / ours:.1f}x"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="turns of each system an operation")
    parser.add_argument(
        "--latency",
        type=float,
        default=LATENCY,
        help="seconds the fake model takes (default: %(default)s)",
    )
    parser.add_argument(
        "--systems",
        default=",".join(NAMES),
        help="which systems, with commas between (default: %(default)s)",
    )
    parser.add_argument(
        "--operations",
        default=",".join(OPERATIONS),
        help="which operations, with commas between (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 when a requirement is not met"
    )
    options = parser.parse_args(arguments)
    options.systems = options.systems.split(",")
    if unknown := [name for name in options.systems if name not in NAMES]:
        parser.error(f"unknown system {unknown[0]!r}; known are {', '.join(NAMES)}")
    options.operations = options.operations.split(",")
    if unknown := [op for op in options.operations if op not in OPERATIONS]:
        parser.error(f"unknown operation {unknown[0]!r}; known are {', '.join(OPERATIONS)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the report, and return the exit code."""
    options = parse(arguments)
    # The fake model runs in mnemotrace's environment, whichever systems are measured.
    needed = dict.fromkeys(["mnemotrace", *options.systems])
    versions = {name: prepare(SYSTEMS[name]) for name in needed}
    with tempfile.TemporaryDirectory(prefix="mnemotrace-llm-calls-") as name:
        work = Path(name)
        environment = environment_of_workers(work)
        systems = measure(
            options.systems,
            options.operations,
            options.rounds,
            options.latency,
            work,
            environment,
        )
    measured = {
        "schema": 1,
        "versions": {name: versions[name] for name in options.systems},
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.system(),
        },
        "rounds": options.rounds,
        "latency_ms": options.latency * 1000,
        "systems": systems,
    }
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    print(render(measured))
    return int(options.check and not all(verdict.met for verdict in verdicts(measured)))


if __name__ == "__main__":
    sys.exit(main())
