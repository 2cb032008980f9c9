"""Memory in any class: `MemoryMixin` adds `remember`, `recall` and `extract_memories`.

Run it with `python examples/mixin_any_class.py`; it needs no network and no key.
"""

from mnemotrace import Memory, MemoryMixin, MemoryScope


class Gardener(MemoryMixin):
    """A class of your own; give each object the part of the memory it may use."""

    def __init__(self, name: str, memory: MemoryScope) -> None:
        self.name = name
        self.memory = memory

    def notice(self, text: str, importance: float = 0.5) -> None:
        self.remember(text, importance=importance, source=self.name)

    def advise(self, question: str) -> str:
        known = self.recall(question, limit=2)
        if known.confidence < 0.3:  # something is always nearest; that need not be an answer
            return f"{self.name}: I know nothing about that."
        return f"{self.name} (confidence {known.confidence:.2f}):\n{known.format()}"


def main() -> None:
    with Memory(storage=":memory:", llm=None) as memory:
        rose = Gardener("Rose", memory.scope("/garden/front"))
        basil = Gardener("Basil", memory.scope("/garden/kitchen"))

        rose.notice("The roses by the gate were cut back in February.", importance=0.8)
        rose.notice("Snails come out after rain.")
        basil.notice("Tomatoes need water every evening in July.", importance=0.9)
        basil.notice("The mint has to stay in its pot.")

        for gardener in (rose, basil):
            for question in ("When were the roses cut?", "How often do tomatoes need water?"):
                print(question)
                print(gardener.advise(question), end="\n\n")

        print(memory.tree())


if __name__ == "__main__":
    main()
