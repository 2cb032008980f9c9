"""Checks of what a memory runs on: Python, libraries, keys, the tokenizer."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from importlib import metadata, util
from pathlib import Path

from mnemotrace import __version__
from mnemotrace.embedders.providers.table import PROVIDERS
from mnemotrace.llm.keys import KEYS, missing_key
from mnemotrace.memory import DEFAULT_LLM

from .report import Report

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TABLE = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
"""tiktoken keeps a table under the hash of where it comes from."""


def check_environment(report: Report) -> None:
    """Look at Python, the libraries, the keys and the tokenizer."""
    _libraries(report)
    _keys(report)
    _tokenizer(report)


def _libraries(report: Report) -> None:
    versions: dict[str, str] = {}
    wrong: list[str] = []
    for requirement in metadata.requires("mnemotrace") or ():
        if "extra ==" in requirement:
            continue
        found = _NAME.match(requirement)
        assert found is not None
        name = found[0]
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is not installed")
            continue
        if not _fits(versions[name], requirement):
            wrong.append(f"{name} is {versions[name]}, and {requirement} is needed")
    facts = {"mnemotrace": __version__, "python": platform.python_version(), **versions}
    if wrong:
        report.add(
            "libraries",
            "problem",
            f"Libraries do not fit: {'; '.join(wrong)}.",
            "Install mnemotrace again: pip install --upgrade mnemotrace.",
            **facts,
        )
    else:
        report.add(
            "libraries",
            "ok",
            f"mnemotrace {__version__} on Python {platform.python_version()}, with "
            f"{len(versions)} libraries of versions that fit.",
            **facts,
        )


def _fits(version: str, requirement: str) -> bool:
    """Tell whether a version meets a requirement; yes where `packaging` is not there to ask."""
    if util.find_spec("packaging") is None:
        return True
    from packaging.requirements import Requirement

    return Requirement(requirement).specifier.contains(version, prereleases=True)


def _keys(report: Report) -> None:
    names = {name for group in KEYS.values() for name in group}
    for provider in PROVIDERS.values():
        secret = (option for option in provider.options.values() if option.secret)
        names.update(name for option in secret for name in option.variables)
    found = sorted(name for name in names if os.environ.get(name))
    told = f"Set: {', '.join(found)}." if found else "No key of a model or an embedder is set."
    missing = missing_key(DEFAULT_LLM, {})
    if missing is None:
        report.add("keys", "ok", told, set=found)
    else:
        report.add(
            "keys",
            "note",
            f"{told} The default language model, {DEFAULT_LLM}, has none.",
            f"Nothing, if you use another model or none. Else set {missing}.",
            set=found,
        )


def _tokenizer(report: Report) -> None:
    chosen = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    folder = Path(chosen) if chosen else _shipped_tables()
    table = hashlib.sha1(_TABLE.encode(), usedforsecurity=False).hexdigest()
    if folder is not None and (folder / table).is_file():
        report.add("tokenizer", "ok", "Tokens are counted offline.")
    else:
        report.add(
            "tokenizer",
            "note",
            "The table for counting tokens is not on this machine; it is downloaded at first use, "
            "and without a network tokens are estimated.",
            "Unset TIKTOKEN_CACHE_DIR, or name a folder that has the table of o200k_base.",
        )


def _shipped_tables() -> Path | None:
    spec = util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0], "litellm_core_utils", "tokenizers")
