"""What an engine is, and whether two are the same: a name may be that of a place, where something else is put.

Not here: how the digest of a model's folder is made (`engine.pretrained`), and of weights that are loaded
(`engine.fingerprints`).
"""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol import Engine


class Identity(NamedTuple):
    name: str
    digest: str = ""
    """Of all that replies follow from beside what is asked (`engine.protocol.KnownEngine`); "" where nobody can tell,
    as of an endpoint."""

    def is_same(self, other: Identity) -> bool:
        """By digest, whatever the path, where both have one and are of one kind; else by name."""
        if self.digest and other.digest:
            return self.digest == other.digest and _kind(self) == _kind(other)
        return self.name == other.name


def identity(engine: Engine) -> Identity:
    return Identity(engine.name, getattr(engine, "digest", ""))


def _kind(one: Identity) -> str:
    return one.name.partition(":")[0]
