"""The echo guard: recalled memories pasted into a text are not extracted as new ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mnemotrace import Memory, Recall
from mnemotrace.errors import LLMError
from mnemotrace.events import MemoryAnalysisFailedEvent
from mnemotrace.flows.echo import (
    Marked,
    Remembered,
    Returned,
    quoted_parts,
    returned_parts,
    settled,
)
from mnemotrace.records import MemoryRecord
from mnemotrace.testing import FakeEmbedder, RecordingListener, ScriptedLLM

from .dialogues import greedy, known_of, text_of

OpenMemory = Callable[..., Memory]
PORT = "The staging environment listens on port 8080."
TEA = "앨리스는 아침마다 녹차를 마십니다."
OLD = "Bob works at the Acme Corporation"
FIELDS: dict[str, Any] = {"categories": ["c"], "importance": 0.5}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Memory]]:
    """One store for the whole module: making one takes half a second."""
    folder = tmp_path_factory.mktemp("echo")
    with Memory(llm=None, storage=folder, embedder=FakeEmbedder()) as holder:
        holder.remember("the first text makes the store")
        yield folder, holder


@pytest.fixture
def open_memory(shared: tuple[Path, Memory]) -> Iterator[OpenMemory]:
    folder, holder = shared
    holder.forget(scope="/", include_private=True)
    opened: list[Memory] = []

    def build(extraction: Any = greedy, embedder: Any = None, **settings: Any) -> Memory:
        llm = ScriptedLLM({"extraction": extraction})
        settings = {"consolidation_threshold": 1.0, "exploration_budget": 0, **settings}
        embedder = embedder or FakeEmbedder()
        opened.append(Memory(llm=llm, storage=folder, embedder=embedder, **settings))
        return opened[-1]

    yield build
    for memory in opened:
        memory.close()


def asked(memory: Memory) -> list[Any]:
    llm = memory._core.services.llm.llm
    assert isinstance(llm, ScriptedLLM)
    return llm.asked("extraction")


# -- probe 59: what is an echo ---------------------------------------------------------------------

PASTED: dict[str, Callable[[Recall], str]] = {
    "Recall.format": lambda found: found.format(),
    "MemoryMatch.format": lambda found: "\n".join(match.format() for match in found),
    "as the seeds print it": lambda found: "\n".join(f"- {m.record.content}" for m in found),
    "as the seeds print scores": lambda found: "\n".join(
        f"[{m.score:.2f}] {m.record.content}" for m in found
    ),
    "numbered": lambda found: "\n".join(f"{i}. {m.record.content}" for i, m in enumerate(found)),
    "cited": lambda found: "\n".join(f"> {m.record.content}" for m in found),
    "in quotation marks": lambda found: "\n".join(
        f'Assistant: You told me "{m.record.content}" before.' for m in found
    ),
    "in tags": lambda found: "\n".join(f"<memory>{m.record.content}</memory>" for m in found),
    "as plain lines": lambda found: "\n".join(m.record.content for m in found),
    "in a sentence of their own": lambda found: " ".join(
        f"Assistant: I remember well. {m.record.content} What else?" for m in found
    ),
    "wrapped": lambda found: "\n".join(
        "- " + m.record.content.replace(" ", "\n  ", 3).replace("\n  ", " ", 2) for m in found
    ),
}
NOT_WITHOUT_RECALL = {"as plain lines", "in a sentence of their own", "wrapped"}


@pytest.mark.parametrize("again", [False, True], ids=["same memory", "opened again"])
@pytest.mark.parametrize("form", PASTED)
def test_pasted_memories_are_not_extracted_again(
    open_memory: OpenMemory, form: str, again: bool
) -> None:
    """Probe 59: in whatever form they are pasted; quoted forms also by another Memory object."""
    memory = open_memory()
    for text in (PORT, TEA):
        memory.remember(text, "/notes", source="user:alice", **FIELDS)
    found = memory.recall("port 녹차")
    assert len(found) == 2
    talk = f"User: hi\n{PASTED[form](found)}\nUser: the office moves to Busan in May."
    reading = open_memory() if again else memory
    facts = reading.extract_memories(talk)
    assert "the office moves to Busan in May." in facts
    if again and form in NOT_WITHOUT_RECALL:
        assert PORT.rstrip(".") in " ".join(facts).replace("\n", " ")
        return
    for text in (PORT, TEA):
        assert text.rstrip(".") not in [fact.rstrip(".") for fact in facts]
    (request,) = asked(reading)
    assert set(known_of(request)) == {PORT, TEA}
    assert "8080" not in text_of(request)
    assert {fact.rstrip(".") for fact in facts.echoes} == {PORT.rstrip("."), TEA.rstrip(".")}


def test_a_memory_that_needs_escaping_is_recognised(open_memory: OpenMemory) -> None:
    memory = open_memory()
    text = "Alice wrote:\n  <b>never</b> deploy on Friday & Monday"
    memory.remember(text, "/notes", **FIELDS)
    pasted = memory.recall("deploy").format()
    assert "\n" not in pasted
    assert open_memory().extract_memories(f"{pasted}\nUser: fine.") == ["fine."]
    assert memory.extract_memories(f"User: fine.\n{text}") == ["fine."]


def test_a_pasted_memory_with_other_punctuation_is_found_by_meaning(
    open_memory: OpenMemory,
) -> None:
    memory = open_memory()
    memory.remember(PORT, **FIELDS)
    facts = memory.extract_memories("- the staging environment listens on port 8080!\nUser: ok.")
    assert facts == ["ok."]
    assert facts.echoes == [PORT]


def test_nothing_but_memories_asks_no_model(open_memory: OpenMemory) -> None:
    memory = open_memory()
    for text in (PORT, TEA):
        memory.remember(text, "/notes", **FIELDS)
    found = memory.recall("port 녹차")
    assert memory.extract_memories(found.format()) == []
    assert memory.extract_memories("\n".join(match.format() for match in found)) == []
    assert asked(memory) == []


def test_an_extraction_goes_on_from_what_is_remembered(open_memory: OpenMemory) -> None:
    """The model is shown what a mark stands for, and what it says about it is spelled out."""
    memory = open_memory(
        {"memories": ["The user confirmed [remembered:1] again.", "[remembered:1]"]}
    )
    memory.remember(PORT, **FIELDS)
    facts = memory.extract_memories(f"- {PORT}\nUser: that is right.")
    assert facts == [f'The user confirmed "{PORT}" again.']
    (request,) = asked(memory)
    assert text_of(request) == "- [remembered:1]\nUser: that is right."
    assert known_of(request) == [PORT]
    assert "[remembered:1] = " in request.prompt


# -- and what is not -------------------------------------------------------------------------------

SIMILAR = [
    "The staging environment listens on port 8081.",
    "The staging environment does not listen on port 8080.",
    "The production environment listens on port 8080.",
    "The staging environment listened on port 8080 until May.",
    "The staging environment listens on port 8080 and 8443.",
    "The staging environment listens on ports 8080.5",
]


@pytest.mark.parametrize("new", SIMILAR)
@pytest.mark.parametrize("form", ["{}", "- {}", "User: {}", '"{}"', "[0.90] {} (/notes; semantic)"])
def test_a_similar_fact_is_kept_in_any_form(open_memory: OpenMemory, new: str, form: str) -> None:
    memory = open_memory()
    memory.remember(PORT, "/notes", **FIELDS)
    pasted = memory.recall("port").format()
    facts = memory.extract_memories(f"{pasted}\n{form.format(new)}")
    assert [fact.strip(".") for fact in facts] == [new.strip(".")]


def test_a_correction_is_kept_with_what_it_corrects_in_sight(open_memory: OpenMemory) -> None:
    memory = open_memory(
        lambda request: {
            "memories": [PORT, "The staging environment listens on port 9090."]
            if known_of(request) == [PORT] and "9090" in text_of(request)
            else []
        }
    )
    memory.remember(PORT, "/notes", **FIELDS)
    talk = f"{memory.recall('port').format()}\nUser: no longer, it is 9090 since today."
    facts = memory.extract_memories(talk)
    assert facts == ["The staging environment listens on port 9090."]
    assert facts.echoes == [PORT]


def test_what_is_said_in_passing_is_no_echo(open_memory: OpenMemory) -> None:
    """Stored, and said again in a sentence of one's own: that is for consolidation to judge."""
    memory = open_memory()
    memory.remember(PORT, **FIELDS)
    talk = "User: hello. The staging environment listens on port 8080. What do you think?"
    assert PORT in memory.extract_memories(talk)
    memory.recall("port")
    assert PORT in memory.extract_memories(f"User: {PORT}\nAssistant: noted."), "a person's word"
    assert PORT in memory.extract_memories(f"지민: 그래요. {PORT}\nAssistant: noted.")
    assert PORT not in memory.extract_memories(f"User: so?\nAssistant: {PORT}")
    inside = f"User: it is untrue that {PORT[0].lower()}{PORT[1:-1]} or 9090"
    assert len(memory.extract_memories(inside)) == 1


