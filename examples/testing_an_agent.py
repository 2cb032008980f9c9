"""Test what an agent remembers without a model: scripted answers, a server on this machine, faults.

`FakeServer` speaks OpenAI's protocol on a loopback port, for agents that reach their model over
HTTP; `ScriptedLLM` and `FakeEmbedder` do the same without HTTP. None of them needs pytest.
"""

from mnemotrace import Memory
from mnemotrace.events import MemoryAnalysisFailedEvent, MemorySaveCompletedEvent
from mnemotrace.testing import FakeEmbedder, FakeServer, RecordingListener, ScriptedLLM

FILED = {"scope": "/shop/decisions", "categories": ["database"], "importance": 0.9}


def scripted() -> None:
    llm = ScriptedLLM({"save_analysis": FILED})
    with Memory(llm, ":memory:", FakeEmbedder()) as memory:
        record = memory.remember("We decided to use PostgreSQL.")
    print("scripted:", record.scope, record.categories, f"{len(llm.requests)} request")


def over_http() -> None:
    with (
        FakeServer({"SaveAnalysis": FILED}) as server,
        RecordingListener() as heard,
        Memory(server.llm(), ":memory:", FakeEmbedder()) as memory,
    ):
        record = memory.remember("We decided to use PostgreSQL.")
        print("server:", record.scope, [request.title for request in server.requests])

        server.status = 401  # from now on it refuses every request
        record = memory.remember("The kiln is on.")
        print("refused:", record.scope, record.importance, record.analysis)

        server.status = 200
        server.answers["SaveAnalysis"] = "I would file this under databases."  # no JSON
        record = memory.remember("The glaze is blue.")
        print("prose:", record.scope, record.importance, record.analysis)

    print(len(heard.of(MemorySaveCompletedEvent)), "saves,", end=" ")
    print(len(heard.of(MemoryAnalysisFailedEvent)), "without the model")


if __name__ == "__main__":
    scripted()
    over_http()
