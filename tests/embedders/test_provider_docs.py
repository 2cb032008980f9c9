"""docs/embedders.md says of each provider what the table in the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mnemotrace.embedders.providers.table import PROVIDERS
from mnemotrace.embedders.resolve import NAMES, resolve_embedder

from .test_provider_settings import library  # noqa: F401 - a fixture

TEXT = (Path(__file__).parents[2] / "docs" / "embedders.md").read_text(encoding="utf-8")
ROWS = {row.split("|")[1].strip(" `"): row for row in TEXT.splitlines() if row.startswith("| `")}
TUNING = {"timeout", "max_retries", "max_batch", "max_characters"}


def test_every_provider_has_a_row_and_no_other() -> None:
    assert set(ROWS) == set(NAMES)


@pytest.mark.parametrize("key", PROVIDERS)
def test_a_row_has_the_names_the_variables_and_the_install_line(key: str) -> None:
    row = PROVIDERS[key]
    named = set(re.findall(r"`([a-z_]+)`", "|".join(ROWS[key].split("|")[3:5])))
    variables = re.findall(r"`([A-Z_]+)`", ROWS[key])

    assert named == set(row.options) - TUNING
    assert variables == [
        name
        for option in sorted(
            (o for o in row.options.values() if o.variables),
            key=lambda o: ROWS[key].index(f"`{o.variables[0]}`"),
        )
        for name in option.variables
    ]
    default = row.options[row.model].default
    assert default is None or f"`{row.model}`: `{default}`" in ROWS[key]
    assert (row.install if row.extra else "litellm") in ROWS[key]


def test_the_examples_are_understood(library: Any) -> None:  # noqa: F811
    made: list[str] = []

    def memory(embedder: Any) -> None:
        made.append(resolve_embedder(embedder).provider)

    for code in re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        exec(compile(code, "docs/embedders.md", "exec"), {"Memory": memory})  # noqa: S102

    assert set(made) == {*PROVIDERS, "custom", "bundled"}


def test_every_extra_is_in_the_project_file() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    for row in PROVIDERS.values():
        assert row.extra is None or re.search(rf"^{row.extra} = \[", project, re.MULTILINE)
