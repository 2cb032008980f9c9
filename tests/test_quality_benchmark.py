"""The quality benchmark: its measures on cases computed by hand, and one small run of it."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a module of the benchmark as its scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module(name)


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("quality_metrics", monkeypatch)


@pytest.fixture
def locomo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("locomo", monkeypatch)


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("quality_report", monkeypatch)


def conversation(name: str, facts: list[str], qa: list[dict[str, Any]]) -> dict[str, Any]:
    """A conversation of two sessions: small talk, then the facts, one speaker after the other."""
    talk = [
        "Good morning, how was your week?",
        "Quiet, thanks, I slept a lot.",
        "The weather could not be worse.",
        "Let us hope for some sun on Sunday.",
        "I am on the train, so I may lose you.",
        "No hurry, call me back any time.",
    ]
    said = [talk, facts]
    sessions: dict[str, Any] = {}
    for number, lines in enumerate(said, 1):
        sessions[f"session_{number}_date_time"] = f"{number}:05 pm on {number} May, 2024"
        sessions[f"session_{number}"] = [
            {
                "speaker": ("Ida", "Noor")[place % 2],
                "dia_id": f"D{number}:{place + 1}",
                "text": line,
            }
            for place, line in enumerate(lines)
        ]
    return {
        "sample_id": name,
        "conversation": {"speaker_a": "Ida", "speaker_b": "Noor", **sessions},
        "qa": qa,
    }


def two_conversations() -> list[dict[str, Any]]:
    """Two conversations with evidence of every shape that LoCoMo has."""
    boats = conversation(
        "boats",
        [
            "I bought a wooden canoe from a carpenter in Turku.",
            "My cousin Pelle collects accordions.",
            "The canoe leaks, so it went back to the carpenter.",
        ],
        [
            {"question": "Who collects accordions?", "evidence": ["D2:2"], "category": 4},
            {"question": "What happened to the canoe?", "evidence": ["D2:1; D2:3"], "category": 1},
            {"question": "Where is Turku?", "evidence": ["D2:1", "D9:9"], "category": 3},
            {"question": "Which year was it?", "evidence": ["D:2:1", "D"], "category": 2},
            {"question": "Who owns the submarine?", "evidence": ["D2:1"], "category": 5},
        ],
    )
    bees = conversation(
        "bees",
        ["My beehive swarmed twice in April.", "I planted lavender beside the pond."],
        [
            {"question": "When did the beehive swarm?", "evidence": ["D02:1"], "category": 2},
            {"question": "Where is the lavender?", "evidence": ["D2:2", "D2:2"], "category": 4},
        ],
    )
    bees["conversation"]["session_2"][1]["blip_caption"] = "a photo of a purple hedge"
    return [boats, bees]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(two_conversations()), encoding="utf-8")
    return path


RANKED = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("evidence", "k", "recall", "reciprocal", "ndcg"),
    [
        pytest.param(["a"], 2, 1.0, 1.0, 1.0, id="perfect"),
        pytest.param(["a", "b"], 2, 1.0, 1.0, 1.0, id="perfect-with-two"),
        pytest.param(["d"], 4, 1.0, 0.25, 1 / math.log2(5), id="last"),
        pytest.param(["c", "d"], 2, 0.0, 1 / 3, 0.0, id="reversed-and-cut"),
        pytest.param(
            ["c", "d"],
            4,
            1.0,
            1 / 3,
            (1 / 2 + 1 / math.log2(5)) / (1 + 1 / math.log2(3)),
            id="reversed",
        ),
        pytest.param(
            ["a", "c", "x"],
            4,
            2 / 3,
            1.0,
            (1 + 1 / 2) / (1 + 1 / math.log2(3) + 1 / 2),
            id="one-of-three-missing",
        ),
        pytest.param(["a", "b", "c"], 2, 2 / 3, 1.0, 1.0, id="more-than-fit"),
        pytest.param(["x"], 4, 0.0, 0.0, 0.0, id="missing"),
    ],
)
def test_a_ranking_is_measured_as_computed_by_hand(
    metrics: ModuleType, evidence: list[str], k: int, recall: float, reciprocal: float, ndcg: float
) -> None:
    assert metrics.recall_at(RANKED, evidence, k) == pytest.approx(recall)
    assert metrics.reciprocal_rank(RANKED, evidence) == pytest.approx(reciprocal)
    assert metrics.ndcg_at(RANKED, evidence, k) == pytest.approx(ndcg)


def test_an_empty_ranking_is_worth_nothing(metrics: ModuleType) -> None:
    assert metrics.recall_at([], ["a"], 10) == 0
    assert metrics.reciprocal_rank([], ["a"]) == 0
    assert metrics.ndcg_at([], ["a"], 10) == 0


@pytest.mark.parametrize(
    ("scores", "right", "expected"),
    [
        pytest.param([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 1.0, id="perfect"),
        pytest.param([0.1, 0.2, 0.8, 0.9], [1, 1, 0, 0], 0.0, id="reversed"),
        pytest.param([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 0.75, id="one-pair-of-four-wrong"),
        pytest.param([0.5, 0.5, 0.5], [0, 1, 1], 0.5, id="all-tied"),
        pytest.param([0.3, 0.5, 0.5, 0.2], [0, 0, 1, 1], 0.375, id="one-tie"),
        pytest.param([0.5, 0.6], [1, 1], None, id="nothing-to-tell-apart"),
    ],
)
def test_auroc_counts_pairs_in_the_right_order(
    metrics: ModuleType, scores: list[float], right: list[int], expected: float | None
) -> None:
    assert metrics.auroc(scores, [bool(case) for case in right]) == expected


def test_resampling_draws_conversations_and_then_their_questions(metrics: ModuleType) -> None:
    samples = metrics.resamples([3, 0, 2], draws=400, seed=5)
    assert samples == metrics.resamples([3, 0, 2], draws=400, seed=5)
    counts = {
        (sum(question < 3 for question in s), sum(question >= 3 for question in s)) for s in samples
    }
    # Three draws among conversations of 3, 0 and 2 questions, whole conversations at a time.
    assert counts == {(3 * a, 2 * b) for a in range(4) for b in range(4) if a + b <= 3}
    assert {question for s in samples for question in s} == {0, 1, 2, 3, 4}


def test_the_interval_is_as_wide_as_conversations_differ(metrics: ModuleType) -> None:
    samples = metrics.resamples([50, 50], draws=500, seed=1)
    assert metrics.interval([0.25] * 100, samples) == (0.25, 0.25)
    # Questions drawn alone would put this mean of 0.5 between 0.4 and 0.6.
    assert metrics.interval([0.0] * 50 + [1.0] * 50, samples) == (0.0, 1.0)


def test_the_interval_cuts_off_equal_shares(metrics: ModuleType) -> None:
    each_alone = [[number] for number in range(101)]
    assert metrics.interval(list(range(101)), each_alone, share=0.9) == (5, 95)
    with pytest.raises(ValueError, match="nothing to resample"):
        metrics.interval([], [[]])


def test_turns_carry_date_speaker_and_caption(locomo: ModuleType, data: Path) -> None:
    boats, bees = locomo.read(data)
    assert [turn.id for turn in bees.turns] == [*(f"D1:{n}" for n in range(1, 7)), "D2:1", "D2:2"]
    assert bees.turns[-1].text == (
        "[2:05 pm on 2 May, 2024] Noor: I planted lavender beside the pond. "
        "[shares a photo of a purple hedge]"
    )
    assert bees.turns[-1].time == "2024-05-02T14:05:00+00:00"
    assert bees.turns[-1].session == "D2"
    assert boats.day_after == "2024-05-03T14:05:00+00:00"


def test_evidence_is_what_exists_in_whatever_form_it_is_written(
    locomo: ModuleType, data: Path
) -> None:
    boats, bees = locomo.read(data)
    assert [(question.kind, question.evidence) for question in boats.questions] == [
        ("single hop", ("D2:2",)),
        ("multi-hop", ("D2:1", "D2:3")),
        ("open domain", ("D2:1",)),
    ]
    assert boats.dropped == 1
    assert [question.evidence for question in bees.questions] == [("D2:1",), ("D2:2",)]


def test_what_is_said_twice_in_a_session_is_one_turn(locomo: ModuleType, tmp_path: Path) -> None:
    content = two_conversations()[1:]
    session = content[0]["conversation"]["session_1"]
    session.append({**session[1], "dia_id": "D1:7"})
    content[0]["qa"] = [{"question": "Did you sleep?", "evidence": ["D1:7"], "category": 4}]
    path = tmp_path / "twice.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    (found,) = locomo.read(path)
    assert len(found.turns) == 8
    assert found.questions[0].evidence == ("D1:2",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("{}", "expected a list"),
        ("[]", "expected a list"),
        ('[{"qa": []}]', "conversation 0 .* KeyError: 'conversation'"),
        ('[{"conversation": {}, "qa": []}]', "there are no turns"),
    ],
)
def test_a_file_in_another_format_is_named(
    locomo: ModuleType, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"other.json.*{message}"):
        locomo.read(path)


def answer(*ids: str, confidence: float | None = None, ms: float = 1.0) -> dict[str, Any]:
    return {"ids": list(ids), "confidence": confidence, "ms": ms}


def row(system: str, mode: str, answers: list[list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "system": system,
        "mode": mode,
        "title": f"{system}, {mode}",
        "peak": 3 << 20,
        "remarks": ["as it is"],
        "cannot_set_time": "no clock" if system == "remembrane" else "",
        "answers": answers,
    }


def measured() -> dict[str, Any]:
    """Three questions in two conversations; ours finds 1, 1/2 and 0 of the evidence, theirs 0."""
    questions = [
        [
            {"kind": "temporal", "evidence": ["a"]},
            {"kind": "multi-hop", "evidence": ["b", "c"]},
        ],
        [{"kind": "temporal", "evidence": ["d"]}],
    ]
    ours = [
        [answer("a", confidence=0.9, ms=2.0), answer("x", "b", confidence=0.5, ms=4.0)],
        [answer(*"abcefghijk", "d", confidence=0.6, ms=9.0)],
    ]
    theirs = [[answer("x"), answer("x")], [answer()]]
    rows = [row("mnemotrace", "deep", ours), row("remembrane", "only", theirs)]
    return {
        "measured_on": "2024-05-03",
        "versions": {"mnemotrace": "1"},
        "machine": {"cores": 2, "python": "3.11", "system": "Linux"},
        "files": ["talks.json"],
        "seed": 1,
        "draws": 50,
        "conversations": [
            {"name": str(number), "turns": 11, "dropped": number, "questions": asked}
            for number, asked in enumerate(questions)
        ],
        "settings": {"untimed": rows, "timed": rows},
    }


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_the_report_holds_means_over_questions_and_kinds(report: ModuleType) -> None:
    text = report.render(measured())
    assert "2 conversations, 22 turns, 3 questions (1 without" in text
    lines = cells(text)
    # MRR: (1 + 1/2 + 1/11) / 3; nDCG: (1 + (1/log2 3)/(1 + 1/log2 3) + 0) / 3.
    # Confidence .9 and .5 with some evidence, .6 without: one of two pairs right; .9 alone has
    # all of it.
    assert [
        *["mnemotrace, deep", ".500", ".500", ".833", ".530", ".462", ".500", "1.000"],
        *["4.0", "3 MiB", "ours"],
    ] in lines
    assert ["mnemotrace, deep", ".500", ".500", "1.000", ".545", ".500", "1.000", "1.000"] in lines
    assert ["mnemotrace, deep", ".500", ".500", ".500", ".500", ".387", "-", "-"] in lines
    assert "### temporal, 2 questions" in text
    assert "open domain" not in text


def test_the_report_shows_the_difference_to_ours_with_its_interval(report: ModuleType) -> None:
    canned = measured()
    canned["settings"]["untimed"][0]["answers"][0][1]["ids"] = ["c", "b"]
    # Ours finds all in the first conversation, theirs nothing; in the second neither does. A
    # quarter of the samples draws the first twice, another the second.
    assert [
        *["remembrane, only", ".000", ".000", ".000", ".000", ".000", "-", "-"],
        *["1.0", "3 MiB", "-.667 [-1.000, +.000]"],
    ] in cells(report.render(canned))


def test_a_peer_without_times_is_marked_in_the_timed_part_only(report: ModuleType) -> None:
    untimed, timed = report.render(measured()).split("## Turns created on their session's date")
    note = "- remembrane is measured without times: no clock."
    assert note not in untimed
    assert note in timed
    assert "(no times)" not in untimed
    assert timed.count("| remembrane, only (no times) |") == 3  # overall, temporal, multi-hop


def test_requirements_are_judged_by_the_untimed_rows(report: ModuleType) -> None:
    found = [(v.what, v.measured, v.met) for v in report.verdicts(measured())]
    assert found == [
        ("mnemotrace, recall@10", "0.500", False),
        ("recall@10 over remembrane, only", "0.500", True),
        ("mnemotrace, AUROC of confidence", "0.500", False),
    ]
    without = measured()
    del without["settings"]["untimed"][0]
    assert report.verdicts(without) == []
    assert "Nothing to judge" in report.render(without)


def test_shared_vectors_give_back_what_was_embedded_and_what_it_took(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = load("shared_vectors", monkeypatch)
    asked: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return [[float(len(text)), 1.0] for text in texts]

    shared.save(tmp_path, ["one", "three", "one"], ["seven?"], embed)
    assert asked == [["one", "three"], ["seven?"], ["seven?"]]  # the first question warms up
    vectors = shared.SharedVectors(str(tmp_path))
    assert vectors.dimension == 2
    assert vectors.lists(["three", "one"]) == [[5.0, 1.0], [3.0, 1.0]]
    assert vectors.spent_ms == 0
    assert vectors.lists(["seven?"]) == [[6.0, 1.0]]
    assert vectors.spent_ms > 0
    with pytest.raises(LookupError, match="'nine'"):
        vectors.array(["nine"])


def test_bm25_is_the_textbook_formula_over_stems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    baselines = load("quality_baselines", monkeypatch)
    worker = load("quality_worker", monkeypatch)
    setup = worker.Setup(tmp_path, worker.SharedVectors(""), {"baseline": "bm25"}, 1)
    bm25 = baselines.open_peer(setup)
    texts = ["The cats slept.", "A dog barks and barks at cats", "nothing of it"]
    turns = [worker.Turn(f"D1:{n}", "D1", text, "") for n, text in enumerate(texts)]
    assert bm25.load(turns, "", False) == 3
    # Stems: (cat, slept), (dog, bark, bark, cat), (noth): mean length 7/3.
    cat, bark = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    first = cat * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / (7 / 3)))
    damping = 1.2 * (0.25 + 0.75 * 4 / (7 / 3))
    second = cat * 2.2 / (1 + damping) + bark * 2 * 2.2 / (2 + damping)
    assert bm25.scores("Which cat is barking?") == pytest.approx([first, second, 0.0])
    assert bm25.recall("only", "Which cat is barking?", 10) == ([texts[1], texts[0]], None)


def test_chance_is_the_same_each_time_and_depends_on_the_question(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    baselines = load("quality_baselines", monkeypatch)
    worker = load("quality_worker", monkeypatch)
    setup = worker.Setup(tmp_path, worker.SharedVectors(""), {"baseline": "chance"}, 1)
    found = []
    for question in ("one?", "one?", "two?"):
        chance = baselines.open_peer(setup)
        chance.load([worker.Turn(f"D1:{n}", "D1", str(n), "") for n in range(30)], "", False)
        texts, confidence = chance.recall("only", question, 20)
        assert len(set(texts)) == 20
        assert confidence is None
        found.append(texts)
    assert found[0] == found[1] != found[2]


def run(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "quality.py"), str(data), "--in-place"]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, encoding="utf-8", check=False
    )


@pytest.mark.slow
def test_a_run_finds_the_evidence_and_repeats_itself(data: Path, tmp_path: Path) -> None:
    results = []
    for name, settings in (
        ("first.json", ["--variant", "words:lexical_weight=1,depth=shallow"]),
        ("second.json", ["--timed"]),
    ):
        kept = tmp_path / name
        systems = ["--systems", "mnemotrace,chance", "--draws", "20"]
        done = run(data, *systems, *settings, "--json", str(kept))
        assert done.returncode == 0, done.stderr
        assert ("variant words, shallow" in done.stdout) == ("--variant" in settings)
        assert ("## Turns created on their" in done.stdout) == ("--timed" in settings)
        results.append(json.loads(kept.read_text(encoding="utf-8")))
    for result in results:
        for setting in result["settings"].values():
            for measured_row in setting:
                assert measured_row.pop("peak") > 10 << 20
                for each in (each for one in measured_row["answers"] for each in one):
                    assert each.pop("ms") > 0
    assert results[0]["conversations"] == results[1]["conversations"]
    assert results[0]["settings"]["untimed"][:3] == results[1]["settings"]["untimed"]

    rows = {(r["system"], r["mode"]): r for r in results[0]["settings"]["untimed"]}
    assert list(rows) == [
        ("mnemotrace", "deep"),
        ("mnemotrace", "shallow"),
        ("chance", "only"),
        ("variant-words", "shallow"),
    ]
    for measured_row in rows.values():
        assert measured_row["stored"] == 9 + 8
        assert [len(one) for one in measured_row["answers"]] == [3, 2]
    for mode in ("deep", "shallow"):
        boats, bees = rows["mnemotrace", mode]["answers"]
        assert boats[0]["ids"][0] == "D2:2"
        assert set(boats[1]["ids"][:2]) == {"D2:1", "D2:3"}
        assert [each["ids"][0] for each in bees] == ["D2:1", "D2:2"]
        assert all(0 <= each["confidence"] <= 1 for each in boats + bees)
    assert "canoe" not in json.dumps(results[0])  # only ids: the data may not be passed on


@pytest.mark.slow
def test_a_mistake_on_the_command_line_is_explained(data: Path) -> None:
    for arguments, message in (
        (["--systems", "mnemotrac"], "unknown system 'mnemotrac'"),
        (["--variant", "nonsense"], "not of the form name:keyword=value"),
        (["--variant", "a:x=1", "--variant", "a:x=2"], "the same name"),
        (["--systems", ""], "no system to measure"),
        (["--limit-conversations", "0"], "must be at least 1"),
        ([str(data.with_name("absent.json"))], "absent.json"),
    ):
        done = run(data, *arguments)
        assert done.returncode == 2
        assert message in done.stderr
    done = run(data, "--systems", "", "--variant", "odd:lexical_wait=1")
    assert done.returncode == 1
    assert "Did you mean 'lexical_weight'?" in done.stderr


@pytest.mark.slow
def test_the_ablations_rank_as_the_library_and_differ_where_they_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ablations = load("ablations", monkeypatch)
    path = tmp_path / "two.json"
    path.write_text(json.dumps(two_conversations()), encoding="utf-8")
    monkeypatch.setattr(ablations, "paraphrases", list)
    talks = ablations.conversations(path)
    monkeypatch.setattr(ablations, "conversations", lambda file: talks)

    assert ablations.main([str(path)]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == len(ablations.rankers()) + 4  # learned weights: two fits, two checks
    assert all(0.0 <= float(row.split("|")[2]) <= 1.0 for row in rows)

    one = talks[0]
    from mnemotrace import Memory

    with Memory(storage=":memory:", embedder="bundled", llm=None, recency_weight=0.0) as memory:
        for session, turns in ablations.groupby(
            ablations.locomo.read(path)[0].turns, lambda turn: turn.session
        ):
            memory.remember_many([turn.text for turn in turns], session=session).wait()
        for number, question in enumerate(one.questions):
            found = [match.record.content for match in memory.recall(question, limit=4)]
            ranked = ablations.np.argsort(-ablations.rule(one)[number], kind="stable")[:4]
            assert found == [one.texts[row] for row in ranked]
    assert (one.elsewhere != one.lexical).any()
    assert (ablations.diverse(1.0)(one).argmax(axis=1) == ablations.rule(one).argmax(axis=1)).all()
