"""Turns the measurements of `speed.py` into medians, ratios, verdicts and markdown tables."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

OURS = "mnemotrace"
PEERS = ("crewai", "remembrane")
TITLES = {"mnemotrace": "mnemotrace", "crewai": "CrewAI on LanceDB", "remembrane": "remembrane"}
OPERATIONS = {
    "shallow": "shallow recall, p50",
    "deep": "deep recall, short query, p50",
    "scoped": "recall inside a 1 % scope, p50",
    "tree": "tree, p50",
    "remember": "remember, all fields given, p50",
    "turn": "remember, then shallow recall, p50",
    "remember_many": "remember_many(1000) until saved, p50",
}
RECALLS = ("shallow", "deep", "scoped")
SEARCHES = (*RECALLS, "turn")
JUDGED_AT = 10_000
REQUIRED_RATIOS = {
    "shallow": 12.0,
    "deep": 60.0,
    "tree": 80.0,
    "remember_many": 20.0,
    "remember": 4.0,
    "import": 8.0,
}
MOST_OVER_RAW_MS = 2.0
LARGE = 100_000
MOST_FILTERED_MS = 4.0
MOST_RESIDENT = 1 << 30
Measured = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """One requirement: what was measured, what is asked for, and whether it is met."""

    what: str
    measured: str
    required: str
    met: bool


def ratio(times: dict[str, list[float]], peer: str) -> float | None:
    """Return how many times longer the peer's median takes than ours; None without both."""
    if not times.get(OURS) or not times.get(peer):
        return None
    return median(times[peer]) / median(times[OURS])


def times_of(measured: Measured, size: int, op: str) -> dict[str, list[float]]:
    """Return each system's milliseconds for one operation at one size."""
    systems = measured["sizes"].get(str(size), {})
    return {name: found["ops"].get(op, {}).get("ms", []) for name, found in systems.items()}


def verdicts(measured: Measured) -> list[Verdict]:
    """Judge every requirement that the measurements cover, in the order they are asked for."""
    found = []
    for op, required in REQUIRED_RATIOS.items():
        if op == "import":
            times, what = measured.get("import_ms", {}), "import"
        else:
            times = times_of(measured, JUDGED_AT, op)
            what = f"{OPERATIONS[op].removesuffix(', p50')}, {JUDGED_AT:,} records"
        value = ratio(times, "crewai")
        if value is not None:
            found.append(
                Verdict(
                    f"{what}: CrewAI / mnemotrace",
                    f"{value:.1f}x",
                    f"at least {required:.0f}x",
                    value >= required,
                )
            )
    for size, times in measured.get("overhead", {}).items():
        over = median(times["recall"]) - median(times["raw"])
        found.append(
            Verdict(
                f"shallow recall over the engine's own query, {int(size):,} records",
                f"{over:.2f} ms",
                f"at most {MOST_OVER_RAW_MS:.0f} ms",
                over <= MOST_OVER_RAW_MS,
            )
        )
    if large := measured.get("large"):
        embedding = median(large["embed"]["ms"])
        for op, share in (("scoped", "1 %"), ("team", "10 %")):
            value = median(large[op]["ms"]) - embedding
            found.append(
                Verdict(
                    f"recall inside a {share} scope less embedding, {LARGE:,} records",
                    f"{value:.2f} ms",
                    f"under {MOST_FILTERED_MS:.0f} ms",
                    value < MOST_FILTERED_MS,
                )
            )
        resident = large["stat"]["rss"]
        found.append(
            Verdict(
                f"resident memory of the process, {LARGE:,} records",
                _bytes(resident),
                f"under {_bytes(MOST_RESIDENT)}",
                0 < resident < MOST_RESIDENT,
            )
        )
    return found


def render(measured: Measured) -> str:
    """Return the whole report as markdown."""
    parts = ["# mnemotrace beside its peers", _setting(measured)]
    for size in measured["sizes"]:
        parts += [f"## {int(size):,} records", _size_table(measured, int(size))]
    if measured.get("import_ms"):
        parts += ["## Import in a fresh process", _import_table(measured)]
    parts += ["## Required", _verdict_table(verdicts(measured)), *_notes(measured)]
    return "\n\n".join(parts) + "\n"


