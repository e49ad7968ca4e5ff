"""`hashlib` for programs: digests of bytes, by the interpreter's own C modules, without OpenSSL.

OpenSSL would be one more library in every jail, and nothing here is for keeping secrets.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_HOMES = {
    "md5": ("_md5",),
    "sha1": ("_sha1",),
    "sha224": ("_sha2", "_sha256"),
    "sha256": ("_sha2", "_sha256"),
    "sha384": ("_sha2", "_sha512"),
    "sha512": ("_sha2", "_sha512"),
    "blake2b": ("_blake2",),
    "blake2s": ("_blake2",),
    "sha3_256": ("_sha3",),
    "sha3_512": ("_sha3",),
}
"""Where each is, in the order of Python's versions."""


class Digest:
    """What `hashlib.sha256()` and its like give."""

    def __init__(self, name: str, inner: Any) -> None:
        self.name, self._inner = name, inner
        self.digest_size, self.block_size = inner.digest_size, inner.block_size

    def update(self, data: bytes, /) -> None:
        self._inner.update(data)

    def digest(self) -> bytes:
        return self._inner.digest()

    def hexdigest(self) -> str:
        return self._inner.hexdigest()

    def copy(self) -> Digest:
        return Digest(self.name, self._inner.copy())


def digest_values() -> dict[str, object]:
    """The functions of `hashlib` that this interpreter has, and `new`."""
    made: dict[str, Callable[..., Digest]] = {}
    for name, homes in _HOMES.items():
        for home in homes:
            try:
                original = getattr(importlib.import_module(home), name)
            except (ImportError, AttributeError):
                continue
            made[name] = _hasher(name, original)
            break

    def new(name: str, data: bytes = b"", **options: Any) -> Digest:
        if name not in made:
            raise ValueError(f"unsupported hash type {name}; there are: {', '.join(sorted(made))}")
        return made[name](data, **options)

    return {**made, "new": new, "algorithms_available": frozenset(made)}


def _hasher(name: str, original: Callable[..., Any]) -> Callable[..., Digest]:
    def hasher(data: bytes = b"", /, *, usedforsecurity: bool = True, **options: Any) -> Digest:
        return Digest(name, original(data, **options))

    hasher.__name__ = hasher.__qualname__ = name
    return hasher
