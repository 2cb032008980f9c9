"""Stores texts in one peer and answers queries, with vectors that were made beforehand.

Started by `benchmarks/multilingual.py` with the peer's own interpreter, as
``answers.py MODULE FOLDER``: the job is a JSON object in ``FOLDER/job.json``, the vectors of its
texts and queries are the rows of ``FOLDER/vectors.npy``, and the answers go to
``FOLDER/answers.json``. So every system ranks with the same embedder without installing it.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import workload


def main() -> None:
    """Do one job."""
    module, folder = sys.argv[1], Path(sys.argv[2])
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    texts, queries = job["texts"], job["queries"]
    rows = np.load(folder / "vectors.npy").tolist()
    vectors = dict(zip([*texts, *queries], rows, strict=True))

    # Peers take their embedder from `workload`, so it is put there before they are imported.
    workload.embed = lambda asked: [vectors[text] for text in asked]
    workload.DIMENSION = len(rows[0])
    peer = importlib.import_module(module).open_peer(folder / "store")
    items = [workload.Item(text, "/user/memory/facts", ["fact"], 0.5) for text in texts]
    peer.load(items)
    if peer.count() != len(texts):
        raise RuntimeError(f"{peer.count()} records stored after loading {len(texts)}")
    answers = {depth: [getattr(peer, depth)(query) for query in queries] for depth in job["depths"]}
    answers["llm_calls"] = peer.llm_calls()
    peer.close()
    (folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
