"""The attack corpus: programs, code, frames on the channel, and solutions, each meant to get what it must not have.

Data only. Not here: judging: `sandbox.conformance.contain` puts a backend to it; `sandbox.conformance.outside` says
whether one succeeded.
"""

from __future__ import annotations

from sandbox.conformance.attacks import (
    code_arguments,
    code_files,
    code_kernel,
    code_limits,
    contract_doors,
    escaped,
    hooks,
    hostile_texts,
    introspection,
    libraries,
    library_powers,
    logs,
    modules,
    planting,
    program_limits,
    shadowing,
    wrong_solutions,
)
from sandbox.conformance.attacks.attack import ESCAPED, Attack, Kind
from sandbox.conformance.attacks.hostile_texts import TEXTS as HOSTILE_TEXTS

ATTACKS: tuple[Attack, ...] = tuple(
    attack
    for module in (
        introspection,
        modules,
        shadowing,
        planting,
        library_powers,
        contract_doors,
        hooks,
        libraries,
        logs,
        program_limits,
        escaped,
        code_files,
        code_kernel,
        code_arguments,
        code_limits,
        wrong_solutions,
        hostile_texts,
    )
    for attack in module.ATTACKS
)
FAMILIES = tuple(dict.fromkeys(attack.family for attack in ATTACKS))

__all__ = ["ATTACKS", "ESCAPED", "FAMILIES", "HOSTILE_TEXTS", "Attack", "Kind"]
