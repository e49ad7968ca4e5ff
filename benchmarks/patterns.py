"""Finds regular expressions that take more than linear time: `python -m benchmarks.patterns`, minutes. `make check`
tries a part of them, another one each time (`--sample 0.2`).

Every pattern of the rooms is run over texts that are grown out of its own parts: what stands before a repetition, then
the repeated part many times, then something that does not fit; and the beginnings of what it matches, over and over,
each on a line or a word of its own where the pattern looks at those. A pattern that holds a text of 20,000 characters
for more than 100 ms is named with that text, linear or not, and so is one that holds it for more than 5 ms and four
times the text for more than eight times as long. Patterns that are made inside functions are evaluated with their
module's names; those that need more are listed, and looked at by people. This is a search for counterexamples, not a
proof; readers as a whole are grown in `tests/test_readers.py`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import random
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROOMS = ("workflow", "engine", "sandbox", "tasks", "search", "designer", "trainer", "metaagent", "speedrun")
LENGTH = 20_000
"""Characters of the longest text."""
SLOW_S = 0.1
"""A linear pattern takes about a millisecond."""
WORTH_A_LOOK_S = 0.005
GROWTH = 8.0
"""How much longer four times a text may take that is worth a look: 4 is linear, 16 is quadratic."""
ENOUGH_S = 2.0
_JAILED = ("worker", "formulas", "notation", "claims", "equations", "remarks", "units", "values")
RUN_IN_JAILS = {f"tasks/math/{name}.py": 2_000 for name in _JAILED}
"""Whose texts are shorter: characters that it reads, and a jail's clock stops it anyway."""
LOCAL = {
    "designer/bank.py": "`width` is a number of the caller's",
    "designer/features.py": "`letter` is one of three",
    "sandbox/conformance/docker_backends.py": "`host` is the name of this machine's Docker",
    "sandbox/language/stdlib/warning_names.py": "`pattern` is a program's own, matched in its own jail",
    "workflow/text.py": "`tag` is a word of the caller's, escaped",
}
"""Modules with a pattern made of local values, and why that is no danger."""

OWN = {"engine/spec.py": "the name of an engine, which the user types"}
"""Modules whose patterns see nothing that a program, an agent or a data set has written."""

_PALETTE = "a1 .,-!/\\{}[]()$*`<>:;=_'\"#%^&|~?+@x0Zé\t\n\r\x00…"
_METHODS = ("compile", "search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn")
_ANCHORED = {"match", "fullmatch"}
_ENDS = ("", "\x00", "\n", "a", " ")
_MANY = 8
"""Repetitions of at least so many are grown."""


@dataclass(frozen=True)
class Found:
    """A pattern of the repository, and how it is run over texts."""

    place: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


def patterns(path: Path, module: Any) -> Iterator[Found]:
    """All patterns of a module. Raises NameError for one that cannot be evaluated outside its function."""
    place = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_text())
    used: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _METHODS:
            used.setdefault(node.value.id, set()).add(node.attr)
    for name, value in vars(module).items():
        held = [value] if isinstance(value, re.Pattern) else _held(value)
        for pattern in held:
            yield Found(f"{place}: {name}", pattern, frozenset(used.get(name, {"search"})))
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name) or called.value.id != "re":
            continue
        assert isinstance(node, ast.Call)
        if called.attr in _METHODS and node.args:
            where = f"{place}:{node.lineno}"
            try:
                pattern = _evaluated(node, module)
            except NameError:
                if place not in LOCAL:
                    raise NameError(f"{where}: a pattern made of local names; bound it and say so in LOCAL") from None
                continue
            if isinstance(pattern, re.Pattern):
                yield Found(where, pattern, frozenset({called.attr}))


def _held(value: object) -> list[re.Pattern[Any]]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    found: list[re.Pattern[Any]] = []
    for item in items:
        if isinstance(item, re.Pattern):
            found.append(item)
        elif isinstance(item, str) and isinstance(value, dict) and "\\b" in item:
            found.append(re.compile(item, re.IGNORECASE))
    return found


def _evaluated(call: ast.Call, module: Any) -> object:
    assert isinstance(call.func, ast.Attribute)
    flags = next((keyword.value for keyword in call.keywords if keyword.arg == "flags"), None)
    place = {"sub": 4, "subn": 4, "split": 3, "compile": 1}.get(call.func.attr, 2)
    flags = flags if flags is not None or len(call.args) <= place else call.args[place]
    parts = [eval(compile(ast.Expression(part), "", "eval"), vars(module)) for part in (call.args[0], flags) if part]
    return re.compile(parts[0], parts[1] if len(parts) > 1 else 0)


