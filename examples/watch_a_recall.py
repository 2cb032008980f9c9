"""Watch a recall while it runs, stop one early, and look at how a save ran."""

import asyncio
import tempfile

from mnemotrace import Memory
from mnemotrace.testing import ScriptedLLM

QUESTION = (
    "Before we fire the next load I would like to know how hot the kiln gets, which glaze we chose "
    "for the bowls, and whether anybody has noted how long the clay has to dry before it is fired."
)
ANSWERS = {"query_analysis": {"sub_queries": ["how hot is the kiln", "glaze of the bowls"]}}


async def main(folder: str) -> None:
    # ScriptedLLM stands for a real model; it takes a tenth of a second for each answer.
    llm = ScriptedLLM(ANSWERS, delay=0.1)
    async with Memory(llm=llm, storage=folder, query_analysis_threshold=100) as memory:
        receipt = await memory.aremember_many(
            ["The kiln fires at 1200 degrees.", "The bowls get the blue glaze."],
            scope="/studio", categories=["firing"], importance=0.6,
        )  # fmt: skip
        await receipt
        print("The save took:", " -> ".join(receipt.trace.path))

        print("\nThe recall:")
        async for update in memory.arecall_stream(QUESTION):
            print(update)
        print("\nThe answer:")
        print(update.recall.format())

        print("\nThis one is left at the first call of the model:")
        async for update in memory.arecall_stream(QUESTION):
            print(update)
            if update.kind == "llm":
                break


with tempfile.TemporaryDirectory() as place:
    asyncio.run(main(place))
