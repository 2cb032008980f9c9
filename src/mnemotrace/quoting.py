"""Texts of unknown origin, written so that they stay data wherever they are put.

A remembered text may hold markup, line breaks, fake chat roles or a chat template's own control
tokens. `quote` is for our prompts: one JSON string, which reads back exactly. `inert` is for text
that people and agents read: one line in which nothing opens a tag, a fence or a role.
"""

from __future__ import annotations

import json
import re

_BREAKS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Controls, and what nobody sees: bidirectional overrides, zero-width characters (not the joiners and
# marks that scripts and emoji need), and tag characters, which can carry a whole hidden sentence.
_CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\xad\u180e\u200b\u202a-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# What could be taken for a tag or a control token of a chat template: <|im_end|>, </s>, [INST].
_TAG = re.compile(r"<(?=[|/!?A-Za-z_\uff5c<])")
_ROLE = re.compile(r"\[(?=/?[A-Z_]{3,}\])")
_UNSAFE_IN_JSON = re.compile(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_PLAIN_LABEL = re.compile(r"[\w.@+/-]+")


def quote(text: str) -> str:
    r"""Return a text as a JSON string on one line that holds no tag or control token.

    ``json.loads`` gives the text back exactly. Letters of every script stay readable; line breaks
    of every kind, quotes and backslashes are escaped, and so is ``<`` or ``[`` where it could open
    a tag, as ``\u003c`` or ``\u005b``.
    """
    quoted = json.dumps(text, ensure_ascii=False)
    quoted = _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
    return _ROLE.sub(r"\\u005b", _TAG.sub(r"\\u003c", quoted))


def label(name: str) -> str:
    """Return a scope path, category or id as it is where it is one plain word, else quoted."""
    return name if _PLAIN_LABEL.fullmatch(name) else quote(name)


def inert(text: str) -> str:
    r"""Return a text as one line in which nothing is markup.

    ``&``, ``<`` and ``>`` become entities, as do back-ticks of a fence and the bracket of a role
    such as ``[INST]``; line breaks become a visible ``\n``, other control and invisible
    characters their code.
    """
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    plain = plain.replace("```", "&#96;&#96;&#96;")
    plain = _ROLE.sub("&#91;", plain)
    plain = _BREAKS.sub(r"\\n", plain)
    return _CONTROL.sub(_code, plain)


def _code(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