def test_a_memory_on_its_own_can_be_split_into_its_facts(open_memory: OpenMemory) -> None:
    """A long text that was kept whole, because the model was down, is to be extracted later."""
    long = f"{PORT} It is restarted at night. {TEA}"
    memory = open_memory()
    memory.remember(long, **FIELDS)
    (match,) = memory.recall("port")
    assert memory.extract_memories(match.record.content) == [PORT, "It is restarted at night.", TEA]


def test_short_memories_do_not_tear_other_texts_apart(open_memory: OpenMemory) -> None:
    memory = open_memory()
    memory.remember("Yes.", **FIELDS)
    memory.recall("yes")
    assert memory.extract_memories("User: has the office moved? Yes. To Busan.") == [
        "has the office moved?", "Yes.", "To Busan.",
    ]  # fmt: skip


# -- to whom ---------------------------------------------------------------------------------------


def test_only_what_the_caller_may_see_is_an_echo(open_memory: OpenMemory) -> None:
    """What another one keeps private, or what lies outside of a view, is news to the caller."""
    memory = open_memory()
    secret = "The code of the front door is 4711."
    memory.remember(secret, "/home", source="alice", private=True, **FIELDS)
    memory.recall("code", source="alice")
    talk = f"- {secret}\nUser: fine."
    assert memory.extract_memories(talk, source="alice") == ["fine."]
    assert memory.extract_memories(talk, source="bob") == [secret, "fine."]
    assert memory.extract_memories(talk) == [secret, "fine."]
    assert known_of(asked(memory)[-1]) == []
    memory.remember(PORT, "/team/a", **FIELDS)
    memory.recall("port")
    pasted = f"- {PORT}\nUser: fine."
    assert memory.scope("/team/a").extract_memories(pasted) == ["fine."]
    assert memory.slice(["/other", "/team"]).extract_memories(pasted) == ["fine."]
    assert memory.scope("/team/b").extract_memories(pasted) == [PORT, "fine."]


