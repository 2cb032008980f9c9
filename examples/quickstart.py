"""Remember, recall, look inside: the shortest tour of a memory.

Run it with `python examples/quickstart.py`; it needs no network and no key.
"""

from mnemotrace import Memory

FACTS = {
    "We decided to use PostgreSQL for the user database.": "/project/shop/decisions",
    "The API rate limit is 1000 requests per minute.": "/project/shop/api",
    "Our staging environment uses port 8080.": "/project/shop/environments",
    "결제 서비스는 매주 화요일에 배포합니다.": "/project/shop/releases",
    "用户数据每天凌晨两点备份。": "/project/shop/operations",
}


def main() -> None:
    # ":memory:" is a real store in a temporary folder. Leave `storage` out to keep one in
    # ./.mnemotrace/memory. llm=None: no language model, whatever keys this machine has.
    with Memory(storage=":memory:", llm=None) as memory:
        for fact, scope in FACTS.items():
            memory.remember(fact, scope=scope)

        for question in (
            "What database did we choose?",
            "On which day is the payment service deployed?",
            "备份什么时候进行？",
        ):
            print(question)
            for match in memory.recall(question, limit=2):
                print(f"  [{match.score:.2f}] {match.record.content}")
            print()

        print(memory.tree())
        print()
        print(memory.info("/project/shop"))

        print("\nWhy is the first answer first?")
        answer = memory.recall("What database did we choose?")
        for name, value in answer[0].explain()["components"].items():
            print(f"  {name:<10} {value:6.3f}")

        print("\nHow was it found?")
        print(answer.trace)


if __name__ == "__main__":
    main()