def grown(pattern: re.Pattern[Any]) -> set[tuple[str, str, str]]:
    """(before, pump, after): texts that are likely to be slow are `before + pump * n + after`."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = re._parser.parse(source, pattern.flags & ~re.DEBUG)  # type: ignore[attr-defined]
    found: set[tuple[str, str]] = set()
    for variant in range(3):
        whole = _sample(tree, variant, "", found)
        for glue in _glues(source, pattern.flags):
            found |= {("", whole[:end] + glue) for end in range(1, min(len(whole), 40) + 1)}
    pumps = {(before, pump * 2) for before, pump in found if pump} | {pair for pair in found if pair[1]}
    return {(before, pump, after) for before, pump in pumps for after in _ENDS}


def _glues(source: str, flags: int) -> list[str]:
    """What may have to stand between two beginnings for both to be tried."""
    return ["", *(["\n"] if flags & re.MULTILINE else []), *([" "] if "\\b" in source else [])]


def _sample(tree: Iterable[Any], variant: int, before: str, found: set[tuple[str, str]]) -> str:
    """A text that the tree matches, roughly; adds its repetitions to `found`."""
    text = ""
    for kind, value in tree:
        name = str(kind)
        if name in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
            text += _character(name, value, variant)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, body = value
            pump = _sample(body, variant, before + text, found)
            if int(high) >= _MANY and pump:
                found.add((before + text, pump))
                found.add((before + text, pump[:1]))
            text += pump * max(int(low), 1 if variant else 0)
        elif name == "SUBPATTERN":
            text += _sample(value[-1], variant, before + text, found)
        elif name == "ATOMIC_GROUP":
            text += _sample(value, variant, before + text, found)
        elif name in ("ASSERT", "ASSERT_NOT"):  # it is looked at, and not passed
            _sample(value[1], variant, before + text, found)
        elif name == "BRANCH":
            samples = [_sample(branch, variant, before + text, found) for branch in value[1]]
            text += samples[variant % len(samples)]
    return text


def _character(name: str, value: Any, variant: int) -> str:
    if name == "LITERAL":
        return chr(value)
    if name == "ANY":
        return "a"
    if name == "NOT_LITERAL":
        return next(sign for sign in _PALETTE[variant:] if ord(sign) != value)
    fitting = [sign for sign in _PALETTE if _is_in(sign, value)]
    if not fitting:
        fitting = [
            chr(item[1] if isinstance(item[1], int) else item[1][0]) for item in value if str(item[0]) != "NEGATE"
        ]
    return fitting[variant % len(fitting)]


def _is_in(sign: str, members: list[Any]) -> bool:
    code, negated, inside = ord(sign), False, False
    for kind, value in members:
        name = str(kind)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            inside |= code == value
        elif name == "RANGE":
            inside |= value[0] <= code <= value[1]
        elif name == "CATEGORY":
            category = str(value).lower()
            kind_of = {"digit": r"\d", "space": r"\s", "word": r"\w"}[category.rpartition("_")[2]]
            inside |= (re.match(kind_of, sign) is not None) != ("not" in category)
    return inside != negated


def slowest(found: Found, longest: int = LENGTH) -> tuple[float, str] | None:
    """The first text that takes too long, with its seconds: the best of three tries."""
    for before, pump, after in grown(found.pattern):
        count = longest // len(pump)
        text, four = (before + pump * number + after for number in (count, 4 * count))
        for method in sorted(found.methods):
            took = _best(found.pattern, method, text, WORTH_A_LOOK_S)
            if took >= SLOW_S or (took >= WORTH_A_LOOK_S and _best(found.pattern, method, four, 0) > GROWTH * took):
                return took, f"{before!r} + {pump!r} * {count} + {after!r}"
    return None


def _best(pattern: re.Pattern[Any], method: str, text: str, enough_s: float) -> float:
    """The best of three tries; one, where it is below `enough_s` or hopeless."""
    tries: list[float] = []
    while len(tries) < 3 and not (tries and (tries[-1] < enough_s or tries[-1] >= ENOUGH_S)):
        tries.append(_seconds(pattern, method, text))
    return min(tries)


def _seconds(pattern: re.Pattern[Any], method: str, text: str) -> float:
    """How long the pattern holds this text, at most `ENOUGH_S`: the engine of `re` lets signals interrupt it."""
    subject: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
    start = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_REAL, ENOUGH_S, 1)  # again, should a callback have swallowed it
        if method in _ANCHORED:
            getattr(pattern, method)(subject)
        else:
            for _ in pattern.finditer(subject):
                pass
    except TimeoutError:
        return ENOUGH_S
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return time.process_time() - start


def interrupt(*_: object) -> None:
    """What SIGALRM has to do while patterns are timed."""
    raise TimeoutError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="only those of these files, as of a change")
    parser.add_argument("--sample", type=float, default=1.0, help="share of the patterns that are tried")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1_000_000), help="which; drawn where none is given"
    )
    given = parser.parse_args()
    draw = random.Random(given.seed)
    signal.signal(signal.SIGALRM, interrupt)
    sys.path.insert(0, str(ROOT))
    slow = checked = 0
    seen: set[tuple[Any, int]] = set()
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if given.files and path not in [file.resolve() for file in given.files]:
                continue
            if str(path.relative_to(ROOT)) in OWN or "re." not in path.read_text() or path.name == "__main__.py":
                continue
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            try:
                module = importlib.import_module(name)
            except ImportError as error:
                print(f"{path.relative_to(ROOT)}: left out, as it needs {error.name}")
                continue
            for found in patterns(path, module):
                key = (found.pattern.pattern, found.pattern.flags)
                if key in seen:
                    continue
                seen.add(key)
                if draw.random() >= given.sample:
                    continue
                checked += 1
                worst = slowest(found, RUN_IN_JAILS.get(str(path.relative_to(ROOT)), LENGTH))
                if worst:
                    slow += 1
                    print(f"{found.place}: {found.pattern.pattern!r:.160}\n    holds {worst[1]} for {worst[0]:.2f} s")
    share = f"--sample {given.sample:g} --seed {given.seed}"
    print(f"{checked} of {len(seen)} patterns ({share}), {slow} of them slow")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
