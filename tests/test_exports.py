"""What the package shows: a short list, all of it there, nothing loaded before it is used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import mnemotrace

PUBLIC = [
    "BaseEventListener",
    "Flow",
    "LLM",
    "Memory",
    "MemoryMatch",
    "MemoryMixin",
    "MemoryRecord",
    "MemoryScope",
    "MemorySlice",
    "Recall",
    "SaveReceipt",
    "ScopeInfo",
    "areplay",
    "compare",
    "event_bus",
    "progress",
    "record",
    "reindex",
    "replay",
]


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(mnemotrace.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(mnemotrace))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_loads_and_is_documented(name: str) -> None:
    value = getattr(mnemotrace, name)
    assert inspect.getdoc(value)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__name__ == name
        assert value.__module__.startswith("mnemotrace.")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Memry"):
        mnemotrace.Memry  # noqa: B018
    assert not hasattr(mnemotrace, "flow")


def test_star_import_gives_the_public_names() -> None:
    code = "from mnemotrace import *; print(sorted(n for n in dir() if not n.startswith('_')))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == repr(PUBLIC)


def test_every_error_is_in_one_tree_and_says_when() -> None:
    from mnemotrace import errors

    kinds = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, Exception)
    ]
    assert len(kinds) >= 18
    for kind in kinds:
        assert issubclass(kind, errors.MnemotraceError)
        assert kind.__doc__
        assert kind.__name__ in (errors.__doc__ or "") or kind is errors.MnemotraceError
    assert issubclass(errors.ScopePermissionError, PermissionError)
    assert issubclass(errors.InvalidInputError, ValueError)
    assert issubclass(errors.ConfigurationError, ValueError)
    assert issubclass(errors.RecordNotFoundError, KeyError)
    assert str(errors.RecordNotFoundError("no record")) == "no record"
