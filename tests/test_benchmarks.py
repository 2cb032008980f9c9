"""The benchmark's report: canned measurements in, ratios and verdicts out."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPORT = Path(__file__).resolve().parent.parent / "benchmarks" / "report.py"


@pytest.fixture(scope="module")
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_report", REPORT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def measured(ours: float, crewai: float) -> dict[str, Any]:
    """Canned measurements: every median of ours and of CrewAI is the given one."""

    def system(name: str, milliseconds: float) -> dict[str, Any]:
        ops = ("shallow", "deep", "scoped", "tree", "remember", "turn", "remember_many")
        times = [milliseconds / 2, milliseconds, milliseconds * 9]
        return {
            "loaded": {
                "disk": 1 << 20,
                "rss": 2 << 20,
                "missing": {"tree": "none there"} if name == "remembrane" else {},
                "remarks": {},
            },
            "ops": {
                op: {"ms": [] if (name, op) == ("remembrane", "tree") else times, "found": 2}
                for op in ops
            },
            "first_ms": times,
        }

    systems = {
        "mnemotrace": system("mnemotrace", ours),
        "crewai": system("crewai", crewai),
        "remembrane": system("remembrane", 3 * ours),
    }
    return {
        "versions": {"mnemotrace": "1"},
        "machine": {"cores": 2, "python": "3.11", "system": "Linux"},
        "import_ms": {"mnemotrace": [ours], "crewai": [crewai]},
        "sizes": {"10000": systems},
        "overhead": {"10000": {"recall": [3.0, 9.0], "raw": [0.5, 0.5], "embed": [0.1]}},
        "large": {
            "scoped": {"ms": [1.0, 2.0, 3.0]},
            "team": {"ms": [7.0]},
            "embed": {"ms": [0.5]},
            "stat": {"rss": 1 << 29},
        },
    }


def test_every_requirement_is_judged_by_the_ratio_of_medians(report: ModuleType) -> None:
    found = report.verdicts(measured(ours=2.0, crewai=50.0))
    ratios = {v.required: (v.measured, v.met) for v in found if "CrewAI" in v.what}
    assert ratios == {
        "at least 12x": ("25.0x", True),
        "at least 60x": ("25.0x", False),
        "at least 80x": ("25.0x", False),
        "at least 20x": ("25.0x", True),
        "at least 4x": ("25.0x", True),
        "at least 8x": ("25.0x", True),
    }


def test_absolute_requirements_subtract_the_engine_and_the_embedder(report: ModuleType) -> None:
    found = report.verdicts(measured(ours=1.0, crewai=100.0))
    absolute = [(v.measured, v.met) for v in found if "CrewAI" not in v.what]
    assert absolute == [
        ("5.50 ms", False),
        ("1.50 ms", True),
        ("6.50 ms", False),
        ("512 MiB", True),
    ]


def test_nothing_is_judged_without_the_peer_or_the_size(report: ModuleType) -> None:
    canned = measured(ours=1.0, crewai=100.0)
    del canned["sizes"]["10000"]["crewai"], canned["import_ms"], canned["large"]
    canned["overhead"] = {}
    assert report.verdicts(canned) == []
    assert "Nothing to judge" in report.render(canned)


def test_the_report_shows_medians_ratios_and_what_a_peer_cannot_do(report: ModuleType) -> None:
    lines = report.render(measured(ours=2.0, crewai=500.0)).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert ["shallow recall, p50", "2.00", "500", "6.00", "250.0x", "3.0x"] in cells
    assert ["tree, p50", "2.00", "500", "-", "250.0x", "-"] in cells
    assert "- remembrane cannot do tree: none there." in lines


@pytest.mark.slow
def test_the_latency_of_a_small_store_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    path = REPORT.with_name("latency.py")
    spec = importlib.util.spec_from_file_location("benchmarks_latency", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    try:
        spec.loader.exec_module(module)
        vars(module)["QUERIES"] = 30
        assert module.main(["--records", "50"]) == 0
    finally:
        sys.path[:] = before
    printed = capsys.readouterr().out
    for name in ("embedding one query", "recall, shallow", "recall, deep"):
        assert f"| 50 | {name} | " in printed