def test_what_was_forgotten_is_no_echo(open_memory: OpenMemory) -> None:
    memory = open_memory()
    record = memory.remember(PORT, **FIELDS)
    pasted = memory.recall("port").format() + "\nUser: fine."
    assert memory.extract_memories(pasted) == ["fine."]
    memory.forget(record_ids=[record.id])
    assert memory.extract_memories(pasted) == [PORT, "fine."]


def test_an_outdated_version_is_an_echo_unless_somebody_says_it_holds_again(
    open_memory: OpenMemory,
) -> None:
    memory = open_memory()
    record = memory.remember(f"{OLD}.", **FIELDS)
    pasted = memory.recall("Bob").format()
    memory.update(record.id, content="Bob works at Initech.")
    facts = memory.extract_memories(f"{pasted}\nUser: fine.")
    assert facts == ["fine."]
    assert facts.echoes == [f"{OLD}."]
    again = memory.extract_memories(f"{pasted}\nUser: he is back. {OLD}.")
    assert again == ["he is back.", f"{OLD}."] or again == [f"{OLD}.", "he is back."]
    assert f"{OLD}." in memory.extract_memories(f"User: he is back. {OLD}. Really.")


# -- when something fails --------------------------------------------------------------------------


def test_a_part_that_fails_is_kept_with_its_pasted_memories(open_memory: OpenMemory) -> None:
    memory = open_memory(LLMError("down"))
    memory.remember(PORT, **FIELDS)
    talk = f"{memory.recall('port').format()}\nUser: fine."
    assert memory.extract_memories(talk) == [talk]
    long = talk + "\n" + "The kiln is on the hill. " * 400
    half = open_memory(
        lambda request: LLMError("x") if "fine" in text_of(request) else {"memories": ["K."]}
    )
    kept = half.extract_memories(long)
    assert kept[0].startswith(talk)
    assert kept[1:] == ["K."]


