"""Ask: the query, the steps while they happen, matches, explanations."""

from __future__ import annotations

import asyncio
import functools
import threading

from textual.widgets import Input, OptionList

from mnemotrace import Memory
from mnemotrace.llm.protocol import LLMRequest
from mnemotrace.testing import FakeEmbedder, ScriptedLLM
from mnemotrace.tui.browser import BrowserScreen
from mnemotrace.tui.details import ScrolledText, WholeText
from mnemotrace.tui.explaining import explanation
from mnemotrace.tui.recalling import RecallScreen, RecordScreen

from .conftest import Person, browsing

WIDE = (110, 32)
"""Room for the first lines of every pane."""


async def ask(person: Person, query: str) -> RecallScreen:
    """Open the screen if need be, ask, and wait for what comes of it."""
    if not isinstance(person.app.screen, RecallScreen):
        await person.press("a")
    screen = person.app.screen
    assert isinstance(screen, RecallScreen)
    await person.press("slash")
    person.one(Input, "#query").value = query
    await person.press("enter")
    await person.until(lambda: "confidence" in person.text("#summary"), "an answer")
    return screen


async def test_a_recall_shows_matches_with_bars_reasons_explanation_and_trace(
    studio: Memory,
) -> None:
    async with browsing(studio, WIDE) as person:
        screen = await ask(person, "When is the kiln fired?")
        found = screen.found
        assert found is not None
        assert found[0].record.content == "The kiln is fired on Mondays."
        shown = await person.sees("1 matches", "The kiln is fired on Mondays.", "█", "lexical")
        assert f"{found[0].score:.2f}" in shown
        assert "analyze_query" in shown
        assert isinstance(person.app.focused, OptionList)
        told = person.text("#score")
        for name, value in found[0].explain()["components"].items():
            assert f"{name} " in told
            assert f"{value:.3f}" in told
        assert found[0].record.id in told
        assert f"confidence {found.confidence:.2f}" in person.text("#summary")
        await person.press("down")
        await person.until(lambda: found[1].record.id in person.text("#score"))


async def test_the_parts_of_an_explanation_add_up_to_the_score(studio: Memory) -> None:
    for match in studio.recall("kiln", limit=4):
        told = explanation(match).plain.splitlines()
        gave = [
            float(line.split("=")[1].split()[0]) for line in told if "×" in line and "." in line
        ]
        assert len(gave) == 3
        assert abs(sum(gave) - match.score) < 0.002
        assert told[0].startswith(f"score {match.score:.3f}")


async def test_steps_are_seen_while_they_happen_and_escape_stops_them() -> None:
    reached, go_on = threading.Event(), threading.Event()
    fake = FakeEmbedder()

    def held(texts: list[str]) -> list[list[float]]:
        if texts == ["held"]:
            reached.set()
            go_on.wait(30)
        return fake.embed(texts)

    with Memory(llm=None, storage=":memory:", embedder=held) as memory:
        memory.remember("The wheel is held by a bolt.", scope="/studio")
        try:
            async with browsing(memory, WIDE) as person:
                await person.press("a")
                await person.write("held")
                await person.press("enter")
                await person.until(reached.is_set)
                shown = await person.sees("Recalling", "not finished")
                assert "synthesize" not in shown
                await person.press("f2")  # the screen goes on while the embedder does not answer
                assert "depth shallow" in person.text("#title")
                await person.press("f2")
                await person.press("escape")
                await person.until(lambda: person.text("#summary") == "Stopped.")
                assert isinstance(person.app.screen, RecallScreen)
                go_on.set()
                await ask(person, "held")
                shown = await person.sees("bolt", "analyze_query")
                assert "not finished" not in shown
                await person.press("escape")
                assert isinstance(person.app.screen, BrowserScreen)
        finally:
            go_on.set()


async def test_calls_of_a_model_are_live_steps() -> None:
    go_on = threading.Event()

    async def answer(request: LLMRequest) -> dict[str, object]:
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        return {"sub_queries": ["kiln"], "complexity": "simple"}

    llm = ScriptedLLM({"query_analysis": answer})
    with Memory(llm=llm, storage=":memory:", embedder=FakeEmbedder()) as memory:
        memory.remember("The kiln is on.", scope="/s", categories=[], importance=0.5)
        try:
            async with browsing(memory, WIDE) as person:
                await person.press("a")
                person.one(Input, "#query").value = "kiln " * 60
                await person.press("enter")
                await person.sees("llm.query_analysis not finished")
                go_on.set()
                await person.until(lambda: "confidence" in person.text("#summary"))
        finally:
            go_on.set()


