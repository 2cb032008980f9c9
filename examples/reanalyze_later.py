"""A language model that is down: saves go on, and what it missed is made up for later.

Run it with `python examples/reanalyze_later.py`; it needs no network and no key. `Model` stands
for a real one, such as `llm="gpt-4o-mini"` or `llm="ollama/llama3.2"`.
"""

import json

from mnemotrace import Memory


class Model:
    def __init__(self) -> None:
        self.up = False

    def __call__(self, prompt: str) -> str:
        if not self.up:
            raise ConnectionError("the model's server is down")
        answer = {"scope": "/shop/decisions", "categories": ["database"], "importance": 0.9}
        return json.dumps(answer)


def main() -> None:
    model = Model()
    with Memory(storage=":memory:", llm=model, llm_timeout=5) as memory:
        memory.remember("We decided to use PostgreSQL for the user database.")
        memory.remember("Invoices are archived for ten years.", importance=0.4)
        print("while the model is down:")
        show(memory)

        model.up = True
        done = memory.reanalyze()
        print(f"later, {done} filled in, {len(done.failed)} left:")
        show(memory)
        print("again:", memory.reanalyze())


def show(memory: Memory) -> None:
    for record in memory.list_records():
        waits = f" (waits: {record.analysis})" if record.analysis else ""
        print(f"  {record.scope} {record.categories} {record.importance}{waits}: {record.content}")


if __name__ == "__main__":
    main()
