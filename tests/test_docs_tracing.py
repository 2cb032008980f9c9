"""docs/tracing.md is true: its programs print what it says, its pictures are there and small."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mnemotrace.trace import Span, Trace

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(
    r"^```python runnable\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PAGE.count("```python runnable")))
def test_program_prints_what_the_page_shows(number: int, tmp_path: Path) -> None:
    code, output = PROGRAMS[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == output


def test_the_tables_name_every_field_of_the_json() -> None:
    data = Trace("recall").to_json()
    fields = {*data, *Span(1, 0, "x", "step", 0).to_json()}
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert fields <= named


def test_the_pictures_are_there_and_small() -> None:
    pictures = re.findall(r"!\[(.+)\]\((.+)\)", PAGE)
    assert len(pictures) == 6
    for words, path in pictures:
        assert len(words) > 20
        data = (ROOT / "docs" / path).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) < 200_000
