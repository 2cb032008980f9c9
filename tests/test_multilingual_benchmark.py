"""The multilingual benchmark: its set is sound, its figures are right, and it runs."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """The script's three modules, as `set`, `report` and `script`."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield SimpleNamespace(
            set=importlib.import_module("multilingual_set"),
            report=importlib.import_module("multilingual_report"),
            script=importlib.import_module("multilingual"),
        )
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def parts(bench: Any) -> dict[str, Any]:
    return {language: bench.set.read(language) for language in bench.set.LANGUAGES}


def test_nothing_is_wrong_with_the_set(bench: Any, parts: dict[str, Any]) -> None:
    assert bench.set.faults(list(parts.values())) == []


def test_the_set_is_as_large_as_it_has_to_be(parts: dict[str, Any]) -> None:
    least = {"ko": 60, "zh": 60, "ja": 40, "en": 0}
    facts = {language: len(part.facts) for language, part in parts.items()}
    assert all(facts[language] >= count for language, count in least.items())
    assert sum(facts.values()) >= 200
    assert sum(len(part.texts()) - len(part.facts) for part in parts.values()) >= 300
    assert all(len(part.unanswerable) >= 30 for part in parts.values())
    pairs = [
        {part.language, language}
        for part in parts.values()
        for fact in part.facts
        for language in fact.crossing
    ]
    assert sum(pair in ({"en", "ko"}, {"en", "zh"}, {"ko", "zh"}) for pair in pairs) >= 40


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"fragment": "likes green tea"}, "Not a piece of its fact: likes green tea"),
        ({"distractors": ["Tom drinks  BLACK coffee."]}, "is also in: Tom drinks  BLACK coffee."),
        ({"distractors": ["olivia drinks black coffee"]}, "Occurs 2 times as a text"),
        ({"question": "Olivia drinks black?"}, "Repeats its fact: Olivia drinks black?"),
        ({"question": ""}, "Lacks a part, a question or a near fact"),
        ({"distractors": []}, "Lacks a part, a question or a near fact"),
        ({"fragment": "coffee"}, "A fragment too short or too long: coffee"),
        ({"crossing": {"ko": "What does she drink?"}}, "Not a question in another language (ko)"),
        ({"crossing": {"en": "What does she like?"}}, "Not a question in another language (en)"),
        ({"crossing": {"ko": "What?", "ja": "what"}}, "Occurs 2 times as a query"),
        ({"distractors": ["차를 마셔요."]}, "Not in the script of en: 차를 마셔요."),
    ],
)
def test_every_kind_of_fault_in_a_set_is_told(
    bench: Any, changes: dict[str, Any], fault: str
) -> None:
    sound: dict[str, Any] = {
        "text": "Olivia drinks black coffee.",
        "language": "en",
        "fragment": "drinks black coffee",
        "question": "How does she take her morning cup?",
        "distractors": ["Tom prefers tea."],
    }
    assert bench.set.faults([bench.set.Part("en", [bench.set.Fact(**sound)])]) == []
    found = bench.set.faults([bench.set.Part("en", [bench.set.Fact(**{**sound, **changes})])])
    assert any(fault in line for line in found), found


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("near Nothing to be near to.\n", "en.txt:1"),
        ("# people\nfact A fact.\nparts A fact\n", "en.txt:3"),
        ("fact A fact.\npart fact\npart A\n", "en.txt:3"),
        ("fact A fact.\nasks\n", "en.txt:2"),
    ],
)
def test_a_line_that_is_not_understood_is_named(
    bench: Any, tmp_path: Path, text: str, where: str
) -> None:
    (tmp_path / "en.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=where):
        bench.set.read("en", tmp_path)


def row(bench: Any, rank: int, confidence: float, **fields: Any) -> Any:
    """A row of mnemotrace's, asked for a Korean fact by a paraphrase at depth deep."""
    values = {
        "store": "ko",
        "kind": "paraphrase",
        "system": "mnemotrace",
        "depth": "deep",
        "query": "어디에 살아?",
        "expected": "강릉에 산다.",
        "got": "제주에 산다.",
    }
    return bench.report.Row(rank=rank, confidence=confidence, **{**values, **fields})


def test_shares_and_reciprocal_ranks_count_what_was_not_found(bench: Any) -> None:
    rows = [row(bench, rank, 0.5) for rank in (1, 2, 0, 10)]
    assert bench.report.hits(rows, 1) == 0.25
    assert bench.report.hits(rows, 5) == 0.5
    assert bench.report.reciprocal(rows) == pytest.approx((1 + 1 / 2 + 0 + 1 / 10) / 4)


def test_auroc_is_the_odds_that_a_right_answer_is_the_surer_one(bench: Any) -> None:
    right = [row(bench, 1, 0.9), row(bench, 1, 0.4)]
    wrong = [row(bench, 2, 0.4), row(bench, 0, 0.1, expected=None, kind="none")]
    assert bench.report.auroc(right + wrong) == pytest.approx((1 + 1 + 0.5 + 1) / 4)
    assert bench.report.auroc(right) is None
    assert bench.report.auroc(wrong) is None


def test_required_values_are_judged_and_failures_are_listed(bench: Any) -> None:
    rows = [row(bench, 1, 0.9) for _ in range(4)] + [row(bench, 0, 0.2)]
    rows += [row(bench, 1, 0.9, kind="fragment")]
    rows += [row(bench, 0, 0.95, system="vector")]
    judged = [(v.what, v.measured, v.met) for v in bench.report.verdicts(rows)]
    assert judged == [
        ("Korean fragments, deep, hit@1", "1.000", True),
        ("Korean paraphrases, deep, hit@1", "0.800", False),
        ("confidence AUROC, deep, every language's own store", "1.000", True),
    ]
    setting = {
        "versions": {"mnemotrace": "1"},
        "embedder": "e",
        "machine": "m",
        "texts": {"ko": 5},
    }
    text = bench.report.render(rows, setting, failures=True)
    assert "| Korean | paraphrase | 5 | 0.80 / 0.80 / 0.80 |" in text
    assert (
        "rank beyond ten: 어디에 살아?\n  - expected: 강릉에 산다.\n  - got: 제주에 산다." in text
    )


def test_the_lexical_ranking_prefers_rare_terms(bench: Any) -> None:
    texts = ["서연이는 커피를 마셔.", "도윤이는 커피를 마셔.", "예린이는 홍차를 마셔."]
    asked = [bench.script.Query("paraphrase", "홍차를 마셔", None)]
    asked += [bench.script.Query("none", "zzz", None)]
    answers = bench.script.ask_lexical(texts, asked)["deep"]
    assert answers[0].texts[0] == "예린이는 홍차를 마셔."
    assert answers[1].texts == []


@pytest.mark.slow
def test_ten_facts_in_two_languages_are_measured(
    bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    arguments = ["--facts", "5", "--languages", "ko,en", "--systems", "mnemotrace,vector,lexical"]
    assert bench.script.main([*arguments, "--json", str(out)]) == 0
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    answerable = [row for row in rows if row["expected"]]
    asked = {(row["store"], row["kind"], row["query"]) for row in rows}
    assert len(rows) == len(asked) * 3 * 2
    assert {store for store, _, _ in asked} == {"ko", "en", "all"}
    assert all(row["rank"] == 0 for row in rows if not row["expected"])
    assert all((row["rank"] == 1) == (row["got"] == row["expected"]) for row in answerable)
    fragments = [row for row in answerable if row["kind"] == "fragment"]
    assert len(fragments) == 10 * 3 * 2
    assert all(row["rank"] == 1 for row in fragments if row["system"] != "vector")
    report = capsys.readouterr().out
    assert "| Korean " in report
    assert "| all in one store | en>ko " in report


PEER = """
from workload import DIMENSION, embed

class Peer:
    def __init__(self, folder):
        self.texts = []

    def load(self, items):
        self.texts += [item.content for item in items]

    def count(self):
        return len(self.texts)

    def shallow(self, query):
        [asked] = embed([query])
        assert len(asked) == DIMENSION
        near = lambda text: sum(a * b for a, b in zip(embed([text])[0], asked))
        return sorted(self.texts, key=near, reverse=True)

    def llm_calls(self):
        return 0

    def close(self):
        pass

open_peer = Peer
"""


@pytest.mark.slow
def test_a_peer_answers_with_the_vectors_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "own_peer.py").write_text(PEER, encoding="utf-8")
    texts, queries = ["the kiln is on", "the glaze is blue"], ["which colour?"]
    job = {"texts": texts, "queries": queries, "depths": ["shallow"]}
    (tmp_path / "job.json").write_text(json.dumps(job), encoding="utf-8")
    np.save(tmp_path / "vectors.npy", np.array([[1.0, 0.0, 0.0], [0.1, 1.0, 0.0], [0.0, 1.0, 0.1]]))
    script = BENCHMARKS / "peers" / "answers.py"
    done = subprocess.run(
        [sys.executable, str(script), "own_peer", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    answers = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    assert answers == {"shallow": [["the glaze is blue", "the kiln is on"]], "llm_calls": 0}
