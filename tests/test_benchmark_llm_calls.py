"""The benchmark of model calls: its report, and its measurement of mnemotrace itself."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
MODULES = ("llm_calls", "speed", "report")


@pytest.fixture
def llm_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("llm_calls")
    for name in MODULES:
        sys.modules.pop(name, None)


def entry(calls: int, ms: float, exploring: int = 0) -> dict[str, Any]:
    return {
        "ms": ms,
        "calls": calls,
        "tokens_in": calls * 100,
        "tokens_out": calls * 10,
        "asked": {"Exploration": exploring},
    }


def measured(llm_calls: ModuleType, inferred_ms: float = 700.0) -> dict[str, Any]:
    """Canned measurements: CrewAI makes twice our calls, and explores five times as much."""

    def system(factor: int) -> dict[str, Any]:
        found = {op: [entry(2 * factor, 100.0 * factor)] for op in llm_calls.OPERATIONS}
        found["given"] = found["short"] = [entry(0, 50.0 * factor)]
        found["inferred"] = [entry(100, inferred_ms * factor), entry(100, 9 * inferred_ms * factor)]
        found["explore"] = [entry(4, 200.0, exploring=3 if factor == 1 else 15)]
        return found

    theirs = system(2)
    theirs["bare"] = []
    return {
        "versions": {"mnemotrace": "1", "crewai": "2"},
        "machine": {"cores": 2, "python": "3.11", "system": "Linux"},
        "rounds": 2,
        "latency_ms": 50.0,
        "systems": {"mnemotrace": system(1), "crewai": theirs},
    }


def test_every_requirement_is_judged(llm_calls: ModuleType) -> None:
    found = llm_calls.verdicts(measured(llm_calls))
    assert [(v.measured, v.required, v.met) for v in found] == [
        ("0 (CrewAI: 0)", "none", True),
        ("0 (CrewAI: 0)", "none", True),
        ("1.12x of 625 ms", "at most 1.5x", True),
        ("3 (CrewAI: 15)", "at most 3", True),
    ]


def test_what_is_missed_is_told(llm_calls: ModuleType) -> None:
    canned = measured(llm_calls, inferred_ms=1000.0)
    ours = canned["systems"]["mnemotrace"]
    ours["given"] = [entry(0, 1.0), entry(1, 1.0)]
    ours["short"] = [entry(1, 1.0)]
    ours["explore"] = [entry(5, 1.0, exploring=4)]
    found = llm_calls.verdicts(canned)
    assert [v.met for v in found] == [False] * 4
    assert found[2].measured == "1.60x of 625 ms"
    assert llm_calls.render(canned).count("**no**") == 4


def test_no_exploration_at_all_is_no_success(llm_calls: ModuleType) -> None:
    canned = measured(llm_calls)
    canned["systems"]["mnemotrace"]["explore"] = [entry(1, 1.0)]
    assert not llm_calls.verdicts(canned)[3].met


def test_the_report_shows_calls_tokens_time_and_ratios(llm_calls: ModuleType) -> None:
    lines = llm_calls.render(measured(llm_calls)).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert ["deep recall, long query", "calls", "2", "4", "2.0x"] in cells
    assert ["", "tokens in", "200", "400", "2.0x"] in cells
    assert ["", "wall, ms", "3,500", "7,000", "2.0x"] in cells  # the median of both rounds
    assert ["100 saves, all fields given, nothing similar", "calls", "0", "0", "1.0x"] in cells
    assert ["100 such requests by litellm alone, 8 at a time", "calls", "2", "-", "-"] in cells


def test_one_system_alone_has_no_ratios(llm_calls: ModuleType) -> None:
    canned = measured(llm_calls)
    theirs = canned["systems"].pop("crewai")
    assert "CrewAI" not in llm_calls.render(canned)
    canned["systems"] = {"crewai": theirs}
    assert llm_calls.verdicts(canned) == []
    assert "deep recall, long query" in llm_calls.render(canned)


def test_only_what_was_measured_is_judged_and_shown(llm_calls: ModuleType) -> None:
    canned = measured(llm_calls)
    canned["systems"] = {"mnemotrace": {"inferred": canned["systems"]["mnemotrace"]["inferred"]}}
    assert [v.measured for v in llm_calls.verdicts(canned)] == ["1.12x of 625 ms"]
    assert "deep recall" not in llm_calls.render(canned)
    assert llm_calls.parse(["--operations", "given,bare"]).operations == ["given", "bare"]
    with pytest.raises(SystemExit):
        llm_calls.parse(["--operations", "typo"])


@dataclass(frozen=True)
class ThisPython:
    """Stands for mnemotrace's environment: the one the tests run in."""

    name: str = "mnemotrace"
    python: Path = Path(sys.executable)


@pytest.mark.slow
def test_mnemotrace_asks_as_often_as_it_must_and_no_oftener(
    llm_calls: ModuleType, tmp_path: Path
) -> None:
    environment = dict(os.environ)
    system = ThisPython()
    model = llm_calls.ModelServer(system.python, environment, 0.02)
    arguments = ("llm_worker.py", "mnemotrace", str(tmp_path / "store"), model.url, "1")
    worker = llm_calls.Worker(system, tmp_path / "store", environment, arguments)
    found: dict[str, dict[str, Any]] = {}
    try:
        worker.ask("prepare", records=60, scopes=llm_calls.SCOPES, budget=llm_calls.BUDGET)
        for op in llm_calls.OPERATIONS:
            model.take()
            found[op] = {**worker.ask("run", op=op, number=0), **model.take()}
    finally:
        worker.close()
        model.close()

    calls = {op: result["asked"] for op, result in found.items()}
    assert calls["given"] == {}
    assert calls["inferred"] == calls["single"] == calls["bare"] == {"SaveAnalysis": 100}
    assert calls["similar"] == {"ConsolidationPlan": 60}  # as many as are stored
    assert calls["short"] == {}
    assert calls["long"]["QueryAnalysis"] == 1
    assert calls["explore"] == {"QueryAnalysis": 1, "Exploration": llm_calls.BUDGET}
    # They begin one after another, so that on a busy machine the first may end before the last begins.
    most = found["inferred"]["most_running"]
    assert llm_calls.CONCURRENCY // 2 < most <= llm_calls.CONCURRENCY
    assert found["single"]["most_running"] == 1
    assert all(result["results"] for result in found.values())
    assert found["inferred"]["tokens_in"] > 100 * 100
    assert found["inferred"]["tokens_out"] > 100 * 10
