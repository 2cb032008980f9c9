"""From a wide screen down to 60x15, with and without colour."""

from __future__ import annotations

from functools import partial

import pytest
from textual.widgets import Footer

from mnemotrace import Memory
from mnemotrace.tui.browser import BrowserScreen
from mnemotrace.tui.keys import columns_for

from .conftest import Person, browsing


def panes(person: Person) -> list[str]:
    return [str(pane.id) for pane in person.app.screen.query(".pane") if pane.region.area]


def _shows(person: Person, count: int) -> bool:
    return len(panes(person)) == count


@pytest.mark.parametrize(("columns", "rows"), [(200, 60), (140, 40), (100, 24), (80, 24)])
async def test_all_panes_fit_on_a_wide_enough_screen(
    studio: Memory, columns: int, rows: int
) -> None:
    async with browsing(studio, (columns, rows)) as person:
        assert panes(person) == ["scopes-pane", "records-pane", "record-pane"]
        for pane in person.app.screen.query(".pane"):
            assert pane.region.right <= columns
            assert pane.region.bottom <= rows
            assert pane.region.height >= 8
        await person.press("a")
        assert len(panes(person)) == 3


async def test_a_small_screen_shows_one_pane_at_a_time_and_every_key_works(studio: Memory) -> None:
    async with browsing(studio, (60, 15)) as person:
        assert panes(person) == ["scopes-pane"]
        await person.sees("studio 3", "? Keys")
        await person.press("enter")
        assert panes(person) == ["records-pane"]
        await person.sees("Rent is due on the first.", "1 of 4")
        await person.press("enter")
        assert panes(person) == ["record-pane"]
        await person.sees("scope       /office")
        await person.press("slash")
        assert panes(person) == ["records-pane"]
        await person.write("kiln")
        await person.press("enter", "3")
        await person.sees("The kiln is fired on Mondays.")
        await person.press("escape", "escape", "1")
        assert panes(person) == ["scopes-pane"]
        await person.press("a")
        await person.write("kiln")
        await person.press("enter")
        await person.until(lambda: "confidence" in person.text("#summary"))
        await person.until(lambda: panes(person) == ["matches-pane"])
        await person.press("tab")
        assert panes(person) == ["score-pane"]
        await person.sees("score 0.")
        await person.press("tab")
        assert panes(person) == ["steps-pane"]
        await person.sees("analyze_query")
        await person.press("escape", "2", "f")
        await person.sees("Forget this record?", "leave it as it is")
        await person.press("n", "question_mark")
        await person.sees("Everywhere")


@pytest.mark.parametrize(("columns", "rows"), [(60, 15), (80, 24), (120, 30)])
async def test_every_key_is_in_the_footer(studio: Memory, columns: int, rows: int) -> None:
    async with browsing(studio, (columns, rows)) as person:
        await person.sees("? Keys", "v Whole text", "f Forget", "r Reload", "q Quit")
        await person.pilot.resize_terminal(200, rows)
        await person.until(lambda: person.one(Footer).region.height == 1)
        await person.pilot.resize_terminal(columns, rows)
        await person.sees("q Quit")


@pytest.mark.parametrize(
    ("room", "columns"),
    [(100, [7, 3, 4, 9]), (22, [7, 3, 4, 9]), (21, [9, 3, 4]), (14, [9]), (3, [9]), (0, [9])],
)
def test_keys_take_as_few_lines_as_they_fit_in(room: int, columns: list[int]) -> None:
    assert columns_for([7, 3, 4, 9], room) == columns
    assert columns_for([9] * 5, 17) == [9, 9]
    assert columns_for([], room) == []


async def test_resizing_keeps_the_pane_in_use(studio: Memory) -> None:
    async with browsing(studio, (150, 40)) as person:
        await person.press("2", "down", "3")
        for size, shown in (((60, 15), 1), ((100, 30), 3), ((60, 15), 1), ((150, 40), 3)):
            await person.pilot.resize_terminal(*size)
            await person.until(partial(_shows, person, shown))
            assert person.main.active == 2
            assert person.app.focused is person.main.query_one("#record")
        footer = person.one(Footer)
        assert footer.region.bottom == 40


async def test_no_color_is_heeded_and_the_cursor_is_still_seen(
    studio: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with browsing(studio) as person:
        assert person.app.no_color
        assert isinstance(person.app.screen, BrowserScreen)
        await person.press("2")
        strips = person.app.screen._compositor.render_strips()
        line = next(strip for strip in strips if "Rent is due" in strip.text)
        other = next(strip for strip in strips if "유약" in strip.text)

        def background(strip: object) -> set[object]:
            return {
                segment.style.bgcolor
                for segment in strip  # type: ignore[attr-defined]
                if segment.style and "2025" in segment.text
            }

        assert background(line) != background(other)
        colours = [
            c for s in strips for g in s if g.style for c in (g.style.color, g.style.bgcolor)
        ]
        for colour in colours:
            if colour is not None and colour.triplet is not None:
                red, green, blue = colour.triplet
                assert red == green == blue