@pytest.mark.parametrize("fault", ["embedder", "store"])
def test_a_guard_that_fails_costs_no_statement(
    open_memory: OpenMemory, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mnemotrace.errors import StoreError

    embedder = FakeEmbedder()
    memory = open_memory(embedder=embedder)
    memory.remember(PORT, **FIELDS)
    memory.recall("port")
    if fault == "embedder":
        embedder.fail = True
    else:

        def broken(*args: Any) -> Any:
            raise StoreError("the disk is gone")

        monkeypatch.setattr(memory.store, "list_records", broken)
    with RecordingListener() as heard:
        facts = memory.extract_memories(f"- {PORT} no\n- something else\nUser: fine.")
    assert facts[-2:] == ["something else", "fine."]
    (event,) = heard.of(MemoryAnalysisFailedEvent)
    assert event.operation == "echo guard"
    assert any(line.startswith("echo guard: ") for line in facts.failures)


def test_a_text_without_quotes_and_recalls_costs_no_search(open_memory: OpenMemory) -> None:
    embedder = FakeEmbedder()
    memory = open_memory(embedder=embedder)
    memory.remember(PORT, **FIELDS)
    embedder.calls.clear()
    assert memory.extract_memories("We moved. The kiln is on.") == ["We moved.", "The kiln is on."]
    assert embedder.calls == []


def test_a_new_store_has_no_echoes(tmp_path: Path) -> None:
    llm = ScriptedLLM({"extraction": greedy})
    with Memory(llm=llm, storage=tmp_path / "new", embedder=FakeEmbedder()) as memory:
        assert memory.extract_memories(f"- {PORT}") == [PORT]


# -- the pieces ------------------------------------------------------------------------------------


def test_returned_ids_are_bounded_and_the_oldest_go_first() -> None:
    returned = Returned(most=3)
    returned.add(["a", "b", "c"])
    returned.add(["a", "d"])
    assert returned.ids == ["d", "a", "c"]
    returned.discard(["a", "zzz"])
    assert returned.ids == ["d", "c"]
    returned.clear()
    assert returned.ids == []


@pytest.mark.parametrize(
    ("text", "bodies"),
    [
        ("- one thing", {"one thing"}),
        ("* **bold** thing", {"**bold** thing"}),
        ("12. twelve", {"twelve"}),
        ("> cited", {"cited"}),
        ("[0.76] scored (/a; semantic)", {"scored (/a; semantic)", "scored"}),
        ("- said (user:bob, /a)", {"said (user:bob, /a)", "said"}),
        ('Bob: - "quoted words"', {'"quoted words"', "quoted words"}),
        ("they said 「조용히 하세요」.", {"조용히 하세요"}),
        ("<memory id=1>in\ntags</memory>", {"in\ntags"}),
        ("plain line", set()),
        ("2024. a year", set()),
        ("-5 degrees", set()),
        ("a - b", set()),
    ],
)
def test_what_looks_quoted(text: str, bodies: set[str]) -> None:
    assert {text[part.start : part.end] for part in quoted_parts(text)} == bodies


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("The door to the yard is red.", True),
        ("Ann: The door to the yard is red", False),
        ("Ann: hello\nThe door to the yard is red", True),
        ('Ann: "The door to the yard is red"', True),
        ("Ann: - The door to the yard is red", True),
        ("AI agent: The door to the yard is red", True),
        ("어시스턴트: The door to the yard is red", True),
        ("What I know. The door to the yard is red. Yes.", True),
        ("(The door to the yard is red.)", True),
        ("The door to\n   the yard is red!", True),
        ("The door to the yard is red. 그렇습니다", True),
        ("The door to the yard is red and old.", False),
        ("I doubt The door to the yard is red.", False),
        ("The door to the yard is reddish.", False),
        ("the door to the yard is red.", False),
    ],
)
def test_a_returned_text_counts_where_it_stands_by_itself(text: str, stands: bool) -> None:
    record = MemoryRecord(content="The door to the yard is red.")
    assert bool(returned_parts(text, [record], quoted_parts(text))) is stands


