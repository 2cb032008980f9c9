"""Record what a memory does, with every answer of the models, and run it again without them.

A recording is a test case: a run that went wrong for a user can be replayed at your desk, without
their key, to the same result. Run this with `python examples/record_and_replay.py`; it needs no
network and no key, for its language model is a function that answers from a script.
"""

import json
import tempfile
from pathlib import Path

from mnemotrace import Memory, compare, record, replay
from mnemotrace.errors import ReplayError
from mnemotrace.testing import ScriptedLLM

QUESTION = (
    "We talked about the kitchen a few times this spring, and I remember that somebody brought up "
    "how we make tea in the office. Could you tell me all that we know about the kettle, the tea "
    "we buy and who looks after them?"
)


def model() -> ScriptedLLM:
    return ScriptedLLM(
        {
            "save_analysis": {"scope": "/kitchen", "categories": ["tea"], "importance": 0.6},
            "consolidation": {"actions": [], "insert_new": True},
            "query_analysis": {"sub_queries": ["the kettle", "who buys tea"], "keywords": ["tea"]},
            "exploration": {"gaps": ["who repairs the kettle"], "sub_queries": [], "scopes": []},
        }
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tape = Path(folder, "run.json")

        with Memory(storage=Path(folder, "first"), llm=model()) as memory:
            with record(tape):
                memory.remember("The kettle is descaled on the first Monday of the month.")
                memory.remember("Ana buys the green tea.")
                memory.remember_many(["The red kettle leaks.", "Ben prefers black tea."])
                answer = memory.recall(QUESTION, limit=3)
            print(answer.format(), end="\n\n")

        body = json.loads(tape.read_text(encoding="utf-8"))["body"]
        asked = sum(len(run["answers"]) for run in body["runs"])
        print(
            f"On the tape: {len(body['runs'])} runs, {asked} answers of the language model, ",
            end="",
        )
        print(f"{len(body['vectors'])} vectors; its mode is {tape.stat().st_mode & 0o777:o}.\n")

        # An empty store, no model and no embedder of its own: all of it comes from the tape.
        with Memory(storage=Path(folder, "second"), llm=None) as memory:
            done = replay(tape, memory)
            print(done)
            assert done.same
            print(f"{memory.info('/').record_count} records, as before.", end="\n\n")

        recalled = done[-1]
        assert recalled.recorded_trace is not None and recalled.trace is not None
        print("The recorded run beside the new one, step by step:")
        print(compare(recalled.recorded_trace, recalled.trace), end="\n\n")

        # What was not recorded is never made up.
        with Memory(storage=Path(folder, "third"), llm=model()) as memory:
            memory.remember("The kettle is descaled on the first Tuesday of the month.")
            try:
                replay(tape, memory)
            except ReplayError as error:
                print(f"ReplayError: {error}")


if __name__ == "__main__":
    main()
