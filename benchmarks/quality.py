"""Does recall find the evidence? mnemotrace beside its peers and baselines on LoCoMo-format files.

The turns of each conversation are stored in a fresh memory, then every question is asked. Each
system lives in the environments that `speed.py` makes, in worker processes of its own, and all use
the same embedder. No LLM. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import locomo
from quality_report import OURS, VARIANT, render, verdicts
from speed import SYSTEMS, System, Worker, environment_of_workers, prepare, say

SEED = 1
LIMIT = 20
VARIANT_DEPTH = "deep"


@dataclass(frozen=True)
class Contestant:
    """One system under measurement.

    Attributes:
        name: unique in a run; of its worker, folder and rows.
        title: as in the report.
        module: in `peers/`.
        system: whose environment it runs in.
        modes: what each question is asked with, and the addition to the title for each.
        options: for the module.
        needs_vectors: whether it uses the shared embedder.
        in_place: run with this interpreter instead of one in `.envs/`.
    """

    name: str
    title: str
    module: str
    system: System
    modes: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    needs_vectors: bool = True
    in_place: bool = False

    @property
    def python(self) -> Path:
        """The interpreter to run it with."""
        return Path(sys.executable) if self.in_place else self.system.python


def contestants(
    names: Sequence[str], variants: Sequence[tuple[str, dict[str, Any]]], in_place: bool
) -> list[Contestant]:
    """Return the systems of these names and the variants of ours, in the order of the report."""
    ours, both = SYSTEMS["mnemotrace"], {"deep": ", deep", "shallow": ", shallow"}

    def baseline(name: str, title: str, needs_vectors: bool = False) -> Contestant:
        return Contestant(
            name,
            title,
            "quality_baselines",
            ours,
            {"only": ""},
            {"baseline": name},
            needs_vectors,
            in_place,
        )

    known = [
        Contestant(OURS, OURS, "quality_mnemotrace", ours, both, {}, False, in_place),
        Contestant("crewai", "CrewAI on LanceDB", "quality_crewai", SYSTEMS["crewai"], both),
        Contestant(
            "remembrane", "remembrane", "quality_remembrane", SYSTEMS["remembrane"], {"only": ""}
        ),
        baseline("bm25", "stemmed BM25"),
        baseline("vector", "vector only", needs_vectors=True),
        baseline("chance", "no memory: chance"),
    ]
    found = [contestant for contestant in known if contestant.name in names]
    for name, options in variants:
        settings = dict(options)
        mode = settings.pop("depth", VARIANT_DEPTH)
        title = f"variant {name}"
        found.append(
            Contestant(
                f"{VARIANT}{name}",
                title,
                "quality_mnemotrace",
                ours,
                {mode: "" if mode == VARIANT_DEPTH else f", {mode}"},
                settings,
                False,
                in_place,
            )
        )
    return found


NAMES = ("mnemotrace", "crewai", "remembrane", "bm25", "vector", "chance")


def measure(
    contestant: Contestant,
    conversations: Sequence[locomo.Conversation],
    timed: bool,
    vectors: Path,
    work: Path,
    environment: dict[str, str],
) -> list[dict[str, Any]]:
    """Let one system answer every question of every conversation.

    Returns:
        One row for each of its modes: `answers` (for each conversation, for each question), `peak`
        memory of the process in bytes, and remarks.
    """
    rows = {
        mode: {
            "system": contestant.name,
            "mode": mode,
            "title": contestant.title + suffix,
            "options": contestant.options,
            "answers": [],
        }
        for mode, suffix in contestant.modes.items()
    }
    folder = work / f"{contestant.name}-{'timed' if timed else 'untimed'}"
    lookup = str(vectors) if contestant.needs_vectors else ""
    arguments = (contestant.module, str(folder), lookup, json.dumps(contestant.options), str(SEED))
    worker = Worker(contestant, folder, environment, ("quality_worker.py", *arguments))
    stored = 0
    try:
        for conversation in conversations:
            loaded = worker.ask(
                "load", turns=conversation.turns_as_json(), now=conversation.day_after, timed=timed
            )
            stored += loaded["stored"]
            for mode, row in rows.items():
                questions = [question.text for question in conversation.questions]
                answer = worker.ask("ask", mode=mode, questions=questions, limit=LIMIT)
                row["answers"].append(answer["answers"])
            say(f"  {contestant.name}: {conversation.name}")
        peak = worker.ask("finish")["peak"]
    finally:
        worker.close()
    same = {
        "peak": peak,
        "stored": stored,
        "remarks": loaded["remarks"],
        "cannot_set_time": loaded["cannot_set_time"],
    }
    return [{**row, **same} for row in rows.values()]


def make_vectors(
    conversations: Sequence[locomo.Conversation],
    in_place: bool,
    work: Path,
    environment: dict[str, str],
) -> tuple[Path, int]:
    """Embed every turn and question once, for all systems that share the vectors.

    Returns:
        The folder of the vectors, and the peak memory of the process that made them.
    """
    folder = work / "vectors"
    ours = SYSTEMS["mnemotrace"]
    embedder = Contestant("embedder", "", "quality_mnemotrace", ours, {}, in_place=in_place)
    arguments = ("quality_mnemotrace", str(work / "embedder"), "", "{}", str(SEED))
    worker = Worker(embedder, work / "embedder", environment, ("quality_worker.py", *arguments))
    try:
        texts = [turn.text for one in conversations for turn in one.turns]
        questions = [question.text for one in conversations for question in one.questions]
        made = worker.ask("embed", texts=texts, questions=questions, folder=str(folder))
    finally:
        worker.close()
    return folder, made["peak"]


def variant(text: str) -> tuple[str, dict[str, Any]]:
    """Read ``name:keyword=value,keyword=value``; values are JSON, or text where that fails.

    Raises:
        argparse.ArgumentTypeError: it is not of that form.
    """
    name, colon, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in rest.split(","):
        keyword, equals, value = part.partition("=")
        if not (name and colon and equals and keyword.isidentifier()):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not of the form name:keyword=value,keyword=value"
            )
        try:
            options[keyword] = json.loads(value)
        except ValueError:
            options[keyword] = value
    return name, options


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line and the files it names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="conversations in LoCoMo's format")
    parser.add_argument(
        "--systems",
        default=",".join(NAMES),
        help="which systems, with commas between (default: %(default)s)",
    )
    parser.add_argument(
        "--variant",
        action="append",
        type=variant,
        default=[],
        metavar="NAME:KEYWORD=VALUE,...",
        help="one more row: mnemotrace with these arguments of Memory, and depth= for another "
        "depth than deep; may be given several times",
    )
    parser.add_argument(
        "--timed",
        action="store_true",
        help="measure a second time, each turn created on its session's date and every question "
        "asked one day after the last session",
    )
    parser.add_argument(
        "--limit-conversations", type=int, metavar="N", help="only the first N conversations"
    )
    parser.add_argument(
        "--draws", type=int, default=2000, help="bootstrap samples (default: %(default)s)"
    )
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="run mnemotrace and the baselines with this interpreter, where mnemotrace is installed",
    )
    parser.add_argument("--json", type=Path, help="write every ranking and time to this file")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 when a requirement is not met"
    )
    options = parser.parse_args(arguments)
    names = options.systems.split(",") if options.systems else []
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"unknown system {unknown[0]!r}; known are {', '.join(NAMES)}")
    if len({name for name, _ in options.variant}) < len(options.variant):
        parser.error("two variants have the same name")
    if not names and not options.variant:
        parser.error("there is no system to measure")
    if options.draws < 1:
        parser.error("--draws must be at least 1")
    if options.limit_conversations is not None and options.limit_conversations < 1:
        parser.error("--limit-conversations must be at least 1")
    options.systems = names
    try:
        found = [one for path in options.files for one in locomo.read(path)]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    # Without a question there is nothing to measure in a conversation.
    options.conversations = [one for one in found if one.questions][: options.limit_conversations]
    if not options.conversations:
        parser.error("no question in these files has evidence among the turns")
    return options


def versions(chosen: Sequence[Contestant]) -> dict[str, str]:
    """Make the environments that are needed; return the version of each system in them."""
    found = {}
    for contestant in chosen:
        system = contestant.system
        if system.name in found:
            continue
        if contestant.in_place:
            from importlib.metadata import version

            found[system.name] = version(system.distribution)
        else:
            found[system.name] = prepare(system)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the report, and return the exit code."""
    options = parse(arguments)
    conversations: list[locomo.Conversation] = options.conversations
    chosen = contestants(options.systems, options.variant, options.in_place)
    measured: dict[str, Any] = {
        "schema": 1,
        "measured_on": datetime.now(UTC).date().isoformat(),
        "versions": versions(chosen),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.system(),
        },
        "files": [path.name for path in options.files],
        "seed": SEED,
        "draws": options.draws,
        "conversations": [
            {
                "name": one.name,
                "turns": len(one.turns),
                "dropped": one.dropped,
                "questions": [
                    {"kind": question.kind, "evidence": list(question.evidence)}
                    for question in one.questions
                ],
            }
            for one in conversations
        ],
        "settings": {},
    }
    with tempfile.TemporaryDirectory(prefix="mnemotrace-quality-") as name:
        work = Path(name)
        environment = environment_of_workers(work)
        vectors = work / "vectors"
        if any(contestant.needs_vectors for contestant in chosen):
            vectors, peak = make_vectors(conversations, options.in_place, work, environment)
            measured["embedder_peak"] = peak
            say("vectors made")
        for timed in (False, True) if options.timed else (False,):
            setting = "timed" if timed else "untimed"
            say(setting)
            measured["settings"][setting] = [
                row
                for contestant in chosen
                for row in measure(contestant, conversations, timed, vectors, work, environment)
            ]
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1), encoding="utf-8")
    print(render(measured))
    return int(options.check and not all(verdict.met for verdict in verdicts(measured)))


if __name__ == "__main__":
    sys.exit(main())
