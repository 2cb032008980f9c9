"""The main screen: scopes, records, filter, record, and the actions on it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from textual.widgets import Input

from mnemotrace import Memory
from mnemotrace.tui.browser import PAGE
from mnemotrace.tui.details import ScrolledText
from mnemotrace.tui.records import RecordList
from mnemotrace.tui.scopes import ScopeTree

from .conftest import Person, browsing

NEWEST_FIRST = [
    "Rent is due on the first.",
    "青い釉薬は月曜日に届きます。",
    "유약은 선반 위에 있습니다. 🏺",
    "The kiln is fired on Mondays.",
]


async def apply(person: Person, text: str) -> None:
    """Put a filter in place of the one there is."""
    await person.press("slash")
    person.one(Input, "#filter").value = text
    await person.press("enter")


def _lists(person: Person, wanted: list[str] | int) -> bool:
    return wanted in (person.listed, len(person.listed))


async def test_it_opens_with_the_scopes_their_counts_and_the_newest_records(studio: Memory) -> None:
    async with browsing(studio) as person:
        await person.sees("/ 4", "studio 3", "glazes 2", "kiln 1", "office 1", "1 of 4")
        assert person.listed == NEWEST_FIRST
        await person.until(lambda: person.text("#record").startswith("Rent is due"))
        assert "here" in person.text("#title")


async def test_moving_in_the_tree_lists_the_records_of_that_subtree(studio: Memory) -> None:
    async with browsing(studio) as person:
        await person.press("j", "j")  # past /office to /studio
        assert person.scope == "/studio"
        await person.until(lambda: person.listed == NEWEST_FIRST[1:])
        await person.press("down")
        assert person.scope == "/studio/glazes"
        await person.until(lambda: person.listed == NEWEST_FIRST[1:3])
        await person.press("left", "left")  # up to /studio, which then closes
        assert person.scope == "/studio"
        await person.press("j")
        assert person.scope == "/studio"  # nothing is below it any more
        await person.press("right", "right")
        assert person.scope == "/studio/glazes"
        await person.press("k", "k", "up")
        assert person.scope == "/"
        await person.until(lambda: person.listed == NEWEST_FIRST)


async def test_enter_goes_on_and_escape_goes_back_through_the_panes(studio: Memory) -> None:
    async with browsing(studio) as person:
        assert isinstance(person.app.focused, ScopeTree)
        await person.press("enter")
        assert isinstance(person.app.focused, RecordList)
        await person.press("down", "enter")
        assert isinstance(person.app.focused, ScrolledText)
        await person.until(lambda: person.text("#record").startswith("青い"))
        await person.press("escape")
        assert isinstance(person.app.focused, RecordList)
        await person.press("escape")
        assert isinstance(person.app.focused, ScopeTree)


async def test_tab_and_numbers_reach_every_pane(studio: Memory) -> None:
    async with browsing(studio) as person:
        await person.press("tab")
        assert isinstance(person.app.focused, RecordList)
        await person.press("tab")
        assert isinstance(person.app.focused, ScrolledText)
        await person.press("tab")
        assert isinstance(person.app.focused, ScopeTree)
        await person.press("shift+tab")
        assert isinstance(person.app.focused, ScrolledText)
        for key, kind in (("1", ScopeTree), ("2", RecordList), ("3", ScrolledText)):
            await person.press(key)
            assert isinstance(person.app.focused, kind)


async def test_every_key_that_moves_in_the_list_does(studio: Memory) -> None:
    async with browsing(studio, (60, 12)) as person:
        await person.press("2")
        records = person.one(RecordList)
        for key, place in (
            *(("down", 1), ("j", 2), ("up", 1), ("k", 0), ("end", 3), ("down", 3)),
            *(("home", 0), ("G", 3), ("g", 0), ("up", 0), ("pagedown", 3), ("pageup", 0)),
        ):
            await person.press(key)
            assert records.cursor == place, key


async def test_records_are_read_page_by_page_as_the_cursor_nears_the_end(memory: Memory) -> None:
    count = 2 * PAGE + 50
    memory.remember_many(
        [
            {
                "content": f"Note {n}",
                "scope": "/n",
                "created_at": datetime(2025, 1, 1, 0, n // 150, tzinfo=UTC),  # many of one time
            }
            for n in range(count)
        ]
    ).wait(60)
    expected = [record.content for record in memory.list_records(limit=count)]
    async with browsing(memory) as person:
        await person.sees(f"1 of {count}")
        assert person.listed == expected[:PAGE]
        await person.press("2", "end")
        await person.until(lambda: len(person.listed) == 2 * PAGE)
        assert person.one(RecordList).cursor == PAGE - 1
        await person.press("end")
        await person.until(lambda: len(person.listed) == count)
        await person.press("end")
        await person.sees(f"{count} of {count}")
        assert person.listed == expected


async def test_the_filter_takes_words_categories_sources_and_ids(studio: Memory) -> None:
    kiln = next(r.id for r in studio.list_records() if "kiln" in r.content)
    async with browsing(studio) as person:
        for text, found in (
            ("MONDAYS", ["The kiln is fired on Mondays."]),
            ("유약은 선반", ["유약은 선반 위에 있습니다. 🏺"]),
            ('"on mondays"', ["The kiln is fired on Mondays."]),
            ('"mondays on"', []),
            (kiln[:12], ["The kiln is fired on Mondays."]),
            ("category:stock", NEWEST_FIRST[1:3]),
            ("category:stock category:schedule", NEWEST_FIRST[1:]),
            ("category:schedule kiln", ["The kiln is fired on Mondays."]),
            ("source:ana", ["The kiln is fired on Mondays."]),
            ('source:"민아" 선반', ["유약은 선반 위에 있습니다. 🏺"]),
            ("source:nobody", []),
            ("", NEWEST_FIRST),
        ):
            await apply(person, text)
            await person.until(partial(_lists, person, found), text)
        await apply(person, "source:nobody")
        await person.sees("No record fits the filter.")
        assert person.text("#record") == ""


async def test_a_filter_that_cannot_be_read_is_told_and_changes_nothing(studio: Memory) -> None:
    async with browsing(studio) as person:
        await apply(person, '"open')
        await person.until(lambda: person.told)
        assert "Close every quote" in person.told[0]
        assert person.listed == NEWEST_FIRST
        assert person.one(Input, "#filter").has_focus  # it can be corrected at once


async def test_escape_leaves_the_filter_box_then_drops_the_filter(studio: Memory) -> None:
    async with browsing(studio) as person:
        await person.press("slash", "r", "e", "n", "t", "q", "backspace", "enter")
        await person.until(lambda: person.listed == NEWEST_FIRST[:1])
        await person.sees("1 of 1 found")
        await person.press("slash", "escape")
        assert isinstance(person.app.focused, RecordList)
        assert person.listed == NEWEST_FIRST[:1]
        await person.press("escape")
        await person.until(lambda: person.listed == NEWEST_FIRST)
        assert person.one(Input, "#filter").value == ""


async def test_words_are_found_among_more_records_than_one_page(memory: Memory) -> None:
    memory.remember_many(
        [
            {"content": f"Note {n}{' needle' if n in (3, 290) else ''}", "scope": "/n"}
            for n in range(320)
        ]
    ).wait(60)
    async with browsing(memory) as person:
        await apply(person, "needle")
        await person.until(lambda: len(person.listed) == 2)
        await person.sees("1 of 2 found")


async def test_a_record_is_shown_with_all_its_fields_and_what_changed(own_studio: Memory) -> None:
    kiln = next(r for r in own_studio.list_records() if "kiln" in r.content)
    own_studio.update(
        kiln.id,
        content="The kiln is fired on Tuesdays.",
        metadata={"room": 8, "checked": False, "by": "Ben"},
        importance=0.4,
    )
    async with browsing(own_studio) as person:
        await apply(person, "kiln")
        await person.until(lambda: "kiln" in person.text("#record"))
        shown = person.text("#record")
        for line in (
            "The kiln is fired on Tuesdays.",
            "scope       /studio/kiln",
            "categories  schedule",
            "importance  0.40",
            "created     2025-03-01 08:00:00 UTC",
            "source      ana",
            f"id          {kiln.id}",
            '"room": 8',
            "history: 2 versions",
            "version 2",
            "fired on [-Mondays-][+Tuesdays+].",
            "importance 0.9 → 0.4",
            "metadata room 7 → 8",
            "metadata by - → Ben",
            "version 1",
            "superseded",
        ):
            assert line in shown, line
        assert "checked - →" not in shown  # it did not change
        assert shown.index("version 2") < shown.index("version 1")


async def test_a_record_says_what_waits_for_a_model_and_the_list_marks_it(memory: Memory) -> None:
    memory.remember("Where does this go?")
    async with browsing(memory) as person:
        await person.until(lambda: "pending" in person.text("#record"))
        assert "a model is to fill in scope, categories, importance" in person.text("#record")
        assert " ? Where does this go?" in person.screen.replace("  ", " ")


async def test_private_records_are_those_of_the_viewer(studio: Memory) -> None:
    secret = "Ana looks for another studio."
    for options, sees in (
        ({}, False),
        ({"source": "ben"}, False),
        ({"source": "ana"}, True),
        ({"include_private": True}, True),
    ):
        async with browsing(studio, **options) as person:
            assert (secret in person.listed) is sees, options
            assert len(person.listed) == 4 + sees  # source= narrows nothing
            assert ("people 1" in person.screen) is sees
            assert ("/ 5" in person.screen) is sees
            await apply(person, "source:ana")
            await person.until(partial(_lists, person, 1 + sees))


async def test_a_record_is_forgotten_only_after_a_yes(own_studio: Memory) -> None:
    async with browsing(own_studio) as person:
        await person.until(lambda: "Rent" in person.text("#record"))
        for no in ("n", "escape", "enter", "q"):
            await person.press("f")
            await person.sees("Forget this record?", "Rent is due on the first.", "/office")
            await person.press(no)
        assert own_studio.info().record_count == 4
        await person.press("f", "y")
        await person.until(lambda: person.listed == NEWEST_FIRST[1:])
        await person.until(lambda: any("Forgotten" in told for told in person.told))
        await person.sees("/ 3")
        assert "office" not in person.screen
        assert [r.content for r in own_studio.list_records()] == NEWEST_FIRST[1:]
        await person.until(lambda: person.text("#record").startswith("青い"))


async def test_read_only_forgets_nothing(studio: Memory) -> None:
    async with browsing(studio, read_only=True) as person:
        await person.until(lambda: "Rent" in person.text("#record"))
        await person.press("f", "y")
        await person.until(lambda: any("--read-only" in told for told in person.told))
        assert "read-only" in person.text("#title")
        assert studio.info().record_count == 4


async def test_what_was_forgotten_elsewhere_is_said_not_raised(own_studio: Memory) -> None:
    async with browsing(own_studio) as person:
        await person.until(lambda: "Rent" in person.text("#record"))
        own_studio.forget(scope="/office")
        await person.press("f", "y")
        await person.until(lambda: any("not there any more" in told for told in person.told))
        await person.until(lambda: person.listed == NEWEST_FIRST[1:])


async def test_reload_shows_what_is_new_and_keeps_scope_and_cursor(own_studio: Memory) -> None:
    async with browsing(own_studio) as person:
        await person.press("j", "j", "j")  # /studio/glazes
        await person.until(lambda: person.listed == NEWEST_FIRST[1:3])
        await person.press("2", "down")
        own_studio.remember("The wheel squeaks.", scope="/studio/glazes/wheels")
        await person.press("r")
        await person.until(lambda: person.listed[:1] == ["The wheel squeaks."])
        assert person.scope == "/studio/glazes"
        await person.sees("▶ glazes 3", "3 of 3")
        current = person.one(RecordList).current
        assert current is not None
        assert current.excerpt.startswith("유약")


async def test_id_and_text_are_copied_and_a_huge_text_is_not(own_studio: Memory) -> None:
    rent = next(r for r in own_studio.list_records() if "Rent" in r.content)
    async with browsing(own_studio) as person:
        await person.until(lambda: "Rent" in person.text("#record"))
        await person.press("y")
        assert person.app.clipboard == rent.id
        await person.press("Y")
        assert person.app.clipboard == rent.content
        own_studio.update(rent.id, content="x" * 80_000)
        await person.press("r")
        await person.until(lambda: "xxx" in person.text("#record"))
        await person.press("Y")
        await person.until(lambda: any("80,000 bytes" in told for told in person.told))
        assert person.app.clipboard == rent.content


async def test_keys_that_need_a_record_do_nothing_where_there_is_none(studio: Memory) -> None:
    async with browsing(studio) as person:
        await apply(person, "nothing has this")
        await person.until(lambda: person.listed == [])
        await person.press("v", "y", "Y", "f", "enter", "up", "down", "end")
        assert person.app.screen is person.main
        assert person.told == []


async def test_an_error_is_told_in_full_and_the_screen_goes_on(own_studio: Memory) -> None:
    async with browsing(own_studio) as person:
        own_studio.close()
        await person.press("r")
        await person.until(lambda: person.told)
        assert person.told[0].startswith("This memory is closed. Open it again with Memory(")
        await person.press("question_mark")
        await person.sees("these keys")


async def test_help_has_every_key_that_is_bound(studio: Memory) -> None:
    async with browsing(studio, (84, 60)) as person:
        await person.press("question_mark")
        shown = await person.sees("Everywhere", "Memory", "Ask", "Saves")
        for key in ("Esc", "Tab", "a ", "/ ", "v ", "y Y", "o i", "f ", "r ", "R ", "d ", "+ -"):
            assert key in shown
        await person.press("escape")
        assert person.app.screen is person.main
        await person.press("f1", "f1")
        assert person.app.screen is person.main


async def test_q_and_ctrl_c_leave(studio: Memory) -> None:
    for key in ("q", "ctrl+c"):
        async with browsing(studio) as person:
            await person.press(key)
            await person.until(lambda: not person.app.is_running)
            assert person.app.return_code == 0
