"""Attacks put together by hypothesis, through real jails: several of the corpus in one run, however they are started.

The corpus makes each attack alone and as written. Here a run makes up to three, in any order, from a thread, a
destructor, at exit, from bytecode: neither what an attack changes nor where it runs from may open a way for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from bench import Bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.conformance.attacks import ATTACKS, Attack
from sandbox.conformance.attacks.attack import ESCAPED
from sandbox.conformance.contain import contain
from sandbox.conformance.outside import Outside

CODE, UNGUARDED = (
    [attack for attack in ATTACKS if attack.kind == kind and attack.says == ("blocked",) and not attack.lasts]
    for kind in ("code", "unguarded")
)
"""Those that try one thing after the other and say what was blocked, so that others can follow."""


OWN_LEFTOVERS = "import os\nos.closerange(3, 1024)\n"
"""What code has left open itself is no find for the next attack. (In a program's jail 3 is the channel.)"""


def run_of(source: str) -> str:
    return f"exec({source!r}, {{**globals()}})"


Start = Callable[[str], str]
STARTS: dict[str, Start] = {
    "as it is": lambda source: source,
    "exec": run_of,
    "bytecode": lambda source: (
        f"import marshal\nexec(marshal.loads(marshal.dumps(compile({source!r}, 'x', 'exec'))), {{**globals()}})"
    ),
    "a destructor": lambda source: f"class D:\n    def __del__(self): {run_of(source)}\nD()",
    "a generator": lambda source: f"def g():\n    yield {run_of(source)}\nnext(g())",
    "a trace function": lambda source: (
        f"import sys\ndef once(*_):\n    sys.settrace(None)\n    {run_of(source)}\nsys.settrace(once)\n(lambda: 0)()"
    ),
}
# A program's jail has neither threads nor memory for what C calls.
IN_CODE: dict[str, Start] = {
    "a callback from C": lambda source: f"import ctypes\nctypes.PYFUNCTYPE(None)(lambda: {run_of(source)})()",
    "a thread": lambda source: (
        f"import threading\nthread = threading.Thread(target=lambda: {run_of(source)})\nthread.start()\nthread.join()"
    ),
    "at exit": lambda source: f"import atexit\natexit.register(lambda: {run_of(source)})",
}


@st.composite
def mixed(draw: st.DrawFn, attacks: list[Attack], starts: dict[str, Start]) -> Attack:
    chosen = draw(st.lists(st.sampled_from(attacks), min_size=1, max_size=3, unique_by=lambda attack: attack.id))
    begun = [(attack, draw(st.sampled_from(sorted(starts)))) for attack in chosen]
    return replace(
        chosen[0],
        name=", then ".join(f"{attack.family}: {attack.name} ({start})" for attack, start in begun),
        source="\n".join(
            starts[start]((OWN_LEFTOVERS if attack.kind == "code" else "") + attack.source) for attack, start in begun
        )
        + "\n",
    )


FEW = settings(
    max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)


@pytest.mark.timeout(900)
@FEW
@given(attack=mixed(CODE, STARTS | IN_CODE))
def test_mixed_code_is_contained(bench: Bench, outside: Outside, attack: Attack) -> None:
    [verdict] = bench.run(contain(bench.subject, [attack], outside))
    assert verdict.escapes == ()


@pytest.mark.timeout(900)
@FEW
@given(attack=mixed(UNGUARDED, STARTS))
def test_a_mixed_program_without_policy_is_contained(bench: Bench, outside: Outside, attack: Attack) -> None:
    [verdict] = bench.run(contain(bench.subject, [attack], outside))
    if verdict.left_out:
        pytest.skip(verdict.left_out)
    assert verdict.escapes == ()


@pytest.mark.parametrize("start", STARTS | IN_CODE)
def test_what_is_started_so_does_run(bench: Bench, start: str) -> None:
    """Otherwise it would be no wonder that nothing escapes."""
    result = bench.run(bench.subject.sandbox.run_code((STARTS | IN_CODE)[start](f"print('{ESCAPED}'.lower())")))
    assert result.stdout == f"{ESCAPED.lower()}\n", result
