"""Names of nodes and tools, which stand in transcripts: what they may hold, and the characters that nobody sees.

Pure functions over text. Printing is `metaagent.terminal`'s.
"""

from __future__ import annotations

import re

LONGEST_LABEL = 200
"""Characters of a name."""
UNSEEN = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u115f\\u1160\\u17b4\\u17b5"
    "\\u180b-\\u180f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb\\ud800-\\udfff"
    "\\U000110bd\\U000110cd\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
"""For a class of a regular expression: control and format characters, fillers, lone surrogates; not tabs and newlines.

Variation selectors of emoji (U+FE0F and its like) are not among them.
"""
HIDDEN = re.compile(f"(?![\\u200c\\u200d])[\\n\\t{UNSEEN}]")
"""One character that a name may not hold; those that join emoji and letters it may."""
_UNSEEN = re.compile(f"[{UNSEEN}]")


def visible(text: str) -> str:
    r"""`text` with what cannot be seen (control and format characters, lone surrogates) as `\x1b`-style escapes."""
    return _UNSEEN.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))


def label_problem(name: str) -> str | None:
    """Why this cannot be a name, in words that follow it; None where it can."""
    if len(name) > LONGEST_LABEL:
        return f"has {len(name):,} characters; the limit is {LONGEST_LABEL}"
    if wrong := HIDDEN.search(name):
        return f"holds U+{ord(wrong[0]):04X}, which cannot be seen; write it on one line, in plain characters"
    return None
