"""The examples that CrewAI's documentation of its unified memory prints, run as they are printed.

Each block is the printed code, with only the import changed (`crewai` becomes `mnemotrace`) and
its comments left out or put into English. They run in an empty folder, without a key, on the
default storage. What a block promises is asserted after it.

The blocks in which a language model takes part run a second time, at the end of this file, with
their models behind a server on this machine.

Left out, because they need CrewAI's own classes; they belong to the issue on integrations:

- `Crew(memory=True)`, `Crew(memory=Memory(...))`, `Crew(embedder=...)`, `crew.reset_memories`;
- `Agent(memory=memory.scope(...))`.

`ResearchFlow` is here with the steps of llama-index workflows instead of CrewAI's decorators.

The blocks of `Memory(embedder=...)` are in tests/embedders/test_provider_memory.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mnemotrace import LLM, Memory, MemoryMatch, event_bus
from mnemotrace.errors import EmbedderError, MemoryClosedError, RuntimeMisuseError
from mnemotrace.events import MemorySaveCompletedEvent
from mnemotrace.memory import DEFAULT_LLM
from mnemotrace.testing import FakeServer, RecordingListener, ServerRequest

Namespace = dict[str, Any]
Run = Callable[..., Namespace]

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a printed block and return its names; memories it leaves open are closed at the end."""
    opened: list[Memory] = []
    init = Memory.__init__

    def noted(self: Memory, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        opened.append(self)

    monkeypatch.setattr(Memory, "__init__", noted)

    def run(block: str, namespace: Namespace | None = None, **given: Any) -> Namespace:
        names = {"Memory": Memory, **given} if namespace is None else namespace
        code = block.replace("from crewai", "from mnemotrace")
        exec(compile(code, "printed example", "exec"), names)  # noqa: S102  the text above
        return names

    yield run
    for memory in opened:
        memory.close()


def contents(matches: list[MemoryMatch]) -> list[str]:
    return [match.record.content for match in matches]


QUICK_START = """
from crewai import Memory

memory = Memory()

memory.remember("We decided to use PostgreSQL for the user database.")

matches = memory.recall("What database did we choose?")
for m in matches:
    print(f"[{m.score:.2f}] {m.record.content}")

memory = Memory(recency_weight=0.5, recency_half_life_days=7)

memory.forget(scope="/project/old")

print(memory.tree())
print(memory.info("/"))
"""


def test_quick_start(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run(QUICK_START)
    fact = "We decided to use PostgreSQL for the user database."
    score = names["matches"][0].score
    printed = capsys.readouterr().out.splitlines()
    assert contents(names["matches"]) == [fact]
    assert printed[:2] == [f"[{score:.2f}] {fact}", "/ (1 record)"]
    assert "record_count=1" in printed[2]
    assert names["memory"].config.recency_half_life_days == 7


STANDALONE = '''
from crewai import Memory

memory = Memory()

memory.remember("The API rate limit is 1000 requests per minute.")
memory.remember("Our staging environment uses port 8080.")
memory.remember("The team agreed to use feature flags for all new releases.")

matches = memory.recall("What are our API limits?", limit=5)
for m in matches:
    print(f"[{m.score:.2f}] {m.record.content}")

raw = """Meeting notes: We decided to migrate from MySQL to PostgreSQL
next quarter. The budget is $50k. Sarah will lead the migration."""

facts = memory.extract_memories(raw)

for fact in facts:
    memory.remember(fact)
'''


def test_standalone_without_a_model_keeps_the_whole_text(run: Run) -> None:
    names = run(STANDALONE)
    assert contents(names["matches"])[0] == "The API rate limit is 1000 requests per minute."
    assert len(names["matches"]) == 3
    assert names["facts"] == [names["raw"]]
    stored = [record.content for record in names["memory"].list_records()]
    assert len(stored) == 4
    assert names["raw"] in stored


def test_standalone_with_a_model_saves_the_atomic_facts(run: Run) -> None:
    facts = [
        "Migration from MySQL to PostgreSQL planned for next quarter",
        "Database migration budget is $50k",
        "Sarah will lead the database migration",
    ]

    def model(prompt: str) -> str:
        if "Meeting notes" in prompt and "atomic" in prompt:
            return str({"memories": facts}).replace("'", '"')
        return '{"scope": "/project/migration", "categories": ["database"], "importance": 0.8}'

    memory = Memory(llm=model)
    extracted = STANDALONE[STANDALONE.index("raw = ") :]
    names = run(extracted, memory=memory)
    assert names["facts"] == facts
    records = memory.scope("/project/migration").list_records()
    assert sorted(record.content for record in records) == sorted(facts)
    assert {record.importance for record in records} == {0.8}


RESEARCH_FLOW = """
from workflows import step
from workflows.events import Event, StartEvent, StopEvent

from mnemotrace import Flow

class Gathered(Event):
    findings: str

class ResearchFlow(Flow):
    @step
    def gather_data(self, ev: StartEvent) -> Gathered:
        findings = "PostgreSQL handles 10k concurrent connections. MySQL caps at 5k."
        self.remember(findings, scope="/research/databases")
        return Gathered(findings=findings)

    @step
    def write_report(self, ev: Gathered) -> StopEvent:
        findings = ev.findings
        past = self.recall("database performance benchmarks")
        context = "\\n".join(f"- {m.record.content}" for m in past)
        return StopEvent(result=f"Report:\\nNew findings: {findings}\\nPrevious context:\\n{context}")
"""


async def test_flow_remembers_and_recalls_with_a_default_memory(run: Run) -> None:
    flow = run(RESEARCH_FLOW)["ResearchFlow"]()
    findings = "PostgreSQL handles 10k concurrent connections. MySQL caps at 5k."
    assert await flow.run() == (
        f"Report:\nNew findings: {findings}\nPrevious context:\n- {findings}"
    )
    assert flow.memory.info("/research/databases").record_count == 1
    flow.close_memory()
    with Memory() as memory:  # what the flow opened is the default storage, and it is closed
        assert contents(memory.recall("connections")) == [findings]


def test_flow_run_without_an_event_loop_says_what_to_do(run: Run) -> None:
    flow = run(RESEARCH_FLOW)["ResearchFlow"]()
    with pytest.raises(RuntimeMisuseError, match=r"asyncio\.run"):
        flow.run()


SCOPE_INFERENCE = """
memory = Memory()

memory.remember("We chose PostgreSQL for the user database.")

memory.remember("Sprint velocity is 42 points", scope="/team/metrics")
"""


def test_scope_is_the_one_given_or_the_root_without_a_model(run: Run) -> None:
    memory = run(SCOPE_INFERENCE)["memory"]
    assert {record.content: record.scope for record in memory.list_records()} == {
        "We chose PostgreSQL for the user database.": "/",
        "Sprint velocity is 42 points": "/team/metrics",
    }


def test_scope_is_inferred_by_a_model(run: Run) -> None:
    def model(prompt: str) -> str:
        return '{"scope": "/project/decisions", "categories": ["database"], "importance": 0.9}'

    memory = run(SCOPE_INFERENCE, Memory=lambda: Memory(llm=model))["memory"]
    assert memory.list_scopes("/") == ["/project", "/team"]
    assert memory.info("/project").child_scopes == ["/project/decisions"]


TREE = """
print(memory.tree())

print(memory.info("/project/alpha"))
"""


def test_tree_and_info_are_printed_as_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    memory = Memory()
    counts = {
        "/project/alpha": 5,
        "/project/beta": 3,
        "/agent/researcher": 4,
        "/agent/writer": 3,
    }
    memory.remember_many(
        {
            "content": f"Note {number} of {scope}",
            "scope": scope,
            "categories": ["architecture", "database"],
        }
        for scope, count in counts.items()
        for number in range(count)
    )
    run(TREE, memory=memory)
    printed = capsys.readouterr().out.splitlines()
    assert printed[:7] == [
        "/ (15 records)",
        "  /agent (7 records)",
        "    /agent/researcher (4 records)",
        "    /agent/writer (3 records)",
        "  /project (8 records)",
        "    /project/alpha (5 records)",
        "    /project/beta (3 records)",
    ]
    info = memory.info("/project/alpha")
    assert (info.path, info.record_count) == ("/project/alpha", 5)
    assert info.categories == ["architecture", "database"]
    assert info.child_scopes == []
    assert info.oldest_record is not None and info.newest_record is not None
    assert info.oldest_record <= info.newest_record
    assert printed[7].startswith("ScopeInfo(path='/project/alpha', record_count=5, categories=")


MEMORY_SCOPE = """
memory = Memory()

agent_memory = memory.scope("/agent/researcher")

agent_memory.remember("Found three relevant papers on LLM memory.")

agent_memory.recall("relevant papers")

project_memory = agent_memory.subscope("project-alpha")
"""


def test_memory_scope_sees_and_writes_its_own_subtree_only(run: Run) -> None:
    names = run(MEMORY_SCOPE)
    memory, agent_memory = names["memory"], names["agent_memory"]
    memory.remember("Relevant papers of somebody else.", scope="/agent/writer")
    names["project_memory"].remember("Relevant papers of project alpha.")
    assert names["project_memory"].path == "/agent/researcher/project-alpha"
    assert {m.record.scope for m in agent_memory.recall("relevant papers")} == {
        "/agent/researcher",
        "/agent/researcher/project-alpha",
    }
    assert contents(names["project_memory"].recall("relevant papers")) == [
        "Relevant papers of project alpha."
    ]
    assert len(memory.recall("relevant papers")) == 3


MULTI_PROJECT = """
memory = Memory()
memory.remember("Using microservices architecture", scope="/project/alpha/architecture")
memory.remember("GraphQL API for client apps", scope="/project/beta/api")

memory.recall("API design decisions")

memory.recall("API design", scope="/project/beta")
"""


def test_several_projects_are_recalled_together_or_alone(run: Run) -> None:
    memory = run(MULTI_PROJECT)["memory"]
    assert len(memory.recall("API design decisions")) == 2
    assert contents(memory.recall("API design", scope="/project/beta")) == [
        "GraphQL API for client apps"
    ]


SHARED_KNOWLEDGE = """
memory = Memory()

researcher_memory = memory.scope("/agent/researcher")

writer_view = memory.slice(
    scopes=["/agent/writer", "/company/knowledge"],
    read_only=True,
)
"""


def test_an_agent_keeps_its_own_context_and_reads_what_is_shared(run: Run) -> None:
    names = run(SHARED_KNOWLEDGE)
    names["researcher_memory"].remember("Finding: the cache is too small.")
    names["memory"].remember("The house style is British English.", scope="/company/knowledge")
    names["memory"].remember("Chapter two is half done.", scope="/agent/writer")
    assert {m.record.scope for m in names["writer_view"].recall("what do I know?")} == {
        "/agent/writer",
        "/company/knowledge",
    }
    assert contents(names["researcher_memory"].recall("what do I know?")) == [
        "Finding: the cache is too small."
    ]


CUSTOMER_SUPPORT = """
memory = Memory()

memory.remember("Prefers email communication", scope="/customer/acme-corp")
memory.remember("On enterprise plan, 50 seats", scope="/customer/acme-corp")

memory.remember("Rate limit is 1000 req/min on enterprise plan", scope="/product/docs")
"""


def test_each_customer_has_a_context_of_its_own(run: Run) -> None:
    memory = run(CUSTOMER_SUPPORT)["memory"]
    memory.remember("Prefers phone calls", scope="/customer/acme-corporation")
    acme = memory.scope("/customer/acme-corp")
    assert sorted(contents(acme.recall("enterprise plan"))) == [
        "On enterprise plan, 50 seats",
        "Prefers email communication",
    ]
    assert contents(memory.recall("enterprise plan", scope="/product/docs")) == [
        "Rate limit is 1000 req/min on enterprise plan"
    ]


READ_ONLY_SLICE = """
memory = Memory()

agent_view = memory.slice(
    scopes=["/agent/researcher", "/company/knowledge"],
    read_only=True,
)

matches = agent_view.recall("company security policies", limit=5)

agent_view.remember("new finding")  # raises PermissionError
"""


def test_read_only_slice_recalls_from_all_its_scopes_and_refuses_to_write(run: Run) -> None:
    with Memory() as before:
        before.remember("Security policy: rotate keys monthly.", scope="/company/knowledge")
        before.remember("The security review is on Friday.", scope="/agent/researcher")
        before.remember("The security policy of a rival company.", scope="/market")
    names: Namespace = {"Memory": Memory}
    with pytest.raises(PermissionError, match="read-only"):
        run(READ_ONLY_SLICE, names)
    assert {match.record.scope for match in names["matches"]} == {
        "/company/knowledge",
        "/agent/researcher",
    }
    assert names["memory"].info("/").record_count == 3


WRITABLE_SLICE = """
view = memory.slice(scopes=["/team/alpha", "/team/beta"], read_only=False)

view.remember("Cross-team decision", scope="/team/alpha", categories=["decisions"])
"""


def test_writable_slice_must_be_told_where_to_write(run: Run) -> None:
    memory = Memory()
    view = run(WRITABLE_SLICE, memory=memory)["view"]
    [record] = memory.list_records()
    assert (record.scope, record.categories) == ("/team/alpha", ["decisions"])
    with pytest.raises(PermissionError, match="/team/alpha, /team/beta"):
        view.remember("Somewhere")
    with pytest.raises(PermissionError, match="/elsewhere"):
        view.remember("Elsewhere", scope="/elsewhere")
    assert memory.info("/").record_count == 1


SPRINT_SCORING = """
memory = Memory(
    recency_weight=0.5,
    semantic_weight=0.3,
    importance_weight=0.2,
    recency_half_life_days=7,
)
"""

ARCHITECTURE_SCORING = """
memory = Memory(
    recency_weight=0.1,
    semantic_weight=0.5,
    importance_weight=0.4,
    recency_half_life_days=180,
)
"""


@pytest.mark.parametrize(
    ("block", "first"),
    [
        (SPRINT_SCORING, "The deploy script was renamed."),
        (ARCHITECTURE_SCORING, "The deploy script must never run twice."),
    ],
    ids=["sprint", "architecture"],
)
def test_weights_decide_whether_the_recent_or_the_important_comes_first(
    run: Run, block: str, first: str
) -> None:
    memory = run(block)["memory"]
    memory.remember(
        "The deploy script must never run twice.",
        importance=1.0,
        created_at=NOW - timedelta(days=60),
    )
    memory.remember("The deploy script was renamed.", importance=0.1, created_at=NOW)
    matches = memory.recall("the deploy script", now=NOW)
    assert contents(matches)[0] == first
    assert len(matches) == 2


def test_score_is_the_printed_formula_and_the_reasons_name_its_terms(run: Run) -> None:
    memory = run(ARCHITECTURE_SCORING)["memory"]
    memory.remember("Half a life ago.", importance=0.9, created_at=NOW - timedelta(days=180))
    memory.remember("Today.", importance=0.2, created_at=NOW)
    old, today = sorted(
        memory.recall("when was it?", depth="shallow", now=NOW),
        key=lambda match: match.record.created_at,
    )
    assert (old.components.recency, today.components.recency) == pytest.approx((0.5, 1.0))
    for match in (old, today):
        c = match.components
        distance = 1 - c.cosine
        assert c.similarity == pytest.approx(1 / (1 + distance))
        assert match.score == pytest.approx(0.5 * c.semantic + 0.1 * c.recency + 0.4 * c.importance)
    assert old.match_reasons == ["semantic", "importance"]
    assert today.match_reasons == ["semantic", "recency"]


def test_the_same_text_saved_three_times_is_one_record() -> None:
    with Memory() as memory:
        for _ in range(3):
            memory.remember("CrewAI ensures reliable operation")
        assert memory.info("/").record_count == 1


IN_BATCH_DEDUP = """
memory.remember_many([
    "CrewAI supports complex workflows.",
    "Python is a great language.",
    "CrewAI supports complex workflows.",
])
"""


def test_a_batch_with_a_repetition_becomes_two_records(run: Run) -> None:
    memory = Memory()
    run(IN_BATCH_DEDUP, memory=memory)
    memory.drain_writes()
    assert sorted(record.content for record in memory.list_records()) == [
        "CrewAI supports complex workflows.",
        "Python is a great language.",
    ]


NON_BLOCKING = """
memory.remember_many(["Fact A.", "Fact B.", "Fact C."])

matches = memory.recall("facts")
"""


def test_recall_waits_for_pending_saves(run: Run) -> None:
    names = run(NON_BLOCKING, memory=Memory())
    assert sorted(contents(names["matches"])) == ["Fact A.", "Fact B.", "Fact C."]


def test_remember_many_returns_before_anything_is_embedded() -> None:
    may_embed = threading.Event()

    def embedder(texts: list[str]) -> list[list[float]]:
        may_embed.wait(timeout=30)
        return [[float(len(text)), 1.0, float(ord(text[-2]))] for text in texts]

    with Memory(embedder=embedder) as memory:
        receipt = memory.remember_many(["Fact A.", "Fact B.", "Fact C."])
        assert not receipt.done
        may_embed.set()
        assert len(memory.recall("facts")) == 3
        assert receipt.done


DRAIN_AND_CLOSE = """
memory = Memory()
memory.remember_many(["Fact A.", "Fact B."])

memory.drain_writes()

memory.close()
"""


def test_drained_and_closed_memory_is_there_when_opened_again(run: Run) -> None:
    closed = run(DRAIN_AND_CLOSE)["memory"]
    with pytest.raises(MemoryClosedError):
        closed.recall("facts")
    with Memory() as memory:
        assert sorted(contents(memory.recall("facts"))) == ["Fact A.", "Fact B."]


SOURCES = """
memory.remember("User prefers dark mode", source="user:alice")
memory.remember("System config updated", source="admin")
memory.remember("Agent found a bug", source="agent:debugger")

matches = memory.recall("user preferences", source="user:alice")
"""


def test_source_recalls_only_what_came_from_it(run: Run) -> None:
    names = run(SOURCES, memory=Memory())
    assert contents(names["matches"]) == ["User prefers dark mode"]
    assert names["memory"].info("/").record_count == 3


PRIVATE = """
memory.remember("Alice's API key is sk-...", source="user:alice", private=True)
"""
PRIVATE_RECALLS = {
    "alice": 'matches = memory.recall("API key", source="user:alice")',
    "bob": 'matches = memory.recall("API key", source="user:bob")',
    "admin": 'matches = memory.recall("API key", include_private=True)',
}


@pytest.mark.parametrize(
    ("who", "seen"),
    [
        ("alice", ["Alice's API key is sk-..."]),
        ("bob", []),
        ("admin", ["Alice's API key is sk-..."]),
    ],
)
def test_private_record_is_seen_by_its_source_and_by_an_administrator(
    run: Run, who: str, seen: list[str]
) -> None:
    names = run(PRIVATE, memory=Memory())
    run(PRIVATE_RECALLS[who], names)
    assert contents(names["matches"]) == seen


DEPTH = """
matches = memory.recall("What did we decide?", limit=10, depth="shallow")

matches = memory.recall(
    "Summarize all architecture decisions from this quarter",
    limit=10,
    depth="deep",
)
"""


def test_both_depths_answer_and_deep_is_the_default(run: Run) -> None:
    memory = Memory()
    memory.remember("We decided to split the billing service from the shop.")
    names = run(DEPTH, memory=memory)
    assert len(names["matches"]) == 1
    query = "What did we decide?"
    shallow, deep = memory.recall(query, depth="shallow"), memory.recall(query)
    assert contents(shallow) == contents(deep)
    assert shallow.trace is not None and deep.trace is not None
    assert "route" in deep.trace.path
    assert "route" not in shallow.trace.path
    assert deep.trace.totals()["llm_calls"] == 0


THRESHOLDS = """
memory = Memory(
    confidence_threshold_high=0.9,
    confidence_threshold_low=0.4,
    exploration_budget=2,
    query_analysis_threshold=200,
)
"""


def test_thresholds_steer_the_router(run: Run) -> None:
    memory = run(THRESHOLDS)["memory"]
    memory.remember("The lighthouse keeper feeds the gulls at noon.")
    clear = memory.recall("The lighthouse keeper feeds the gulls at noon.")
    vague = memory.recall("quarterly revenue of the Oslo branch")
    assert clear.confidence >= 0.9
    assert vague.confidence < 0.4
    assert clear.trace is not None and vague.trace is not None
    assert "explore" not in clear.trace.path
    assert 1 <= vague.trace.path.count("explore") <= 2


def test_only_queries_from_the_threshold_on_are_analysed_by_the_model() -> None:
    asked: list[str] = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        return '{"sub_queries": ["billing service"], "complexity": "simple"}'

    with Memory(llm=model, query_analysis_threshold=200, exploration_budget=0) as memory:
        memory.remember("Billing moves in May.", scope="/a", categories=["b"], importance=0.5)
        memory.recall("What happens to billing?".ljust(199, "?"))
        assert asked == []
        memory.recall("What happens to billing?".ljust(200, "?"))
        assert len(asked) == 1


CUSTOM_EMBEDDER = """
def my_embedder(texts: list[str]) -> list[list[float]]:
    return [[0.1, 0.2, ...] for _ in texts]

memory = Memory(embedder=my_embedder)
"""


def test_custom_embedder_is_called_on_first_use_and_its_vectors_are_checked(run: Run) -> None:
    memory = run(CUSTOM_EMBEDDER)["memory"]
    with pytest.raises(EmbedderError):  # the printed `...` is no number
        memory.remember("Something.")
    assert memory.list_records() == []


def test_custom_embedder_that_gives_numbers_works(run: Run) -> None:
    memory = run(CUSTOM_EMBEDDER.replace(", ...", ", 0.3"))["memory"]
    memory.remember("Something.")
    assert contents(memory.recall("anything")) == ["Something."]


LLM_NAMES = """
memory = Memory()

memory = Memory(llm="gpt-4o")

memory = Memory(llm="anthropic/claude-3-haiku-20240307")

memory = Memory(llm="ollama/llama3.2")

memory = Memory(llm="gemini/gemini-2.0-flash")
"""


def test_a_model_is_only_needed_when_it_is_asked(run: Run) -> None:
    assert DEFAULT_LLM == "gpt-4o-mini"
    run(LLM_NAMES)  # no key, and no failure
    names = run('memory = Memory(llm="gpt-4o")')
    record = names["memory"].remember("Saved without a model.")
    assert (record.scope, record.categories, record.importance) == ("/", [], 0.5)


DISCOVERY = """
memory.tree()
memory.tree("/project", max_depth=2)
memory.info("/project")
memory.list_scopes("/")
memory.list_categories()
memory.list_records(scope="/project/alpha", limit=20)
"""


def test_discovery_shows_scopes_categories_and_records(run: Run) -> None:
    memory = Memory()
    memory.remember("First.", scope="/project/alpha", categories=["x"], created_at=NOW)
    later = NOW + timedelta(days=1)
    memory.remember("Second.", scope="/project/alpha", categories=["x", "y"], created_at=later)
    memory.remember("Deep.", scope="/project/alpha/a/b", created_at=NOW)
    memory.remember("Other.", scope="/agent")
    run(DISCOVERY, memory=memory)
    assert memory.tree("/project", max_depth=2).splitlines() == [
        "/project (3 records)",
        "  /project/alpha (3 records)",
        "    /project/alpha/a (1 record)",
    ]
    info = memory.info("/project")
    assert (info.record_count, info.categories) == (3, ["x", "y"])
    assert (info.oldest_record, info.newest_record) == (NOW, later)
    assert memory.list_scopes("/") == ["/agent", "/project"]
    assert memory.list_categories() == {"x": 2, "y": 1}
    newest, *rest = memory.list_records(scope="/project/alpha", limit=20)
    assert newest.content == "Second."
    assert {record.content for record in rest} == {"First.", "Deep."}


def test_a_failing_model_costs_nothing_but_the_analysis(caplog: pytest.LogCaptureFixture) -> None:
    def model(prompt: str) -> str:
        raise RuntimeError("no credit left")

    long_query = "Please tell me everything that we know about the migration. " * 5
    text = "Meeting notes. Sarah leads the migration."
    with Memory(llm=model, llm_timeout=5) as memory:
        record = memory.remember(text)
        assert (record.scope, record.categories, record.importance) == ("/", [], 0.5)
        assert memory.extract_memories(text) == [text]
        assert contents(memory.recall(long_query)) == [text]
    assert "no credit left" in caplog.text
    assert {entry.levelname for entry in caplog.records} == {"WARNING"}


MEMORY_MONITOR = """
from crewai.events import BaseEventListener, MemoryQueryCompletedEvent

class MemoryMonitor(BaseEventListener):
    def setup_listeners(self, crewai_event_bus):
        @crewai_event_bus.on(MemoryQueryCompletedEvent)
        def on_done(source, event):
            if getattr(event, "source_type", None) == "unified_memory":
                print(f"Query '{event.query}' completed in {event.query_time_ms:.0f}ms")
"""


@pytest.fixture
def _listeners_of_this_test_only() -> Iterator[None]:
    before = event_bus._registered
    yield
    for entry in event_bus._registered:
        if entry not in before:
            event_bus.off(entry[1])


@pytest.mark.usefixtures("_listeners_of_this_test_only")
def test_memory_monitor_prints_each_query(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run(MEMORY_MONITOR)
    names["MemoryMonitor"]()
    with Memory() as memory:
        memory.remember("The kettle is in the kitchen.")
        memory.recall("Where is the kettle?")
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("Query 'Where is the kettle?' completed in ")
    assert line.endswith("ms")


RESET = """
memory.reset(scope="/project/old")
"""
RESET_ALL = """
memory.reset()
"""


def test_reset_empties_a_subtree_or_everything(run: Run) -> None:
    memory = Memory()
    memory.remember("Old.", scope="/project/old")
    memory.remember("Older.", scope="/project/old/archive", source="me", private=True)
    memory.remember("Older than it looks.", scope="/project/older")
    memory.remember("At the root.")
    names = run(RESET, memory=memory)
    assert sorted(record.scope for record in memory.list_records(include_private=True)) == [
        "/",
        "/project/older",
    ]
    run(RESET_ALL, names)
    assert memory.list_records(include_private=True) == []
    memory.remember("It can be used again.")
    assert memory.info("/").record_count == 1


# -- with a model behind a server on this machine ---------------------------------------------

with_a_server = [
    pytest.mark.slow,
    # litellm keeps connections and a logging task that outlive a test's loop.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Items? .* (is|are) using the .ReadOnly. qualifier:UserWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FILED = {
    "scope": "/project/decisions",
    "categories": ["database"],
    "importance": 0.9,
    "entities": ["PostgreSQL"],
    "dates": ["next quarter"],
    "topics": ["storage"],
}
FACTS = [
    "Migration from MySQL to PostgreSQL planned for next quarter",
    "Database migration budget is $50k",
    "Sarah will lead the database migration",
]


class Providers(FakeServer):
    """Besides OpenAI's protocol, those of Anthropic, Google Gemini and Ollama."""

    def respond(self, request: ServerRequest) -> tuple[int, Mapping[str, Any]]:
        body, text = request.body, json.dumps(FILED)
        if request.path.endswith("/v1/messages"):
            part: dict[str, Any] = {"type": "text", "text": text}
            if body.get("tools"):  # litellm asks for JSON by way of a tool
                name = body["tools"][0]["name"]
                part = {"type": "tool_use", "id": "1", "name": name, "input": FILED}
            return 200, {
                "id": "1",
                "type": "message",
                "role": "assistant",
                "model": body["model"],
                "content": [part],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 12, "output_tokens": 7},
            }
        if request.path.endswith(":generateContent"):
            content = {"role": "model", "parts": [{"text": text}]}
            return 200, {
                "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
                "usageMetadata": {
                    "promptTokenCount": 12,
                    "candidatesTokenCount": 7,
                    "totalTokenCount": 19,
                },
            }
        if request.path.endswith("/api/generate"):
            return 200, {
                "model": body["model"],
                "created_at": "2026-01-01T00:00:00Z",
                "response": text,
                "done": True,
                "prompt_eval_count": 12,
                "eval_count": 7,
            }
        return super().respond(request)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Providers]:
    """The server that every provider's requests go to; its environment is set."""
    with Providers({"SaveAnalysis": FILED, "ExtractedMemories": {"memories": FACTS}}) as server:
        addresses = {
            "ANTHROPIC_API_BASE": server.root,
            "GEMINI_API_BASE": server.root,
            "OLLAMA_API_BASE": server.root,
        }
        keys = {"ANTHROPIC_API_KEY": "not-needed", "GEMINI_API_KEY": "not-needed"}
        for name, value in (server.environment | addresses | keys).items():
            monkeypatch.setenv(name, value)
        yield server


def marked(*values: Any, id: str) -> Any:
    return pytest.param(*values, marks=with_a_server, id=id)


@pytest.mark.parametrize("block", [marked(QUICK_START, id="quick start")])
def test_quick_start_with_a_model_files_what_it_saves(
    run: Run, server: Providers, block: str, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = run(block)["memory"]
    [record] = memory.list_records()
    assert (record.scope, record.categories, record.importance) == (
        "/project/decisions",
        ["database"],
        0.9,
    )
    assert record.metadata == {
        "entities": ["PostgreSQL"],
        "dates": ["next quarter"],
        "topics": ["storage"],
    }
    assert "    /project/decisions (1 record)" in capsys.readouterr().out.splitlines()
    [request] = server.chats  # neither the short query nor forget asked anything
    assert (request.title, request.body["model"]) == ("SaveAnalysis", "gpt-4o-mini")
    assert "We decided to use PostgreSQL for the user database." in request.prompt


@pytest.mark.parametrize("block", [marked(STANDALONE, id="standalone")])
def test_standalone_with_a_server_extracts_and_files_the_facts(
    run: Run, server: Providers, block: str
) -> None:
    names = run(block)
    assert names["facts"] == FACTS
    records = names["memory"].scope("/project/decisions").list_records()
    assert len(records) == 6
    assert set(FACTS) < {record.content for record in records}
    assert len(server.asked("ExtractedMemories")) == 1
    assert len(server.asked("SaveAnalysis")) == 6
    assert "Meeting notes" in server.asked("ExtractedMemories")[0].prompt


@pytest.mark.parametrize("block", [marked(SCOPE_INFERENCE, id="scope inference")])
def test_a_server_infers_the_scope_that_was_not_given(
    run: Run, server: Providers, block: str
) -> None:
    memory = run(block)["memory"]
    assert {record.content: record.scope for record in memory.list_records()} == {
        "We chose PostgreSQL for the user database.": "/project/decisions",
        "Sprint velocity is 42 points": "/team/metrics",
    }
    # The second text had a scope, but neither categories nor importance: both are inferred.
    assert {tuple(record.categories) for record in memory.list_records()} == {("database",)}


CONSOLIDATED = {
    "keep": ["The limit is 1000 requests.", "The limit is 1000 requests per minute."],
    "update": ["The limit is 1000 requests per minute, for everybody."],
    "delete": ["The limit is 1000 requests per minute."],
    "insert_new": ["The limit is 1000 requests.", "The limit is 1000 requests per minute."],
}


@pytest.mark.parametrize(
    ("outcome", "left"), [marked(*pair, id=pair[0]) for pair in CONSOLIDATED.items()]
)
def test_a_similar_record_is_kept_updated_deleted_or_joined(
    server: Providers, outcome: str, left: list[str]
) -> None:
    given: dict[str, Any] = {"scope": "/api", "categories": [], "importance": 0.5}
    old, new = CONSOLIDATED["keep"]
    with Memory(consolidation_threshold=0.5) as memory:
        record = memory.remember(old, **given)
        assert server.chats == []  # every field given, and nothing similar
        action: dict[str, Any] = {"id": record.id, "action": outcome}
        if outcome == "update":
            action["content"] = CONSOLIDATED["update"][0]
        actions = [] if outcome == "insert_new" else [action]
        insert_new = outcome != "update"
        server.answers["ConsolidationPlan"] = {"actions": actions, "insert_new": insert_new}
        memory.remember(new, **given)
        assert sorted(r.content for r in memory.list_records()) == sorted(left)
        first = memory.history(memory.list_records()[0].id)
        assert old in {version.content for version in first} or old in left
    [request] = server.chats
    assert request.title == "ConsolidationPlan"
    assert old in request.prompt
    assert new in request.prompt


@pytest.mark.parametrize("block", [marked(DEPTH, id="depth")])
def test_neither_depth_asks_a_server_about_a_short_query_it_can_answer(
    run: Run, server: Providers, block: str
) -> None:
    memory = Memory(confidence_threshold_low=0.0)
    memory.remember("We decided on the architecture.", scope="/a", categories=[], importance=0.5)
    run(block, memory=memory)
    memory.close()
    assert server.chats == []


LONG_TASK = (
    "Summarize all architecture decisions from this quarter, what they cost, who made them, which "
    "of them were changed later on and why, and what is still open about the billing service, the "
    "shop and the warehouse that the team wants to move next year."
)


@pytest.mark.parametrize("block", [marked(THRESHOLDS, id="thresholds")])
def test_deep_recall_of_a_long_query_is_analysed_and_explored_by_a_server(
    run: Run, server: Providers, block: str
) -> None:
    server.answers["QueryAnalysis"] = {
        "sub_queries": ["expenses by quarter", "rota of the night shift"],
        "scopes": ["/project/shop", "/nowhere"],
        "complexity": "complex",
    }
    rounds = iter(
        [
            {"gaps": ["who decided"], "sub_queries": ["who made the decision"]},
            {"gaps": ["who decided", "the cost"], "sub_queries": ["cost of the decision"]},
        ]
    )
    server.answers["Exploration"] = lambda request: next(rounds)
    memory = run(block)["memory"]
    given: dict[str, Any] = {"categories": [], "importance": 0.5}
    memory.remember("The billing service moves in May.", scope="/project/shop", **given)
    memory.remember("Mina signed for the warehouse.", scope="/project/warehouse", **given)
    recall = memory.recall(LONG_TASK)
    assert set(contents(recall)) == {
        "The billing service moves in May.",
        "Mina signed for the warehouse.",
    }
    assert len(server.asked("QueryAnalysis")) == 1
    assert LONG_TASK in server.asked("QueryAnalysis")[0].prompt
    assert 1 <= len(server.asked("Exploration")) <= 2  # its exploration_budget
    assert recall.evidence_gaps == ["who decided", "the cost"][: len(recall.evidence_gaps)]
    assert recall.evidence_gaps
    assert recall.trace is not None
    totals = recall.trace.totals()
    assert totals["llm_calls"] == len(server.chats)
    assert totals["tokens_in"] > 50
    assert totals["tokens_out"] > 5


ASKED = {
    "memory = Memory()": ("/v1/chat/completions", "gpt-4o-mini"),
    'memory = Memory(llm="gpt-4o")': ("/v1/chat/completions", "gpt-4o"),
    'memory = Memory(llm="anthropic/claude-3-haiku-20240307")': (
        "/v1/messages",
        "claude-3-haiku-20240307",
    ),
    'memory = Memory(llm="ollama/llama3.2")': ("/api/generate", "llama3.2"),
    'memory = Memory(llm="gemini/gemini-2.0-flash")': (
        "gemini-2.0-flash:generateContent",
        None,
    ),
}


def test_every_printed_model_is_asked_below() -> None:
    assert [line for line in LLM_NAMES.splitlines() if line] == list(ASKED)


@pytest.mark.parametrize(
    ("line", "path", "model"), [marked(line, *asked, id=line) for line, asked in ASKED.items()]
)
def test_each_printed_model_is_asked_by_its_own_protocol(
    run: Run, server: Providers, line: str, path: str, model: str | None
) -> None:
    with RecordingListener() as heard:
        record = run(line)["memory"].remember("We chose PostgreSQL.")
    assert (record.scope, record.categories, record.importance) == (
        "/project/decisions",
        ["database"],
        0.9,
    )
    [request] = [request for request in server.requests if request.path.endswith(path)]
    assert request.body.get("model") == model
    assert "We chose PostgreSQL." in json.dumps(request.body)
    [event] = heard.of(MemorySaveCompletedEvent)
    assert event.trace is not None
    totals = event.trace.totals()
    assert (totals["llm_calls"], totals["llm_failures"]) == (1, 0)
    assert totals["tokens_in"] > 0
    assert totals["tokens_out"] > 0


CONFIGURED_LLM = """
from crewai import Memory, LLM

llm = LLM(model="gpt-4o", temperature=0)
memory = Memory(llm=llm)
"""


@pytest.mark.parametrize("block", [marked(CONFIGURED_LLM, id="configured")])
def test_a_configured_model_is_asked_with_its_settings(
    run: Run, server: Providers, block: str
) -> None:
    names = run(block)
    assert server.chats == []  # made on first use
    names["memory"].remember("We chose PostgreSQL.")
    names["memory"].close()
    warm = Memory(llm=LLM("gpt-4o", temperature=0.7))
    warm.remember("We chose Redis.")
    warm.close()
    assert [(r.body["model"], r.body["temperature"]) for r in server.chats] == [
        ("gpt-4o", 0),
        ("gpt-4o", 0.7),
    ]


@pytest.mark.parametrize("status", [marked(status, id=str(status)) for status in (401, 429, 500)])
def test_a_server_that_refuses_costs_nothing_but_the_analysis(
    server: Providers, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    text = "Meeting notes. Sarah leads the migration."
    with Memory(llm_timeout=20, embedder="bundled") as memory:
        server.status = status
        record = memory.remember(text)
        assert (record.scope, record.categories, record.importance) == ("/", [], 0.5)
        assert memory.extract_memories(text) == [text]
        assert contents(memory.recall(LONG_TASK)) == [text]
    assert server.requests
    assert {entry.levelname for entry in caplog.records if "mnemotrace" in entry.name} == {
        "WARNING"
    }
