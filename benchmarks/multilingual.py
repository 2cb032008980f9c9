"""Korean, Chinese, Japanese and English facts among near ones: is the right one found first?

All facts of a language go into one store, those of all languages into one more. Asked are exact
fragments, paraphrases, questions in another language, and questions that no fact answers. See
docs/multilingual.md.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from multilingual_report import MIXED, Row, render, verdicts
from multilingual_set import LANGUAGES, Part, faults, read
from speed import HERE, SYSTEMS, environment_of_workers, prepare, say

from mnemotrace import Memory
from mnemotrace.embedders.lexical import encode_document, encode_query
from mnemotrace.embedders.resolve import resolve_embedder

Depth = Literal["shallow", "deep"]
DEPTHS: tuple[Depth, ...] = ("shallow", "deep")
LIMIT = 10
SEED = 1
OURS: dict[str, dict[str, Any]] = {"mnemotrace": {}, "vector": {"lexical_weight": 0.0}}
PEERS = ("crewai", "remembrane")
RANKERS = (*OURS, "lexical", *PEERS)


@dataclass(frozen=True)
class Query:
    """One question: how it is asked, of which kind it is, and the one fact that answers it.

    Attributes:
        kind: ``fragment``, ``paraphrase``, a pair such as ``en>ko``, or ``none``.
        text: what is asked.
        fact: the text that should come first; None for a question that nothing answers.
    """

    kind: str
    text: str
    fact: str | None


@dataclass(frozen=True)
class Answer:
    """What a system gave for one query.

    Attributes:
        texts: the best texts, at most `LIMIT`, best first.
        confidence: of the whole answer, 0..1; None from systems that have none.
    """

    texts: list[str]
    confidence: float | None = None

    def rank_of(self, fact: str | None) -> int:
        """Return 1 for the first place, 0 when the fact is not there."""
        return self.texts.index(fact) + 1 if fact in self.texts else 0


Answers = Mapping[Depth, list[Answer]]
"""The answers to every query in order, by depth."""


def queries_of(part: Part) -> list[Query]:
    """Return what is asked of a store with this part in it."""
    asked = [Query("fragment", fact.fragment, fact.text) for fact in part.facts]
    asked += [Query("paraphrase", fact.question, fact.text) for fact in part.facts]
    asked += crossing(part)
    return asked + [Query("none", text, None) for text in part.unanswerable]


def crossing(part: Part) -> list[Query]:
    """Return the questions in other languages."""
    return [
        Query(f"{language}>{part.language}", question, fact.text)
        for fact in part.facts
        for language, question in fact.crossing.items()
    ]


def stores(parts: list[Part], mixed: bool) -> dict[str, tuple[list[str], list[Query]]]:
    """Return the texts and queries of each store, the texts in a shuffled, fixed order."""
    found = {part.language: (part.texts(), queries_of(part)) for part in parts}
    if mixed:
        texts = [text for part in parts for text in part.texts()]
        asked = [query for part in parts for query in crossing(part)]
        asked += [Query("none", text, None) for part in parts for text in part.unanswerable]
        found[MIXED] = (texts, asked)
    for name, (texts, _) in found.items():
        random.Random(f"{SEED}:{name}").shuffle(texts)
    return found


def embedder_named(name: str) -> Any:
    """Return what `Memory` takes as its embedder.

    Args:
        name: of an embedder that mnemotrace knows, or ``module:attribute`` for one's own: a
            function, an object with ``embed``, or a class of such, which is called without
            arguments.
    """
    module, _, attribute = name.partition(":")
    if not attribute:
        return name
    found = getattr(importlib.import_module(module), attribute)
    return found() if isinstance(found, type) else found


def vectors_of(spec: Any, texts: list[str], queries: list[str]) -> np.ndarray[Any, Any]:
    """Embed texts as documents and queries as queries, in one array of rows."""

    async def embed() -> np.ndarray[Any, Any]:
        service = resolve_embedder(spec)
        rows = [await service.embed_documents(texts), await service.embed_queries(queries)]
        return np.vstack(rows)

    return asyncio.run(embed())


def ask_mnemotrace(
    texts: list[str], queries: list[Query], systems: Iterable[str], spec: Any, work: Path
) -> dict[str, Answers]:
    """Store the texts once with default settings, and recall with each system's settings."""
    folder = work / "mnemotrace"
    with Memory(storage=folder, embedder=spec, llm=None) as memory:
        memory.remember_many(texts).wait()
        if (count := memory.info("/").record_count) != len(texts):
            raise RuntimeError(f"{count} records stored after remembering {len(texts)}")
    found: dict[str, Answers] = {}
    for system in systems:
        with Memory(storage=folder, embedder=spec, llm=None, **OURS[system]) as memory:
            found[system] = {
                depth: [_recall(memory, query.text, depth) for query in queries] for depth in DEPTHS
            }
    return found


def _recall(memory: Memory, query: str, depth: Depth) -> Answer:
    recall = memory.recall(query, limit=LIMIT, depth=depth)
    return Answer([match.record.content for match in recall], recall.confidence)


