"""Who sees what: scopes, slices, sources and private records.

Run it with `python examples/scopes_and_privacy.py`; it needs no network and no key.
"""

from mnemotrace import Memory, MemoryMatch
from mnemotrace.errors import ScopePermissionError


def show(title: str, matches: list[MemoryMatch]) -> None:
    print(title)
    for match in matches:
        record = match.record
        owner = f", private to {record.source}" if record.private else ""
        print(f"  {record.content}  ({record.scope}{owner})")
    if not matches:
        print("  (nothing)")
    print()


def main() -> None:
    with Memory(storage=":memory:", llm=None) as memory:
        # A scope is a subtree. Whoever holds the view sees and writes nothing outside of it.
        researcher = memory.scope("/agent/researcher")
        writer = memory.scope("/agent/writer")
        researcher.remember("Three papers cover long-term memory of agents.")
        researcher.scope("drafts").remember("Idea: compare memory by how well it forgets.")
        writer.remember("The article on agent memory is due on Friday.")
        memory.remember("Articles on memory stay under 2,000 words.", scope="/company/style")
        print(memory.tree(), end="\n\n")

        question = "What do we know about memory?"
        show("The researcher sees its own branch:", researcher.recall(question))
        show("The writer sees another one:", writer.recall(question))

        # A slice joins several subtrees. Read-only is the default.
        desk = memory.slice(["/agent/writer", "/company"])
        show("A slice joins branches:", desk.recall(question))
        try:
            desk.remember("Articles may be as long as they like.", scope="/company/style")
        except ScopePermissionError as error:
            print(f"Writing to it is refused: {error}\n")

        # A source says where a memory comes from. A private memory is seen by its source only.
        memory.remember("Alice takes her coffee black.", scope="/team", source="user:alice")
        memory.remember(
            "Alice is looking for another job.", scope="/team", source="user:alice", private=True
        )
        memory.remember("Bob brings the coffee on Mondays.", scope="/team", source="user:bob")
        team = memory.scope("/team")
        show("Nobody in particular asks:", team.recall("What about Alice?"))
        show("Alice asks:", team.recall("What about Alice?", source="user:alice"))
        show("Bob asks:", team.recall("What about Alice?", source="user:bob"))
        show(
            "An administrator asks:",
            team.recall("What about Alice?", include_private=True),
        )
        print("Counts follow the same rule:")
        print(f"  {team.info().record_count} records for everybody")
        print(f"  {team.info(include_private=True).record_count} for the administrator")


if __name__ == "__main__":
    main()
