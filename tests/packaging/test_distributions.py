"""What a user downloads holds the package, all of it once, and nothing else."""

from __future__ import annotations

import stat
import zipfile
from email import message_from_bytes

import pytest

from mnemotrace import __version__

from .conftest import ROOT, Built, wheel_contents

pytestmark = pytest.mark.slow

DIST_INFO = f"mnemotrace-{__version__}.dist-info"


def test_the_wheel_holds_exactly_the_package_and_its_metadata(built: Built) -> None:
    contents = wheel_contents(built.wheel_from_tree)
    package = {name: data for name, data in contents.items() if name.startswith("mnemotrace/")}
    assert package == built.package
    rest = {name.partition("/")[0] for name in contents} - {"mnemotrace"}
    assert rest == {DIST_INFO}


def test_flows_and_stores_are_inside_the_package_and_typed(built: Built) -> None:
    names = wheel_contents(built.wheel_from_tree)
    for name in (
        *("flows/recall.py", "stores/backend.py", "py.typed", "demo/transcript.md"),
        "trace_views/trace.schema.json",
    ):
        assert f"mnemotrace/{name}" in names


def test_no_file_is_in_the_wheel_twice_or_as_a_link(built: Built) -> None:
    with zipfile.ZipFile(built.wheel_from_tree) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names))
        assert not any(stat.S_ISLNK(entry.external_attr >> 16) for entry in archive.infolist())


def test_the_wheel_from_the_sdist_equals_the_one_from_the_tree(built: Built) -> None:
    assert wheel_contents(built.wheel_from_sdist) == wheel_contents(built.wheel_from_tree)


def test_the_sdist_holds_the_real_folders_the_tests_and_the_papers(built: Built) -> None:
    names = set(built.sdist_names())
    assert {
        "flows/recall.py",
        "stores/backend.py",
        "src/mnemotrace/records.py",
        "tests/conftest.py",
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "hatch_build.py",
    } <= names
    assert not any(name.startswith("src/mnemotrace/flows") for name in names)
    assert not any(name.startswith("src/mnemotrace/stores") for name in names)
    assert not any(name.endswith("@") for name in names)


def test_the_metadata_names_version_licence_python_and_command(built: Built) -> None:
    contents = wheel_contents(built.wheel_from_tree)
    metadata = message_from_bytes(contents[f"{DIST_INFO}/METADATA"])
    assert (metadata["Name"], metadata["Version"]) == ("mnemotrace", __version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert contents[f"{DIST_INFO}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert b"mnemotrace = mnemotrace.cli:main" in contents[f"{DIST_INFO}/entry_points.txt"]
