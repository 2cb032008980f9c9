"""Runs the notebooks, each from a clean kernel in an empty folder, and keeps what they show.

python notebooks/run.py          every notebook
python notebooks/run.py 03 04    those whose names begin like this

It needs a development installation, no network and no key. tests/test_notebooks.py runs them the
same way and compares what they show with what is kept, times and pictures aside.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parent
TIMEOUT = 300
"""Seconds for one cell."""
_KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "VIRTUAL_ENV", "PYTHONPATH")


def execute(path: Path, folder: Path, *, startup: str = "") -> NotebookNode:
    """Run a notebook from top to bottom and return it with its outputs.

    Args:
        path: the notebook; the file is only read.
        folder: an empty one. In it are the kernel's working folder (``work``), temporary files
            (``tmp``) and home (``home``); nothing of the user's settings and keys is passed on.
        startup: code that the kernel runs before the first cell.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
        nbclient.exceptions.CellTimeoutError: a cell took longer than `TIMEOUT`.
    """
    places = {name: folder / name for name in ("work", "tmp", "home")}
    for place in places.values():
        place.mkdir()
    profile = places["home"] / ".ipython" / "profile_default" / "startup"
    profile.mkdir(parents=True)
    (profile / "first.py").write_text(startup, encoding="utf-8")
    home = str(places["home"])
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {
        "HOME": home,
        "USERPROFILE": home,
        "IPYTHONDIR": str(places["home"] / ".ipython"),
        "MPLCONFIGDIR": str(places["home"] / "matplotlib"),
        "TMPDIR": str(places["tmp"]),
        "TEMP": str(places["tmp"]),
        "TMP": str(places["tmp"]),
        "PYTHONHASHSEED": "0",
        "NO_COLOR": "1",
        "OPENBLAS_NUM_THREADS": "1",  # else the times that are shown vary tenfold
    }
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(places["work"])}},
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
    )
    return tidied(client.execute(env=environment))


def tidied(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook without what differs from one machine or editor to another."""
    notebook.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata = NotebookNode()
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata = NotebookNode()
            if set(output.get("data", ())) - {"text/plain"}:
                output.data.pop("text/plain", None)  # a repr of what is shown better beside it
    return notebook


_TAGS = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)
_TIMES = re.compile(
    r"(?:[\d.,]+ -(?:>|&gt;) )?[-+]?\d[\d.,]*\s?(?:ms|s|µs)\b"  # also from one to another
    r"|\bx\d[\d.]*(?:\s|$)"  # and how many times as long
)
_PROMPTS = re.compile(  # their version, and their words, which a scripted model counts as tokens
    r"\d[\d,]*(?= tokens in| out\b)|(?<=tokens_in)\W+[\d,]+(?: -(?:>|&gt;) [\d,]+)?"
    r"|(?<=prompt_version)\W+\d+"
)
_LINES = re.compile(r"[\s\u2500-\u259f]+")
_IDS = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def shown(notebook: NotebookNode) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each code cell with what it shows, so that two runs on any machine are equal.

    Times, bars, line breaks, the wording of prompts, random ids, markup and pictures do not count;
    that there is a picture does.
    """
    cells = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        outputs = []
        for output in cell.outputs:
            if output.output_type == "stream":
                outputs.append((output.name, _plain(output.text)))
            elif output.output_type == "error":
                outputs.append(("error", output.ename))
            else:
                for kind, data in sorted(output.data.items()):
                    picture = kind.startswith("image/") and kind != "image/svg+xml"
                    outputs.append((kind, "" if picture else _plain(data)))
        cells.append((cell.source, outputs))
    return cells


def _plain(text: str) -> str:
    text = _IDS.sub("ID", _TAGS.sub(" ", text))
    text = _PROMPTS.sub("N", _LINES.sub(" ", text))
    return _LINES.sub(" ", _TIMES.sub("T ", text)).strip()


def main(names: list[str]) -> None:
    """Run the notebooks whose names begin with one of these, or all, and write them back."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and not path.name.startswith(tuple(names)):
            continue
        print(path.name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(path, Path(folder))
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
