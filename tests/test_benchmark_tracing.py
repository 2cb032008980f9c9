"""The benchmark of tracing: it measures every view, and its verdict follows the limits."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.delitem(sys.modules, "tracing", raising=False)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("tracing")
    sys.modules.pop("tracing", None)


def test_it_measures_recalls_and_every_view(
    tracing: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracing, "RECORDS", 20)
    monkeypatch.setattr(tracing, "SPANS", 50)
    monkeypatch.setattr(tracing, "MOST_ADDED_MS", 1e6)
    monkeypatch.setattr(tracing, "MOST_RENDER_MS", 1e6)
    assert tracing.main(["--rounds", "4"]) == 0
    out = capsys.readouterr().out
    for words in ("a deep recall", "a shallow recall", "in colour", "40 columns", "HTML", "SVG"):
        assert words in out
    assert "MISSED" not in out


def test_a_missed_limit_is_told_and_fails_the_run(
    tracing: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    late = tracing.Measured("1,000 spans as HTML", 250.0, 200.0, "1 kB of text")
    monkeypatch.setattr(tracing, "added", lambda rounds: [])
    monkeypatch.setattr(tracing, "rendered", lambda rounds: [late])
    assert tracing.main([]) == 1
    assert "MISSED" in capsys.readouterr().out


@pytest.mark.slow
def test_a_thousand_spans_are_rendered_in_time(tracing: ModuleType) -> None:
    # 50 ms at most here; the bound leaves room for a busy machine.
    for measured in tracing.rendered(3):
        assert measured.ms < 5 * tracing.MOST_RENDER_MS, measured
