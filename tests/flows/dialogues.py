"""Long dialogues made for tests, and a model that reads prompts as they are meant to be read."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from mnemotrace.llm.protocol import LLMRequest

NAMES = ("Alice", "Bob", "Carol", "앨리스", "지민")
TALK = (
    "I see, thanks for telling us about it.",
    "Let me write that down before we go on.",
    "That took longer than anybody had thought it would.",
    "알겠습니다, 그렇게 하겠습니다.",
    "好的，我们继续。",
)


def dialogue(characters: int, seed: int = 0) -> tuple[str, list[str]]:
    """Return a dialogue of at least so many characters, and the facts in it, in order.

    Every fact is one sentence, said once, with a number of its own; around it is small talk.
    """
    rng = random.Random(seed)
    lines: list[str] = []
    facts: list[str] = []
    length = 0
    while length < characters:
        number = 1000 + len(facts)
        if rng.random() < 0.5:
            fact = f"Order {number} goes to {rng.choice(['Berlin', 'Seoul', 'Lima'])} by ship."
        else:
            fact = f"주문 {number} 번은 서울 창고에 있습니다."
        facts.append(fact)
        said = [rng.choice(TALK) for _ in range(rng.randrange(3))]
        said.insert(rng.randrange(len(said) + 1), fact)
        lines.append(f"{rng.choice(NAMES)}: {' '.join(said)}")
        length += len(lines[-1]) + 1
        if rng.random() < 0.1:
            lines.append("")
            length += 1
    return "\n".join(lines), facts


def section(request: LLMRequest, title: str) -> str:
    """Return what a prompt has under a title; "" when it has no such section."""
    for part in request.prompt.split("\n\n"):
        name, _, body = part.partition(":\n")
        if name == title:
            return body
    return ""


def text_of(request: LLMRequest) -> str:
    """Return the text that an extraction prompt is about."""
    text: str = json.loads(section(request, "Text"))
    return text


def known_of(request: LLMRequest) -> list[str]:
    """Return what an extraction prompt says is remembered."""
    lines = section(request, "Already remembered").splitlines()
    return [json.loads(line.partition(" = ")[2]) for line in lines]


def sentences(text: str) -> list[str]:
    """Return the sentences of a text without speakers, tags, list marks, scores and
    attributions."""
    found: list[str] = []
    for line in text.splitlines():
        line = re.sub(r"^\s*(?:[\w .]+:\s+)?(?:[-*>]\s+|\[\d\.\d+\]\s+)?", "", line)
        line = re.sub(r"</?\w+>", "", line)
        line = re.sub(r"\s*\([^()]*/[^()]*\)$", "", line)
        parts = re.split(r"(?<=[.!?。])\s+", line)
        found += [part.strip(' "“”') for part in parts if part.strip(' "“”')]
    return found


def reader(matching: str = ".") -> Callable[[LLMRequest], dict[str, Any]]:
    """Return a model that extracts every sentence of the text that matches."""

    def read(request: LLMRequest) -> dict[str, Any]:
        return {"memories": [s for s in sentences(text_of(request)) if re.search(matching, s)]}

    return read


def greedy(request: LLMRequest) -> dict[str, Any]:
    """Extract every sentence and, against what it was told, everything that is remembered."""
    return {"memories": [*known_of(request), *sentences(text_of(request))]}
