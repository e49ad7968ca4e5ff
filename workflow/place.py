"""Where a request stands in its run, whatever came first: the order of a run whose branches follow one another.

Rewards read turns in this order, so that they do not depend on how fast an engine answers. It holds no clock, and says
nothing of when something happened: that is the Trace's.
"""

from __future__ import annotations

MAX_PLACE = 256
"""Numbers of a place: what is forked deeper than 128 forks in one another shares it, and is in the order of arrival."""
Place = tuple[int, ...]
"""Count of what the outermost branch has asked or forked, index of the branch forked there, its own count, and so on.
Compared as tuples, branch 0 comes before branch 1, and what follows a fork after all of it. Empty: not known."""

_ESCAPES = {"%": "%25", "/": "%2F", "[": "%5B", "]": "%5D"}


def escaped(name: str) -> str:
    """A node's name as it stands in a path, where slashes part names and brackets hold a branch's index: two branches
    side by side have two paths, or would count what they ask by arrival."""
    return name.translate(str.maketrans(_ESCAPES))


def unescaped(name: str) -> str:
    """What `escaped` made this of."""
    for sign, escape in reversed(_ESCAPES.items()):
        name = name.replace(escape, sign)
    return name


def could_see(later: Place, earlier: Place) -> bool:
    """Whether the reply at `earlier` had come when `later` was asked: not where their branches run side by side. True
    where it is not known."""
    for depth, (one, other) in enumerate(zip(later, earlier, strict=False)):
        if one != other:
            return depth % 2 == 0 and one > other
    return True
