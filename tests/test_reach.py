"""Reach: how a view reads paths, and what it refuses."""

from __future__ import annotations

import pytest

from mnemotrace.errors import ScopeError, ScopePermissionError
from mnemotrace.reach import Reach

WHOLE = Reach(("/",), "/")
VIEW = Reach(("/agent/b",), "/agent/b")
SLICE = Reach(("/team/a", "/team/b"), None)
READ_ONLY = Reach(("/team/a",), None, read_only=True)


@pytest.mark.parametrize(
    ("reach", "path", "absolute"),
    [
        (WHOLE, "/x", "/x"),
        (WHOLE, "x", "/x"),
        (WHOLE, "/", "/"),
        (VIEW, "x", "/agent/b/x"),
        (VIEW, "/x", "/agent/b/x"),
        (VIEW, "/", "/agent/b"),
        (VIEW, "", "/agent/b"),
        (VIEW, "/agent/b", "/agent/b"),
        (VIEW, "/agent/b/x", "/agent/b/x"),
        (VIEW, "agent/b/x", "/agent/b/agent/b/x"),
        (VIEW, "/agent/bc", "/agent/b/agent/bc"),
        (VIEW, "/agent/a", "/agent/b/agent/a"),
        (SLICE, "/team/a/x", "/team/a/x"),
        (SLICE, "x", "/x"),
    ],
)
def test_a_path_means_one_absolute_scope(reach: Reach, path: str, absolute: str) -> None:
    assert reach.path(path) == absolute


@pytest.mark.parametrize(
    ("reach", "path", "roots"),
    [
        (WHOLE, None, ("/",)),
        (WHOLE, "/a", ("/a",)),
        (VIEW, None, ("/agent/b",)),
        (VIEW, "x", ("/agent/b/x",)),
        (SLICE, None, ("/team/a", "/team/b")),
        (SLICE, "/team", ("/team/a", "/team/b")),
        (SLICE, "/", ("/team/a", "/team/b")),
        (SLICE, "/team/b/x", ("/team/b/x",)),
    ],
)
def test_reading_is_cut_down_to_what_is_in_reach(
    reach: Reach, path: str | None, roots: tuple[str, ...]
) -> None:
    assert reach.reading(path) == roots


@pytest.mark.parametrize("path", ["/team/c", "/elsewhere", "/team/ab", "team/c"])
def test_reading_outside_is_refused_by_name(path: str) -> None:
    with pytest.raises(ScopePermissionError, match="/team/a, /team/b"):
        SLICE.reading(path)


def test_a_slice_must_be_told_where_to_write() -> None:
    with pytest.raises(ScopePermissionError, match="/team/a, /team/b"):
        SLICE.writing(None)
    assert SLICE.writing("/team/b/x") == "/team/b/x"
    assert VIEW.writing(None) is None


@pytest.mark.parametrize("path", ["/", "/team", "/team/c", "/team/ab", "/elsewhere"])
def test_writing_outside_is_refused_by_name(path: str) -> None:
    with pytest.raises(PermissionError, match="/team/a, /team/b"):
        SLICE.writing(path)


def test_no_path_leads_out_of_a_scope_view() -> None:
    for path in ("..", "../a", "/agent/b/../a", "x/../../a"):
        with pytest.raises(ScopeError):
            VIEW.writing(path)
        with pytest.raises(ScopeError):
            VIEW.reading(path)


def test_a_read_only_view_refuses_every_write() -> None:
    for path in (None, "/team/a", "/team/a/x"):
        with pytest.raises(PermissionError, match="read-only"):
            READ_ONLY.writing(path)
    with pytest.raises(PermissionError, match="read-only"):
        READ_ONLY.require_writable()
    WHOLE.require_writable()