def ask_lexical(texts: list[str], queries: list[Query]) -> Answers:
    """Rank by mnemotrace's own terms alone: BM25 with the IDF that Qdrant's modifier applies.

    Computed here, so that it stays a lexical ranking however the two scores are fused.
    """
    documents = []
    for text in texts:
        vector = encode_document(text)
        documents.append(dict(zip(vector.indices, vector.values, strict=True)))
    holding = Counter(index for document in documents for index in document)

    def idf(index: int) -> float:
        held = holding[index]
        return math.log((len(texts) - held + 0.5) / (held + 0.5) + 1.0)

    def answer(query: str) -> Answer:
        terms = encode_query(query).indices
        scores = [sum(d.get(term, 0.0) * idf(term) for term in terms) for d in documents]
        order = sorted((-score, at) for at, score in enumerate(scores) if score > 0)
        return Answer([texts[at] for _, at in order[:LIMIT]])

    answers = [answer(query.text) for query in queries]
    return {depth: answers for depth in DEPTHS}


def ask_peer(name: str, texts: list[str], queries: list[Query], spec: Any, work: Path) -> Answers:
    """Let a peer store and recall in its own environment, on the same vectors.

    Raises:
        SystemExit: when the peer failed; the end of what it wrote is in the message.
    """
    folder = work / name
    folder.mkdir()
    asked = [query.text for query in queries]
    job = {"texts": texts, "queries": asked, "depths": DEPTHS}
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    np.save(folder / "vectors.npy", vectors_of(spec, texts, asked))
    command = [str(SYSTEMS[name].python), str(HERE / "peers" / "answers.py"), f"{name}_peer"]
    done = subprocess.run(
        [*command, str(folder)],
        env=environment_of_workers(work),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        log = done.stderr.decode(errors="replace")
        raise SystemExit(f"{name} ended with {done.returncode}:\n{log[-3000:]}")
    answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    if answers["llm_calls"]:
        say(f"{name} asked the absent LLM {answers['llm_calls']} times")
    return {depth: [Answer(found[:LIMIT]) for found in answers[depth]] for depth in DEPTHS}


def measure(parts: list[Part], systems: Sequence[str], spec: Any, mixed: bool) -> list[Row]:
    """Ask every system every query; one row for each query, system and depth."""
    rows: list[Row] = []
    for name, (texts, queries) in stores(parts, mixed).items():
        say(f"{name}: {len(texts)} texts, {len(queries)} queries")
        with tempfile.TemporaryDirectory(prefix="mnemotrace-multilingual-") as folder:
            work = Path(folder)
            ours = [system for system in systems if system in OURS]
            found = ask_mnemotrace(texts, queries, ours, spec, work) if ours else {}
            if "lexical" in systems:
                found["lexical"] = ask_lexical(texts, queries)
            for peer in PEERS:
                if peer in systems:
                    found[peer] = ask_peer(peer, texts, queries, spec, work)
        rows += [
            Row(
                store=name,
                kind=query.kind,
                system=system,
                depth=depth,
                query=query.text,
                expected=query.fact,
                rank=answer.rank_of(query.fact),
                confidence=answer.confidence,
                got=answer.texts[0] if answer.texts else None,
            )
            for system, answers in found.items()
            for depth in DEPTHS
            for query, answer in zip(queries, answers[depth], strict=True)
        ]
    return rows


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--languages",
        default=",".join(LANGUAGES),
        help="with commas between (default: %(default)s)",
    )
    parser.add_argument(
        "--systems", default=",".join(RANKERS), help="with commas between (default: %(default)s)"
    )
    parser.add_argument(
        "--embedder",
        default="bundled",
        help="a name that Memory takes, or MODULE:NAME of your own (default: %(default)s)",
    )
    parser.add_argument("--facts", type=int, help="only the first so many facts of each language")
    parser.add_argument("--json", type=Path, help="write every query with its rank to this file")
    parser.add_argument(
        "--failures", action="store_true", help="list what mnemotrace did not find first"
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 when a requirement is not met"
    )
    options = parser.parse_args(arguments)
    for name, known in (("languages", LANGUAGES), ("systems", RANKERS)):
        given = getattr(options, name).split(",")
        if unknown := [value for value in given if value not in known]:
            parser.error(f"--{name}: unknown {unknown[0]!r}; known are {', '.join(known)}")
        setattr(options, name, given)
    if options.facts is not None and options.facts < 1:
        parser.error("--facts must be at least 1")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the report, and return the exit code."""
    options = parse(arguments)
    parts = [read(language) for language in options.languages]
    if wrong := faults(parts):
        raise SystemExit("The set is not sound:\n" + "\n".join(wrong))
    if options.facts:
        parts = [part.first(options.facts) for part in parts]
    versions = {"mnemotrace": version("mnemotrace")}
    versions |= {peer: prepare(SYSTEMS[peer]) for peer in PEERS if peer in options.systems}
    spec = embedder_named(options.embedder)
    rows = measure(parts, options.systems, spec, mixed=len(parts) > 1)
    setting = {
        "versions": versions,
        "embedder": resolve_embedder(spec).name,
        "machine": f"Python {platform.python_version()}, {platform.system()}, "
        f"{os.cpu_count()} cores",
        "texts": {part.language: len(part.texts()) for part in parts},
    }
    if options.json:
        document = {"schema": 1, **setting, "rows": [asdict(row) for row in rows]}
        options.json.write_text(
            json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8"
        )
    print(render(rows, setting, failures=options.failures))
    judged = verdicts(rows)
    return int(options.check and not all(verdict.met for verdict in judged))


if __name__ == "__main__":
    sys.exit(main())