def test_marks_are_spelled_out_and_a_text_with_such_marks_is_not_confused() -> None:
    text = "see [remembered:1]: the door is red. The end."
    start = text.index("the door")
    marked = Marked(text, [Remembered(start, start + 16, "The door is red.")])
    assert marked.text == "see [remembered:1]: [remembered-:1] The end."
    assert marked.known == {"[remembered-:1]": "The door is red."}
    assert marked.original(0, len(marked.text)) == text
    assert marked.plain("[remembered-:1] [remembered-:9] [remembered:1]") == (
        '"The door is red." [remembered-:9] [remembered:1]'
    )
    assert marked.plain('She said "[remembered-:1]"') == 'She said "The door is red."'
    assert marked.plain("[remembered-:1]") == "The door is red."


def test_overlapping_parts_are_settled_in_favour_of_the_longest() -> None:
    parts = [Remembered(5, 9, "b"), Remembered(0, 9, "a"), Remembered(9, 12, "c")]
    assert settled("x" * 20, parts) == [parts[1], parts[2]]
    assert settled("x" * 9, [parts[1]]) == []


HARD = {
    "dots": "." * 60_000,
    "spaced": "- a" + " " * 60_000 + "x",
    "open tags": "<memory>" * 8_000,
    "slashes": "- a (" + "/" * 60_000,
    "brackets": "- " + "(" * 30_000 + ")" * 30_000,
    "quotes": '"aaaaa' * 10_000,
    "markers": "- " * 30_000,
    "citations": ">" * 60_000,
    "line ends": "。" * 30_000 + " " * 30_000 + "\n",
    "blank": "a" + " \t" * 30_000 + "\n" * 100 + "b",
    "names": "A b " * 15_000 + ":",
}


@pytest.mark.parametrize("kind", HARD)
def test_no_text_makes_the_guard_or_the_cutting_slow(open_memory: OpenMemory, kind: str) -> None:
    """Regular expressions over 60,000 hostile characters stay linear."""
    memory = open_memory({"memories": []}, embedder=FakeEmbedder(dimension=64))
    memory.remember(PORT, **FIELDS)
    memory.recall("port")
    begun = time.perf_counter()
    assert memory.extract_memories(HARD[kind]) == []
    assert time.perf_counter() - begun < 5.0


def test_all_quoted_parts_are_looked_up_at_once(
    open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_memory()
    texts = [f"Sensor {number} stands in hall {number}." for number in range(30)]
    for text in texts[:5]:
        memory.remember(text, scope="/x", **FIELDS)
    listed: list[int] = []
    look = memory.store.list_records

    def counted(*args: Any, **keywords: Any) -> Any:
        listed.append(1)
        return look(*args, **keywords)

    monkeypatch.setattr(memory.store, "list_records", counted)
    found = memory.extract_memories("We read:\n" + "\n".join(f"- {text}" for text in texts))
    assert len(listed) <= 2
    assert not set(texts[:5]) & set(found)
    assert set(texts[5:]) <= {" ".join(text.split()) for text in found}
