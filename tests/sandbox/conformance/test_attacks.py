"""Every attack of the corpus is contained by every configuration that runs here; the corpus leaves no family out."""

from collections import Counter

import pytest

from sandbox.conformance.attacks import ATTACKS, FAMILIES
from sandbox.conformance.contain import Verdict

REQUIRED = {
    # introspection
    "mro", "dunder getattr", "str subclass", "str.format", "string.Formatter", "frames", "traceback", "except*",
    "AttributeError.obj", "builtins", "function internals", "unicode", "guard shadowed", "class hooks",
    # modules
    "modules", "submodule walk", "shared class changed", "pickle and marshal", "raw memory",
    # resources
    "allocation", "giant string", "giant number", "int to str", "regex backtracking", "compile bomb", "recursion",
    "cyclic repr", "fork bomb", "thread bomb", "descriptors used up", "disk fill", "zip bomb", "json bomb",
    "output flood", "giant frame", "endless sleep",
    # channel and kernel
    "forged frame", "forged end", "signals", "ptrace", "/proc/self/mem", "process_vm", "vsock", "io_uring",
    "user namespaces", "symlinks", "/proc/1/root", "daemon", "processes", "files", "environment", "network",
    "shared memory", "descriptors inherited", "grade changed", "other processes asked about", "shared pages",
    "keyrings", "real arguments",
    # what libraries do for programs
    "planted key", "an object's own word", "any attribute of any object", "unbound special method",
    "docstring evaluated", "hooked string", "what lies behind", "address told",
}  # fmt: skip
"""Families that must be there, in two variants at least."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_attack_is_contained(verdicts: dict[str, list[Verdict]], family: str) -> None:
    if not verdicts[family]:
        pytest.skip("none of the family's attacks is in the sample")
    assert {verdict.attack.id: verdict.escapes for verdict in verdicts[family] if not verdict.contained} == {}
    assert [verdict.left_out for verdict in verdicts[family] if verdict.left_out] == []


def test_the_corpus_has_every_family_in_several_variants() -> None:
    counts = Counter(attack.family for attack in ATTACKS)
    assert {family for family in REQUIRED if counts[family] < 2} == set()
    assert len(ATTACKS) >= 80
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS)
    assert {attack.kind for attack in ATTACKS} == {"program", "unguarded", "code", "channel", "grade"}
