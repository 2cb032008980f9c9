"""The built distributions, made once: no isolation, so no network."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Built:
    package: dict[str, bytes]
    """What the wheel must hold of the package, as it was when the wheels were built."""
    sdist: Path
    wheel_from_tree: Path
    wheel_from_sdist: Path

    def sdist_names(self) -> list[str]:
        """Names in the sdist without its leading folder; symlinks end in ``@``."""
        with tarfile.open(self.sdist) as archive:
            return [
                member.name.partition("/")[2] + ("@" if member.issym() else "")
                for member in archive.getmembers()
                if not member.isdir()
            ]


def files_in_tree() -> dict[str, bytes]:
    """Every file of the package under the name it must have in the wheel."""
    found: dict[str, bytes] = {}
    for source, target in (
        ("src/mnemotrace", "mnemotrace"),
        ("flows", "mnemotrace/flows"),
        ("stores", "mnemotrace/stores"),
    ):
        for path in (ROOT / source).rglob("*"):
            inside = path.relative_to(ROOT / source)
            # Tools leave caches behind: __pycache__ and folders that start with a dot.
            if path.is_file() and not any(part.startswith((".", "__py")) for part in inside.parts):
                found[f"{target}/{inside.as_posix()}"] = path.read_bytes()
    return found


def wheel_contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """An sdist, a wheel from that sdist, and a wheel straight from the tree."""
    out = tmp_path_factory.mktemp("dist")
    package = files_in_tree()
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir")
    run(*build, out / "both", ROOT, cwd=out)
    run(*build, out / "tree", "--wheel", ROOT, cwd=out)
    (sdist,) = (out / "both").glob("*.tar.gz")
    (from_sdist,) = (out / "both").glob("*.whl")
    (from_tree,) = (out / "tree").glob("*.whl")
    return Built(package, sdist, from_tree, from_sdist)


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the wheel installed, to be put first on the path."""
    target = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--no-deps", "--no-index", "--target", target, built.wheel_from_sdist, cwd=target)
    return target


@dataclass(frozen=True)
class Editable:
    sources: Path
    """The unpacked sdist."""
    path: str
    """What an editable installation of it puts on the path."""


@pytest.fixture(scope="session")
def editable(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Editable:
    """The sdist unpacked, and an editable wheel made of it, as `pip install -e .` does."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built.sdist) as archive:
        archive.extractall(folder, filter="data")
    (sources,) = folder.iterdir()
    make = "import hatchling.build; print(hatchling.build.build_editable('..'))"
    name = run(sys.executable, "-c", make, cwd=sources).stdout.split()[-1]
    contents = wheel_contents(folder / name)
    (paths,) = (data for entry, data in contents.items() if entry.endswith(".pth"))
    return Editable(sources, paths.decode())
