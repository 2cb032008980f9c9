"""Scope paths: one normal form, safe at segment borders, with letters of any script kept."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemotrace import scopes
from mnemotrace.errors import InvalidInputError, ScopeError


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/", "/"),
        ("", "/"),
        ("   ", "/"),
        ("///", "/"),
        ("/.", "/"),
        ("./.", "/"),
        ("a", "/a"),
        ("/a/", "/a"),
        ("//a//b///", "/a/b"),
        ("/a/./b", "/a/b"),
        (" /a / b ", "/a/b"),
        ("/a b/c", "/a b/c"),
        ("/A", "/A"),
        ("/a.b/..c/...", "/a.b/..c/..."),
        ("/Ünal", "/Ünal"),
        (unicodedata.normalize("NFD", "/Ünal"), "/Ünal"),
        (unicodedata.normalize("NFD", "/연구원"), "/연구원"),
        ("/研究员", "/研究员"),
        ("/app%", "/app%"),
        ("/app_1", "/app_1"),
        ("\u3000/a", "/a"),
    ],
)
def test_every_spelling_has_one_normal_form(path: str, normal: str) -> None:
    assert scopes.normalise(path) == normal
    assert scopes.normalise(normal) == normal


@pytest.mark.parametrize(
    "path",
    [
        "/..",
        "..",
        "/a/../b",
        "/a/ .. /b",
        "/a\nb",
        "/a\x00",
        "/\x7f",
        "/\ud800",
        "/" + "x" * 1024,
        "/x" * 33,
        None,
        5,
        ["/a"],
        b"/a",
    ],
    ids=lambda path: repr(path)[:20],
)
def test_what_cannot_be_a_path_is_a_scope_error(path: str) -> None:
    with pytest.raises(ScopeError) as raised:
        scopes.normalise(path)
    assert isinstance(raised.value, InvalidInputError)
    assert isinstance(raised.value, ValueError)
    assert len(str(raised.value)) < 300


def test_limits_are_reached_and_not_crossed() -> None:
    assert scopes.depth(scopes.normalise("/x" * scopes.MAX_DEPTH)) == scopes.MAX_DEPTH
    longest = "/" + "x" * (scopes.MAX_LENGTH - 1)
    assert scopes.normalise(longest) == longest


@pytest.mark.parametrize(
    ("path", "above"),
    [("/", ()), ("/a", ("/a",)), ("/a/b/c", ("/a", "/a/b", "/a/b/c")), ("a//b", ("/a", "/a/b"))],
)
def test_ancestors_are_the_path_and_all_above_but_the_root(
    path: str, above: tuple[str, ...]
) -> None:
    assert scopes.ancestors(path) == above
    assert scopes.depth(path) == len(above)


@pytest.mark.parametrize(
    ("root", "path", "inside"),
    [
        ("/", "/", True),
        ("/", "/a", True),
        ("/a", "/a", True),
        ("/a", "/a/b", True),
        ("/a/b", "/a", False),
        ("/app", "/apple", False),
        ("/app", "/app_1", False),
        ("/app", "/app%/x", False),
        ("/app%", "/apple", False),
        ("/a", "/", False),
    ],
)
def test_containment_goes_by_whole_segments(root: str, path: str, inside: bool) -> None:
    assert scopes.contains(root, path) is inside


@pytest.mark.parametrize(
    ("roots", "cover"),
    [
        ([], ()),
        (["/"], ("/",)),
        (["/", "/a"], ("/",)),
        (["/a/b", "/a", "/a/c"], ("/a",)),
        (["/b", "/a"], ("/a", "/b")),
        (["/app", "/apple", "/app/x"], ("/app", "/apple")),
        (["/a", "/a-b", "/a/b"], ("/a", "/a-b")),
        (["a/", "/a"], ("/a",)),
    ],
)
def test_cover_is_the_smallest_set_of_subtrees(roots: list[str], cover: tuple[str, ...]) -> None:
    assert scopes.cover(roots) == cover


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        (["/"], ["/"], ("/",)),
        (["/"], ["/a", "/b"], ("/a", "/b")),
        (["/a"], ["/a/b", "/c"], ("/a/b",)),
        (["/a/b"], ["/a"], ("/a/b",)),
        (["/a"], ["/b"], ()),
        (["/app"], ["/apple"], ()),
        ([], ["/"], ()),
        (["/a", "/b"], ["/b/c", "/a"], ("/a", "/b/c")),
    ],
)
def test_intersection_keeps_what_lies_in_both(
    left: list[str], right: list[str], both: tuple[str, ...]
) -> None:
    assert scopes.intersect(left, right) == both
    assert scopes.intersect(right, left) == both


@pytest.mark.parametrize(
    ("path", "above"), [("/", "/"), ("/a", "/"), ("/a/b", "/a"), ("a/b/", "/a")]
)
def test_the_parent_is_one_level_up(path: str, above: str) -> None:
    assert scopes.parent(path) == above


def test_joining_reads_a_path_as_relative() -> None:
    assert scopes.join("/a", "b/c") == "/a/b/c"
    assert scopes.join("/a", "/b") == "/a/b"
    assert scopes.join("/", "b") == "/b"
    assert scopes.join("/a", "") == "/a"
    with pytest.raises(ScopeError):
        scopes.join("/a", "../b")


SEGMENTS = st.sampled_from(["a", "b", "ab", "a-b", "é", "가"])
PATHS = st.lists(SEGMENTS, max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(st.lists(PATHS, max_size=4), st.lists(PATHS, max_size=4), PATHS)
def test_sets_of_subtrees_behave_as_sets(left: list[str], right: list[str], path: str) -> None:
    def holds(roots: list[str] | tuple[str, ...]) -> bool:
        return any(scopes.contains(scopes.normalise(root), path) for root in roots)

    assert holds(scopes.cover(left)) == holds(left)
    both = scopes.intersect(scopes.cover(left), scopes.cover(right))
    assert holds(both) == (holds(left) and holds(right))


@given(st.text(max_size=30))
def test_normalising_is_stable_and_total(text: str) -> None:
    try:
        normal = scopes.normalise(text)
    except ScopeError:
        return
    assert scopes.normalise(normal) == normal
    assert normal.startswith("/")
    assert normal == "/" or not normal.endswith("/")
    assert unicodedata.is_normalized("NFC", normal)
