"""What a memory holds is data: it steers no terminal, is no markup, and does not stop the screen."""

from __future__ import annotations

import asyncio
import time
import unicodedata

import pytest
from rich.cells import cell_len
from textual.widgets import Footer, Input

from mnemotrace import Memory
from mnemotrace.tui.details import WholeText
from mnemotrace.tui.records import RecordList

from .conftest import Person, browsing

HOSTILE = "\x1b[31mred\x1b]0;title\x07 [red]markup[/red] [@click=app.quit]x[/] \u202egnp.exe\n</b>&"
WIDE = [
    "漢字かな交じり文を並べて幅を確かめる。" * 4,
    "한글 문장을 길게 늘여 너비를 본다. " * 6,
    "🏺🔥 emoji 👍🏽 " * 9,
]


def is_inert(person: Person) -> None:
    """Everything on the screen can be printed and is what it seems."""
    assert all(char.isprintable() or char == "\n" for char in person.screen)
    assert not any(unicodedata.bidirectional(c) in ("RLO", "LRO", "RLI") for c in person.screen)


@pytest.fixture
def hostile(memory: Memory) -> Memory:
    memory.remember(
        HOSTILE,
        scope="/a [red]b[/red]\u202ec",
        categories=["[blue]cat[/blue]"],
        metadata={"[k]": "\x1b[2J[v]", "long": "m" * 9000},
        importance=0.5,
        source="[bold]eve\x9b",
    )
    return memory


async def test_escapes_markup_and_marks_are_shown_as_they_are(hostile: Memory) -> None:
    async with browsing(hostile, (140, 40), place="[red]here\x1b") as person:
        shown = await person.sees("\\x1b[31mred", "[red]markup[/red]", "a [red]b[/red]\\u202ec")
        assert "[red]here\\x1b" in shown
        is_inert(person)
        text = person.text("#record")
        for part in ("[@click=app.quit]", "[bold]eve\\x9b", "[blue]cat[/blue]", '"[k]"', "</b>&"):
            assert part in text
        assert "\x1b" not in text
        assert "characters in all; v shows the rest" in text  # of the metadata
        hostile.update(hostile.list_records()[0].id, content=HOSTILE + "\x1b[1m")
        await person.press("r")
        await person.until(lambda: "version 2" in person.text("#record"))
        is_inert(person)
        await person.press("f")
        await person.sees("Forget this record?", "\\x1b[31mred")
        is_inert(person)
        await person.press("n", "i")
        await person.until(lambda: "[blue]cat[/blue]" in person.text("#text"))
        is_inert(person)
        await person.press("escape", "v")
        await person.sees("\\x1b[31mred", "part 1 of")
        is_inert(person)
        await person.press("escape", "a")
        person.one(Input, "#query").value = "red markup"
        await person.press("enter")
        await person.sees("[red]markup[/red]", "confidence")
        is_inert(person)
        await person.press("enter")
        await person.until(lambda: "history: 2 versions" in person.text("#record"))
        is_inert(person)


@pytest.mark.slow
async def test_a_megabyte_on_one_line_is_cut_and_can_be_read_to_its_end(memory: Memory) -> None:
    text = "".join(f"<{n:06}>" for n in range(131_072))
    assert len(text) == 1 << 20
    memory.remember(text, scope="/big", categories=[], importance=0.5)
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()  # how busy the screen was, whatever else this machine does
            await asyncio.sleep(0.01)
            longest = max(longest, time.thread_time() - before)

    ticker = asyncio.create_task(tick())
    async with browsing(memory) as person:
        await person.until(lambda: "1,048,576 characters in all; v shows" in person.text("#record"))
        await person.press("3", "G")
        await person.sees("history: 1 version")
        await person.press("v")
        whole = person.app.screen
        assert isinstance(whole, WholeText)
        read = [person.text("#whole")]
        await person.press("p")
        await person.sees("part 1 of 105", "<000000>")
        for _ in range(3):
            await person.press("n")
            read.append(person.text("#whole"))
        assert "".join(read) == text[:40_000]
        whole.action_turn(1000)
        await person.sees("part 105 of 105")
        await person.press("G")
        await person.sees("<131071>")
        await person.press("escape", "a")
        person.one(Input, "#query").value = "<000001>"
        await person.press("enter")
        await person.until(lambda: "confidence" in person.text("#summary"))
        await person.until(lambda: "characters in all" in person.text("#score"))
    ticker.cancel()
    assert longest < 1.0  # drawing all of it takes many times as long


async def test_wide_letters_keep_every_line_as_wide_as_the_list(memory: Memory) -> None:
    for n, text in enumerate(WIDE):
        memory.remember(text, scope=f"/넓은/{n}", categories=[], importance=0.5)
    async with browsing(memory) as person:
        records = person.one(RecordList)
        for size in ((110, 30), (95, 24), (61, 15)):
            await person.pilot.resize_terminal(*size)
            await person.press("2")
            width = records.scrollable_content_region.width
            for y in range(3):
                line = records.render_line(y).text
                assert cell_len(line) == width
                assert "…" in line
            shown = person.screen.splitlines()[1 : -person.one(Footer).region.height]
            assert {cell_len(line) for line in shown} == {size[0]}
