"""Makes the links that an editable installation needs, where the sources came without them.

An sdist and some archives hold no symlinks, so `src/mnemotrace/flows` and `src/mnemotrace/stores`
are missing there. A wheel does without them: it takes the folders they stand for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LINKED = ("flows", "stores")
"""Folders at the root that are parts of the package."""


class LinkedFolders(BuildHookInterface):
    """Links `src/mnemotrace/<name>` to `<name>` before an editable wheel is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make what is missing; other builds need nothing.

        Raises:
            RuntimeError: a link cannot be made, or something else is in its place.
        """
        if version != "editable":
            return
        for name in LINKED:
            link = Path(self.root, "src", "mnemotrace", name)
            if link.is_dir():
                continue
            try:
                link.symlink_to(Path(os.pardir, os.pardir, name), target_is_directory=True)
            except OSError as error:
                raise RuntimeError(
                    f"{link} must be a link to the folder {name} at the root, and could not be "
                    f"made ({error.strerror or error}). On Windows turn on developer mode, or "
                    "clone with `git clone -c core.symlinks=true`; `pip install .` needs no links."
                ) from error
