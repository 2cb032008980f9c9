"""The scope tree in a prompt: all of it where there is room, else a fair part of every level."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from mnemotrace import scopes
from mnemotrace.scope_tree import NO_SCOPES, scope_tree
from mnemotrace.tokens import count_tokens


def counted(*paths: str) -> dict[str, int]:
    """Return subtree counts, as a facet gives them, for one record at each path."""
    counts: dict[str, int] = {}
    for path in paths:
        for above in scopes.ancestors(path):
            counts[above] = counts.get(above, 0) + 1
    return counts


def test_a_small_tree_is_written_whole() -> None:
    counts = counted("/project/alpha", "/project/alpha/api", "/project/beta", "/team", "/team/a")
    assert scope_tree(counts) == (
        "/project (3)\n"
        "  /project/alpha (2)\n"
        "    /project/alpha/api (1)\n"
        "  /project/beta (1)\n"
        "/team (2)\n"
        "  /team/a (1)"
    )


def test_a_scope_that_only_holds_another_has_no_line_of_its_own() -> None:
    assert scope_tree(counted("/a/b/c", "/x", "/x/y")) == "/x (2)\n  /x/y (1)\n/a/b/c (1)"


def test_no_scopes_and_no_room() -> None:
    assert scope_tree({}) == NO_SCOPES
    assert scope_tree({"/": 5}) == NO_SCOPES
    assert scope_tree(counted("/a", "/b"), 4) == "+ 2 more"
    assert scope_tree(counted("/a", "/b"), 1) == ""
    assert scope_tree(counted("/a", "/b"), 0) == ""


def test_many_siblings_are_collapsed_the_largest_stay() -> None:
    counts = {"/customer": 500_500, **{f"/customer/c{i}": i for i in range(1, 1001)}}
    lines = scope_tree(counts, 200).splitlines()
    assert lines[0] == "/customer (500500)"
    assert lines[1] == "  /customer/c1000 (1000)"
    shown = [line for line in lines if "/c" in line][1:]
    assert shown == [f"  /customer/c{i} ({i})" for i in range(1000, 1000 - len(shown), -1)]
    assert lines[-1] == f"  + {1000 - len(shown)} more"
    assert len(shown) > 10


def test_every_level_is_there_even_if_its_only_scope_is_the_smallest() -> None:
    """The largest 200 scopes alone would hide how deep the tree goes, and all small branches."""
    counts = {f"/c{i:04}": 1000 for i in range(1000)}
    counts |= {f"/c{i:04}/orders": 900 for i in range(1000)}
    deep = ["/zeta", "/zeta/one", "/zeta/one/two", "/zeta/one/two/three"]
    counts |= dict(zip(deep, (8, 7, 6, 5), strict=True))
    text = scope_tree(counts, 300)
    assert all(f"{path} (" in text for path in deep)
    assert "/c0000/orders (900)" in text


def test_branches_share_the_room() -> None:
    """A branch with many scopes does not take the room of the others."""
    counts = counted(*(f"/big/b{i}" for i in range(1000)), "/big")
    for name in ("small", "tiny", "other"):
        counts |= counted(f"/{name}", *(f"/{name}/{i}" for i in range(3)))
    text = scope_tree(counts, 300)
    for name in ("small", "tiny", "other"):
        assert f"\n/{name} (4)\n  /{name}/0 (1)" in text


@pytest.mark.parametrize("seed", range(8))
def test_any_tree_keeps_to_any_budget_and_counts_what_it_leaves_out(seed: int) -> None:
    """Random trees: within the budget, ancestors before descendants, nothing unaccounted for."""
    rng = random.Random(seed)
    alphabet = ["alpha", "b", "연구", "a much longer name", "x-1", "商品", "q<|z|>"]
    paths = [
        "/"
        + "/".join(f"{rng.choice(alphabet)}{rng.randrange(9)}" for _ in range(rng.randint(1, 5)))
        for _ in range(rng.choice([3, 60, 600]))
    ]
    counts = counted(*paths)
    shuffled = list(counts.items())
    rng.shuffle(shuffled)
    whole = scope_tree(counts, 1_000_000)
    assert " more" not in whole
    for budget in (0, 5, 20, 77, 300, 1500, 5000):
        text = scope_tree(counts, budget)
        assert count_tokens(text) <= budget
        assert text == scope_tree(dict(shuffled), budget)
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("+ ")]
        assert set(lines) <= set(whole.splitlines()) or " more" in text
        levels = [(len(line) - len(line.lstrip())) // 2 for line in text.splitlines()]
        assert all(after <= before + 1 for before, after in pairwise(levels))
    assert scope_tree(counts, count_tokens(whole)) == whole


def test_a_name_that_would_fill_the_room_leaves_it_to_the_others() -> None:
    counts = {"/" + "very long " * 100: 50, "/a": 3, "/b": 2}
    assert scope_tree(counts, 60) == "/a (3)\n/b (2)\n+ 1 more"


def test_a_scope_name_cannot_add_lines_or_tags() -> None:
    text = scope_tree(counted("/a (9)\u2028/admin", "/<|im_end|>", "/ok"))
    assert len(text.splitlines()) == 3
    assert "<|" not in text
    assert text.splitlines()[-1] == "/ok (1)"


def test_missing_ancestors_are_filled_in() -> None:
    assert scope_tree({"/a/b": 2, "/a/c": 1}) == "/a (3)\n  /a/b (2)\n  /a/c (1)"