def _setting(measured: Measured) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    machine = measured["machine"]
    return (
        f"{versions}. {machine['cores']} cores, Python {machine['python']}, {machine['system']}. "
        "Times in milliseconds; ratios above 1 mean that mnemotrace is faster or smaller. "
        "Machines differ: compare ratios, not times."
    )


def _size_table(measured: Measured, size: int) -> str:
    systems = measured["sizes"][str(size)]
    peers = [name for name in PEERS if name in systems]
    rows = []
    for op, title in OPERATIONS.items():
        times = times_of(measured, size, op)
        cells = [_time(times.get(name, [])) for name in (OURS, *peers)]
        rows.append([title, *cells, *(_ratio(ratio(times, name)) for name in peers)])
    for op in SEARCHES:
        cells = [_share(systems.get(name, {}).get("ops", {}).get(op)) for name in (OURS, *peers)]
        rows.append([f"source record among the ten: {op}", *cells, *("" for _ in peers)])
    cold = {name: found.get("first_ms", []) for name, found in systems.items()}
    cells = [_time(cold.get(name, [])) for name in (OURS, *peers)]
    title = "new process, open, first recall"
    rows.append([title, *cells, *(_ratio(ratio(cold, name)) for name in peers)])
    for key, title in (
        ("loaded", "disk used after loading"),
        ("read", "disk used after all recalls"),
    ):
        disk = {n: [float(f[key]["disk"])] for n, f in systems.items() if key in f}
        cells = [_bytes(disk[name][0]) if name in disk else "-" for name in (OURS, *peers)]
        rows.append([title, *cells, *(_ratio(ratio(disk, name)) for name in peers)])
    rss = {n: [float(f["loaded"]["rss"])] for n, f in systems.items() if "loaded" in f}
    cells = [_bytes(rss[name][0]) if name in rss else "-" for name in (OURS, *peers)]
    title = "resident memory after loading"
    rows.append([title, *cells, *(_ratio(ratio(rss, name)) for name in peers)])
    heads = [TITLES[name] for name in (OURS, *peers)]
    return table(["", *heads, *(f"{TITLES[name]} / ours" for name in peers)], rows)


def _import_table(measured: Measured) -> str:
    times = measured["import_ms"]
    peers = [name for name in PEERS if name in times]
    rows = [
        [
            "import, p50",
            *(_time(times.get(name, [])) for name in (OURS, *peers)),
            *(_ratio(ratio(times, name)) for name in peers),
        ]
    ]
    heads = [TITLES[name] for name in (OURS, *peers)]
    return table(["", *heads, *(f"{TITLES[name]} / ours" for name in peers)], rows)


def _verdict_table(found: list[Verdict]) -> str:
    if not found:
        return f"Nothing to judge: requirements are set for {JUDGED_AT:,} records and --large."
    rows = [[v.what, v.measured, v.required, "yes" if v.met else "**no**"] for v in found]
    return table(["", "measured", "required", "met"], rows)


def _notes(measured: Measured) -> list[str]:
    lines: dict[str, None] = {}
    for size, systems in measured["sizes"].items():
        for name, found in systems.items():
            for op, why in found.get("loaded", {}).get("missing", {}).items():
                lines[f"- {TITLES[name]} cannot do {op}: {why}."] = None
            for op, remark in found.get("loaded", {}).get("remarks", {}).items():
                lines[f"- {TITLES[name]}, {op}: {remark}."] = None
            for op, result in found["ops"].items():
                if result.get("cut"):
                    lines[
                        f"- {TITLES[name]}, {op} at {int(size):,}: slow, so only "
                        f"{len(result['ms'])} calls were measured."
                    ] = None
            if calls := found.get("written", {}).get("llm_calls"):
                lines[f"- {TITLES[name]} asked the absent LLM {calls} times at {size}."] = None
    return ["## Notes", "\n".join(lines)] if lines else []


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a markdown table, its columns padded to line up in a terminal."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, rows)])


def _time(times: list[float]) -> str:
    if not times:
        return "-"
    value = median(times)
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _ratio(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}x" if value >= 1 else f"{value:.2f}x"


def _share(result: Measured | None) -> str:
    if not result or not result["ms"]:
        return "-"
    return f"{result['found']} of {len(result['ms'])}"


def _bytes(count: float) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
