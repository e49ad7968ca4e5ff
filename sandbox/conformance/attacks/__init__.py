"""The attack corpus: programs, code, frames on the channel, and solutions, each meant to get what it must not have.

Data only. `sandbox.conformance.contain` puts a backend to it; `sandbox.conformance.outside` says whether one succeeded.
"""

from __future__ import annotations

from sandbox.conformance.attacks import (
    code_files,
    code_kernel,
    code_limits,
    escaped,
    grading,
    introspection,
    modules,
    program_limits,
    shadowing,
)
from sandbox.conformance.attacks.attack import ESCAPED, Attack, Kind

ATTACKS: tuple[Attack, ...] = tuple(
    attack
    for module in (
        introspection,
        modules,
        shadowing,
        program_limits,
        escaped,
        code_files,
        code_kernel,
        code_limits,
        grading,
    )
    for attack in module.ATTACKS
)
FAMILIES = tuple(dict.fromkeys(attack.family for attack in ATTACKS))

__all__ = ["ATTACKS", "ESCAPED", "FAMILIES", "Attack", "Kind"]
