"""Pending and given-up saves, information, and a memory without records."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from mnemotrace import Memory
from mnemotrace.testing import FakeEmbedder

from .conftest import browsing


async def test_given_up_saves_are_shown_and_tried_again_after_a_yes(
    memory: Memory, embedder: FakeEmbedder
) -> None:
    memory.remember("The kiln is on.", scope="/s", categories=[], importance=0.5)
    embedder.fail = ConnectionError("embedder is away")
    memory.remember_many([f"Text {n}" for n in range(7)], scope="/s")
    memory.drain_writes()
    async with browsing(memory) as person:
        await person.press("o")
        await person.sees("Given up: 1", "7 texts", "embedder is away")
        shown = person.text("#text")
        assert "Text 0" in shown
        assert "and 2 more texts" in shown
        embedder.fail = False
        await person.press("R")
        await person.sees("Try 1 given-up batch again?")
        await person.press("n")
        assert memory.dead_letters() != []
        await person.press("R", "y")
        await person.until(lambda: "none was given up" in person.text("#text"))
        await person.until(lambda: any("1 batch" in told for told in person.told))
        await person.press("R")
        await person.until(lambda: any("No save was given up" in told for told in person.told))
        await person.press("escape", "r")
        await person.until(lambda: len(person.listed) == 8)


async def test_read_only_retries_nothing_and_the_texts_of_others_stay_hidden(
    memory: Memory, embedder: FakeEmbedder
) -> None:
    memory.remember("The kiln is on.", scope="/s", categories=[], importance=0.5)
    embedder.fail = ConnectionError("the text 'My secret' cannot be embedded")
    memory.remember_many(["My secret"], source="ana", private=True)
    memory.drain_writes()
    async with browsing(memory, read_only=True) as person:
        await person.press("o")
        await person.sees("1 more hold nothing that you may see")
        assert "secret" not in person.screen  # nor in the error
        await person.press("R", "y")
        await person.until(lambda: any("--read-only" in told for told in person.told))
    async with browsing(memory, source="ana", read_only=True) as person:
        await person.press("o")
        await person.sees("Given up: 1", "My secret")
    assert len(memory.dead_letters(include_private=True)) == 1


async def test_pending_saves_hold_nothing_up_and_show_when_they_are_made() -> None:
    go_on = threading.Event()
    fake = FakeEmbedder()

    def held(texts: list[str]) -> list[list[float]]:
        if "Later" in texts:
            go_on.wait(30)
        return fake.embed(texts)

    with Memory(llm=None, storage=":memory:", embedder=held) as memory:
        memory.remember("Now", scope="/s", categories=[], importance=0.5)
        try:
            receipt = memory.remember_many(["Later"], scope="/s")
            async with browsing(memory) as person:
                assert person.listed == ["Now"]
                await person.sees("1 saves pending (o)")
                await person.press("o")
                await person.sees("Waiting: 1", "Later", "not tried yet")
                await person.press("escape")
                go_on.set()
                await receipt
                await person.until(lambda: len(person.listed) == 2)
                assert "pending" not in person.text("#title")
        finally:
            go_on.set()


async def test_information_tells_of_scope_store_and_viewer(studio: Memory) -> None:
    async with browsing(studio, source="ana") as person:
        await person.press("j", "j", "j")  # past /office and /people to /studio
        await person.until(lambda: person.main._scope == "/studio")
        await person.press("i")
        await person.until(lambda: "embedder" in person.text("#text"))
        shown = person.text("#text")
        for line in (
            "scope         /studio",
            "records       3",
            "oldest        2025-03-01 08:00:00 UTC",
            "newest        2025-03-03 00:00:00 UTC",
            "categories    schedule, stock",
            "scopes below  /studio/glazes, /studio/kiln",
            "engine        embedded",
            "dimensions    64",
            "visible       public records and the private ones of ana",
            "changes       allowed, after a question",
        ):
            assert line in shown, line
        await person.press("escape")
        assert person.app.screen is person.main


async def test_a_place_without_a_memory_is_greeted_and_filled_later(tmp_path: Path) -> None:
    with Memory(llm=None, storage=tmp_path / "new", embedder=FakeEmbedder()) as memory:
        async with browsing(memory, place="new") as person:
            await person.sees("There is no memory at new yet.", "mnemotrace remember", "q leaves")
            await person.press("enter", "v", "y", "f", "j", "2", "3", "tab")  # nothing to do
            assert person.told == []
            assert not (tmp_path / "new").exists()  # looking makes nothing
            memory.remember("Here it is.", scope="/s", categories=[], importance=0.5)
            await person.press("r")
            await person.sees("Here it is.", "s 1")
            memory.reset()
            await person.press("r")
            await person.sees("There is no memory at new yet.")


async def test_where_all_is_private_it_says_how_to_see_it(memory: Memory) -> None:
    memory.remember("Mine", scope="/s", source="ana", private=True)
    async with browsing(memory) as person:
        await person.sees("Nothing that you may see is remembered at here.", "--include-private")
        assert "Mine" not in person.screen


async def test_warnings_of_the_library_become_notifications(studio: Memory) -> None:
    log = logging.getLogger("mnemotrace")
    before = list(log.handlers)
    async with browsing(studio) as person:
        thread = threading.Thread(target=log.warning, args=("No key for [bold]%s[/bold].\x1b", "x"))
        thread.start()
        await person.until(lambda: person.told)
        thread.join()
        assert person.told == ["No key for [bold]x[/bold].\\x1b"]
    assert log.handlers == before
