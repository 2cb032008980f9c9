"""Background saves: returned at once, on disk already, visible to the next recall.

`remember_many` accepts texts, writes them to the memory's outbox and returns a receipt; they are
encoded in the background. This script also shows what happens when the embedder is down, and that
a process that is killed loses nothing.

Run it with `python examples/background_saves.py`; it needs no network and no key.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mnemotrace import Memory
from mnemotrace.errors import SaveError

# A process that accepts three texts and is gone before any of them is encoded.
KILLED = """
import os, signal, sys, time
from mnemotrace import Memory

def slow_embedder(texts):
    time.sleep(60)

memory = Memory(storage=sys.argv[1], llm=None, embedder=slow_embedder)
memory.remember_many(["Fact A.", "Fact B.", "Fact C."])
print("  accepted three texts; now the process is killed", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        at_once(Path(folder) / "notes")
        embedder_down(Path(folder) / "retried")
        killed(Path(folder) / "killed")


def at_once(folder: Path) -> None:
    print("1. Saving does not wait")
    with Memory(storage=folder, llm=None) as memory:
        memory.remember("The embedding model is loaded by the first save.")
        start = time.perf_counter()
        receipt = memory.remember_many(
            [f"Sensor {number} is calibrated every {number + 1} weeks." for number in range(300)]
        )
        accepted = time.perf_counter() - start
        print(f"  {receipt}")
        # Reads wait for what was accepted before them, so this finds the newest text.
        best = memory.recall("How often is sensor 299 calibrated?")[0]
        found = time.perf_counter() - start
        print(f"  {accepted * 1000:.0f} ms to accept, {found * 1000:.0f} ms until recalled")
        print(f"  {best.record.content}")
        print(f"  {receipt}\n")


def embedder_down(folder: Path) -> None:
    print("2. The embedder is down for a moment")
    working = False

    def embedder(texts: list[str]) -> list[list[float]]:
        if not working:
            raise ConnectionError("embedding service: connection refused")
        return [[1.0, float(len(text))] for text in texts]

    with Memory(storage=folder, llm=None, embedder=embedder) as memory:
        receipt = memory.remember_many(["The boiler was serviced in May."])
        try:
            receipt.wait()
        except SaveError as error:
            print(f"  {error}")
        working = True
        records = receipt.wait(through_retries=True)
        print(f"  Saved after all: {records[0].content}\n")


def killed(folder: Path) -> None:
    print("3. The process is killed")
    subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    with Memory(storage=folder, llm=None) as memory:
        facts = sorted(match.record.content for match in memory.recall("facts"))
        print(f"  found when the memory was opened again: {', '.join(facts)}")


if __name__ == "__main__":
    main()
