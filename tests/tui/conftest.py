"""The browser over real stores, without a terminal; and a way to read what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Input, Static

from mnemotrace import Memory
from mnemotrace.testing import FakeEmbedder
from mnemotrace.tui.app import BrowseApp
from mnemotrace.tui.browser import BrowserScreen
from mnemotrace.tui.details import ScrolledText
from mnemotrace.tui.records import RecordList
from mnemotrace.tui.scopes import ScopeTree

W = TypeVar("W", bound=Widget)


@dataclass
class Person:
    """Somebody at the keyboard."""

    app: BrowseApp
    pilot: Pilot[None]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def write(self, text: str) -> None:
        """Type into the input that has the focus, key by key."""
        assert isinstance(self.app.focused, Input)
        for letter in text:
            self.app.focused.insert_text_at_cursor(letter)
            await self.pilot.pause(0)

    async def sees(self, *texts: str, seconds: float = 60.0) -> str:
        """Wait until all of these are on the screen; return the screen."""
        await self.until(lambda: all(text in self.screen for text in texts), texts, seconds)
        return self.screen

    async def until(
        self, met: Callable[[], Any], what: object = "condition", seconds: float = 60.0
    ) -> None:
        """Wait until a condition is met."""
        async with asyncio.timeout(seconds) as limit:
            try:
                while not met():
                    await self.pilot.pause(0.01)
            except (TimeoutError, asyncio.CancelledError):
                if limit.expired():
                    raise AssertionError(f"{what} did not come:\n{self.screen}") from None
                raise

    @property
    def screen(self) -> str:
        """What is shown, line by line, toasts included."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    def one(self, kind: type[W], selector: str = "") -> W:
        return (
            self.app.screen.query_one(selector, kind)
            if selector
            else self.app.screen.query_one(kind)
        )

    def text(self, selector: str) -> str:
        """All the text of a pane or a line, what is scrolled out of sight included."""
        widget = self.app.screen.query_one(selector)
        static = widget.static if isinstance(widget, ScrolledText) else widget
        assert isinstance(static, Static)
        return str(static.content)

    @property
    def main(self) -> BrowserScreen:
        (screen,) = (s for s in self.app.screen_stack if isinstance(s, BrowserScreen))
        return screen

    @property
    def listed(self) -> list[str]:
        """The texts in the record list."""
        return [row.excerpt for row in self.main.query_one(RecordList).rows]

    @property
    def scope(self) -> str:
        return self.main.query_one(ScopeTree).selected

    @property
    def told(self) -> list[str]:
        """The messages of all notifications."""
        return [notice.message for notice in self.app._notifications]


@asynccontextmanager
async def browsing(
    memory: Memory, size: tuple[int, int] = (84, 24), place: str = "here", **options: Any
) -> AsyncIterator[Person]:
    """Open the browser over a memory and wait until it has read the first records."""
    app = BrowseApp(memory, place, **options)
    async with app.run_test(size=size) as pilot:
        person = Person(app, pilot)
        await person.until(
            lambda: (
                isinstance(app.screen, BrowserScreen)
                and (
                    app.screen.has_class("-empty")
                    or app.screen.query_one(RecordList).message != "Reading…"
                )
            ),
            "the first records",
        )
        yield person


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
def memory(embedder: FakeEmbedder) -> Iterator[Memory]:
    with Memory(llm=None, storage=":memory:", embedder=embedder, save_attempts=1) as opened:
        yield opened


@pytest.fixture(scope="session")
def studio() -> Iterator[Memory]:
    """A small memory that no test may change."""
    with Memory(llm=None, storage=":memory:", embedder=FakeEmbedder()) as opened:
        yield furnished(opened)


@pytest.fixture
def own_studio(memory: Memory) -> Memory:
    """The same, to be changed."""
    return furnished(memory)


def furnished(memory: Memory) -> Memory:
    """Remember five texts: three scopes, four categories, two sources, one private record."""
    memory.remember_many(
        [
            {
                "content": "The kiln is fired on Mondays.",
                "scope": "/studio/kiln",
                "categories": ["schedule"],
                "created_at": "2025-03-01T08:00",
                "metadata": {"room": 7, "checked": False},
                "source": "ana",
                "importance": 0.9,
            },
            {
                "content": "유약은 선반 위에 있습니다. 🏺",
                "scope": "/studio/glazes",
                "categories": ["stock"],
                "created_at": "2025-03-02",
                "source": "민아",
            },
            {
                "content": "青い釉薬は月曜日に届きます。",
                "scope": "/studio/glazes",
                "categories": ["stock", "schedule"],
                "created_at": "2025-03-03",
            },
            {
                "content": "Ana looks for another studio.",
                "scope": "/people",
                "categories": ["staff"],
                "created_at": "2025-03-04",
                "source": "ana",
                "private": True,
            },
            {
                "content": "Rent is due on the first.",
                "scope": "/office",
                "categories": [],
                "created_at": "2025-03-05",
            },
        ]
    ).wait(30)
    return memory
