"""A workflow with a memory: a `Flow` is a llama-index `Workflow` whose steps can remember.

Every run adds a finding and writes a report that draws on the findings of earlier runs.

Run it with `python examples/flow_research.py`; it needs no network and no key.
"""

import asyncio

from workflows import step
from workflows.events import Event, StartEvent, StopEvent

from mnemotrace import Flow, Memory


class Gathered(Event):
    """New findings are in memory."""

    findings: str


class ResearchFlow(Flow):
    """Gather, then report."""

    @step
    def gather_data(self, ev: StartEvent) -> Gathered:
        findings: str = ev.findings
        self.remember(findings, scope="/research/databases")
        return Gathered(findings=findings)

    @step
    def write_report(self, ev: Gathered) -> StopEvent:
        past = self.recall("database performance benchmarks")
        earlier = [m.record.content for m in past if m.record.content != ev.findings]
        context = "\n".join(f"  - {text}" for text in earlier) or "  (none)"
        report = f"New findings: {ev.findings}\nPrevious context:\n{context}"
        return StopEvent(result=report)


class AsyncResearchFlow(Flow):
    """The same with async steps: the twins `aremember` and `arecall` do not block the loop."""

    @step
    async def gather_data(self, ev: StartEvent) -> Gathered:
        # A list is saved in the background; the result of the run waits for it.
        await self.aremember([ev.findings], scope="/research/databases")
        return Gathered(findings=ev.findings)

    @step
    async def write_report(self, ev: Gathered) -> StopEvent:
        past = await self.arecall("How many connections?", depth="shallow", limit=2)
        return StopEvent(result="\n".join(f"  {match.format()}" for match in past))


async def main() -> None:
    with Memory(storage=":memory:", llm=None) as memory:
        flow = ResearchFlow(memory=memory)
        for findings in (
            "PostgreSQL handles 10k concurrent connections. MySQL caps at 5k.",
            "SQLite answers point queries in 20 microseconds.",
            "PostgreSQL needs a pooler from 500 connections on.",
        ):
            print(await flow.run(findings=findings), end="\n\n")

        # A view keeps a flow within its scopes.
        inside = AsyncResearchFlow(memory=memory.scope("/research"))
        print("Asked from inside /research:")
        print(await inside.run(findings="DuckDB has one writer and no connections."))
        print()
        print(memory.tree())


if __name__ == "__main__":
    asyncio.run(main())