async def test_depth_limit_and_scope_are_what_was_chosen(studio: Memory) -> None:
    async with browsing(studio) as person:
        await person.press("j", "j", "j")
        await person.until(lambda: person.main._scope == "/studio/glazes")
        screen = await ask(person, "월요일 月曜日 kiln")
        assert "ask in /studio/glazes" in person.text("#title")
        assert screen.found is not None
        assert {m.record.scope for m in screen.found} == {"/studio/glazes"}
        trace = screen.found.trace
        assert trace is not None
        assert (trace.attrs["depth"], trace.attrs["limit"]) == ("deep", 10)
        await person.press("d", "minus", "minus", "minus")
        assert "depth shallow   limit 1" in person.text("#title")
        await person.press("slash", "f2", "f2", "f4", "f3")  # and from the query
        await person.press("enter")
        await person.until(lambda: screen.found is not None and len(screen.found) == 1)
        trace = screen.found.trace
        assert trace is not None
        assert (trace.attrs["depth"], trace.attrs["limit"]) == ("shallow", 1)


async def test_a_match_opens_as_a_record_with_history_and_whole_text(studio: Memory) -> None:
    async with browsing(studio) as person:
        screen = await ask(person, "kiln")
        found = screen.found
        assert found is not None
        await person.press("y")
        assert person.app.clipboard == found[0].record.id
        await person.press("v")
        assert isinstance(person.app.screen, WholeText)
        await person.press("escape", "enter")
        await person.until(lambda: isinstance(person.app.screen, RecordScreen))
        await person.sees("The kiln is fired on Mondays.", "history: 1 version")
        await person.press("Y")
        assert person.app.clipboard == "The kiln is fired on Mondays."
        await person.press("v", "q", "escape")
        assert screen.is_current
        await person.press("3")
        assert isinstance(person.app.focused, ScrolledText)
        await person.press("slash")
        assert isinstance(person.app.focused, Input)
        await person.press("down")
        assert isinstance(person.app.focused, OptionList)


async def test_private_records_are_recalled_by_their_viewer_only(studio: Memory) -> None:
    for source, sees in ((None, False), ("ben", False), ("ana", True)):
        async with browsing(studio, source=source) as person:
            screen = await ask(person, "Ana looks for another studio")
            assert screen.found is not None
            assert any(m.record.private for m in screen.found) is sees
            assert any("kiln" in m.record.content for m in screen.found)  # others are not left out


async def test_nothing_found_and_a_blank_query_are_said(studio: Memory) -> None:
    async with browsing(studio) as person:
        await person.press("a", "enter")
        await person.until(lambda: any("Write what" in told for told in person.told))
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder()) as empty:
        async with browsing(empty) as person:
            screen = await ask(person, "anything")
            assert screen.found == []
            assert "0 matches" in person.text("#summary")
            assert "Nothing was found" in person.text("#score")


async def test_a_failed_recall_is_told_in_full(memory: Memory) -> None:
    memory.remember("The ferry leaves at six.", scope="/port")
    embedder = memory._core.services.embedder.embedder
    async with browsing(memory) as person:
        embedder.fail = ConnectionError("no route to the embedder [red]at all[/red]")
        await person.press("a")
        await person.write("ferry")
        await person.press("enter")
        await person.until(lambda: person.told)
        assert "no route to the embedder [red]at all[/red]" in person.told[0]
        assert person.text("#summary") == "The recall failed."
        embedder.fail = False
        await ask(person, "ferry")
        await person.sees("The ferry leaves at six.")


def stands_at(matches: OptionList, number: int) -> bool:
    return matches.highlighted == number


async def test_the_keys_of_all_lists_work_on_the_matches(studio: Memory) -> None:
    async with browsing(studio, WIDE) as person:
        await person.press("a")
        screen = await ask(person, "kiln")
        matches = screen.query_one(OptionList)
        matches.focus()
        last = len(screen.found or []) - 1
        assert last >= 2
        for key, wanted in [("j", 1), ("j", 2), ("k", 1), ("G", last), ("g", 0)]:
            await person.press(key)
            await person.until(functools.partial(stands_at, matches, wanted))
