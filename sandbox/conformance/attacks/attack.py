"""What one attack is: data, so that any backend can be put to it. Nothing here runs anything."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["program", "unguarded", "code", "channel", "grade"]
"""`program`: a program, run under the policy and once more as if it had escaped it. `unguarded`: plain Python in the
jail of a program. `code`: plain Python in a jail of code. `channel`: plain Python that misuses a program's channel.
`grade`: a wrong solution that wants to pass its tests."""

ESCAPED = "ESCAPED"
"""What an attack prints when it got what it was after."""


@dataclass(frozen=True)
class Attack:
    """`source` may name its targets as `@CANARY@` and so on (see `sandbox.conformance.outside`).

    Contained means: nothing outside was read, changed, contacted or disturbed; `ESCAPED` was not printed; the next run
    is as if nothing had happened; and the run ended in one of `ends` (if any are named), saying one of `says` (if any).
    Ends of code: `ok`, `exit`, `signal:<number>`, `limit:<kind>`. Ends of programs: `answer`, or a failure as
    `program_rejected`, `program_failed`, `limit:<kind>`.
    """

    family: str
    name: str
    kind: Kind
    source: str
    ends: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)
    worthless: bool = False
    """What it hands to `keep` is worth nothing."""
    control: bool = False
    """Harmless enough to be run without a jail, where it must succeed: the proof that it is an attack."""
    lasts: bool = False
    """It goes on until a limit stops it, so that it is worth running beside others."""

    @property
    def id(self) -> str:
        return f"{self.kind}: {self.family}: {self.name}"


REFUSED = ("program_rejected", "program_failed")
"""How a program under the policy ends when it is not allowed something."""


def programs(
    family: str,
    sources: dict[str, str],
    *,
    harmless: Iterable[str] = (),
    may_end: Iterable[str] = (),
    control: bool = True,
) -> list[Attack]:
    """Attacks on the policy. They hand their loot to `keep`; what the `harmless` ones get is worth nothing. Those that
    `may_end` are not refused where they come to their end with empty hands."""
    harmless, may_end = set(harmless), set(may_end)
    assert harmless | may_end <= set(sources), harmless | may_end
    return [
        Attack(
            family,
            name,
            "program",
            textwrap.dedent(source).strip() + "\n",
            ends=(*REFUSED, "answer") if name in harmless | may_end else REFUSED,
            worthless=name in harmless,
            control=control,
        )
        for name, source in sources.items()
    ]


def attempts(family: str, kind: Kind, sources: dict[str, str], *, control: Iterable[str] = ()) -> list[Attack]:
    """Attacks that use `attempt(what, action)` for each thing they try: all of it must be blocked."""
    control = set(control)
    assert control <= set(sources), control
    return [
        Attack(
            family,
            name,
            kind,
            _ATTEMPT + textwrap.dedent(source).strip() + "\n",
            ends=("ok", "answer"),
            says=("blocked",),
            control=name in control,
        )
        for name, source in sources.items()
    ]


_ATTEMPT = """\
import ctypes, errno, os, signal, socket, struct, sys, time
libc = ctypes.PyDLL(None, use_errno=True)
HOST, BYSTANDER = @HOST@, @BYSTANDER@
def attempt(what, action):
    try:
        result = action()
    except BaseException as error:
        print("blocked", what, type(error).__name__, errno.errorcode.get(getattr(error, "errno", 0) or 0, ""))
    else:
        print("ESCAPED", what, repr(result)[:300])
def syscall(number, *args):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result
def buffer(size=64):
    return ctypes.create_string_buffer(size)
"""
