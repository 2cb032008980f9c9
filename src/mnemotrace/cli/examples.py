"""Examples that `--help` shows, by command. The tests run every one of them, in this order."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("mnemotrace demo", "mnemotrace demo --json > demo.json"),
    "remember": (
        'mnemotrace remember "We chose PostgreSQL." --scope /shop --category decision --id pg',
        'mnemotrace remember "Ana: I live in Oslo." --session monday --source ana --private',
        'mnemotrace remember "Use the new door code." --valid-from 2026-12-01 --expires-at 2027-06-01',
        "mnemotrace remember - --scope /notes --no-llm < note.txt",
        'mnemotrace remember "Tea is at four." --storage ./own --embedder my_embedder:embed',
    ),
    "recall": (
        'mnemotrace recall "Which database did we choose?" --trace',
        "mnemotrace recall database --scope /shop --depth shallow --limit 3 --json",
        "mnemotrace recall - --source ana < question.txt",
    ),
    "explain": (
        'mnemotrace explain pg "Which database did we choose?" --limit 3',
        "mnemotrace explain pg database --scope /notes --depth shallow --json",
    ),
    "list": (
        "mnemotrace list --scope /shop --limit 20",
        "mnemotrace list --json --include-private",
        "mnemotrace list --storage ./own --embedder my_embedder:embed",
    ),
    "show": ("mnemotrace show pg", "mnemotrace show pg --history --json"),
    "tree": ("mnemotrace tree", "mnemotrace tree /shop --max-depth 1 --json"),
    "info": ("mnemotrace info /shop", "mnemotrace info --json"),
    "export": (
        "mnemotrace export memory.jsonl --history --include-private",
        "mnemotrace export --scope /shop > shop.jsonl",
        "mnemotrace export memory.jsonl --embeddings --json",
    ),
    "import": (
        "mnemotrace import memory.jsonl --dry-run",
        "mnemotrace import memory.jsonl --storage ./copy --json",
        "mnemotrace import - --on-conflict skip < shop.jsonl",
    ),
    "reindex": ("mnemotrace reindex bundled",),
    "doctor": ("mnemotrace doctor", "mnemotrace doctor --storage ./copy --json"),
    "forget": (
        "mnemotrace forget pg --retire --yes",
        "mnemotrace forget --scope /notes --older-than 2030-01-01 --yes --json",
    ),
    "reset": ("mnemotrace reset --scope /shop --yes", "mnemotrace reset --yes --json"),
}

ON_SCREEN: dict[str, tuple[str, ...]] = {
    "browse": (
        "mnemotrace browse",
        "mnemotrace browse --source ana --read-only",
    ),
}
"""Those that take the whole terminal."""


def epilog(command: str) -> str:
    """Return the examples of a command for the end of its help, lines kept as they are."""
    lines = "\n".join(f"  {example}" for example in (EXAMPLES | ON_SCREEN)[command])
    return f"\b\nExamples:\n{lines}"
