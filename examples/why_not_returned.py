"""Why did this memory come back, why did that one not, and what would bring it back?

Run it with `python examples/why_not_returned.py`; it needs no network and no key.
"""

from datetime import UTC, datetime, timedelta

from mnemotrace import Memory


def main() -> None:
    now = datetime(2026, 6, 15, 12, tzinfo=UTC)
    with Memory(storage=":memory:", llm=None) as memory:
        for days in range(1, 15):
            memory.remember(
                f"Build {100 - days} of the shop was deployed.",
                scope="/shop/releases",
                created_at=now - timedelta(days=days),
            )
        database = memory.remember(
            "We chose PostgreSQL for the shop's orders.",
            scope="/shop/decisions",
            created_at=now - timedelta(days=120),
        )
        salary = memory.remember(
            "Alice asks for a raise.", scope="/team", source="alice", private=True
        )
        sale = memory.remember(
            "The shop sells everything at half price.",
            scope="/shop/offers",
            created_at=now - timedelta(days=30),
            valid_from=now - timedelta(days=30),
            expires_at=now - timedelta(days=20),
        )

        query = "What was deployed in the shop?"
        best = memory.recall(query, limit=1, now=now)[0]
        print("Every number in a score follows from another:")
        print(best.explain(), end="\n\n")

        print("Came too late, because it is old:")
        why = memory.explain(query, database.id, limit=5, now=now)
        print(why, end="\n\n")

        # Each proposed change was tried; apply one to see it.
        change = why.changes[0]
        found = memory.recall(query, **{"limit": 5, "now": now, **change.arguments})
        assert database.id in [match.record.id for match in found]
        print(f"With {change} it is number {change.rank} of {len(found)}.", end="\n\n")

        print("Left out by the arguments, for two reasons:")
        print(memory.explain(query, database.id, scope="/shop/releases", since=now - timedelta(9)))
        print()
        print("Expired:")
        print(memory.explain(query, sale.id, now=now), end="\n\n")

        print("Private: the memory itself is told, and nobody else.")
        print(memory.explain("raise", salary.id))
        print(memory.scope("/team").explain("raise", salary.id))
        print(memory.scope("/team").explain("raise", "an-id-that-does-not-exist"))


if __name__ == "__main__":
    main()
