"""`match` for programs: a statement becomes `if` and `elif` over calls of guards, which read what patterns name.

Python's own `match` reads attributes by the names in `__match_args__`, past every guard. Here the compiler hands each
pattern to `Matching`, and compiled code calls the functions at the end of this module. Which names may be read is
`sandbox.language.access`'s business.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox.language.access import checked_name, read_attribute
from sandbox.language.classes import is_class, is_program_class

_THEMSELVES = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
"""Classes whose one positional pattern stands for the object itself."""


class Matching:
    """Rewrites the match statements of one program. `visit` makes expressions of the program safe."""

    def __init__(self, visit: Callable[[ast.AST], Any]) -> None:
        self._visit = visit
        self._made = 0

    def statement(self, node: ast.Match) -> list[ast.stmt]:
        """`_match_1_ = subject` and one chain of `if`."""
        subject = self._temporary()
        chain: list[ast.stmt] = []
        for case in reversed(node.cases):
            test = self._test(case.pattern, subject)
            if case.guard is not None:
                test = ast.BoolOp(ast.And(), [test, self._visit(case.guard)])
            body = [part for each in case.body for part in _listed(self._visit(each))]
            chain = [ast.If(test=test, body=body or [ast.Pass()], orelse=chain)]
        assigned = ast.Assign(targets=[ast.Name(subject, ast.Store())], value=self._visit(node.subject))
        made: list[ast.stmt] = [assigned, *chain]
        for statement in made:
            for part in ast.walk(statement):
                if not hasattr(part, "lineno"):
                    ast.copy_location(part, node)
        return made

    def _temporary(self) -> str:
        """A name that no program can write: their own leading underscores are renamed."""
        self._made += 1
        return f"_match_{self._made}_"

    def _test(self, pattern: ast.pattern, subject: str) -> ast.expr:
        """An expression that is true where `subject` matches, and binds what the pattern captures."""
        if isinstance(pattern, ast.MatchValue):
            return ast.Compare(_load(subject), [ast.Eq()], [self._visit(pattern.value)])
        if isinstance(pattern, ast.MatchSingleton):
            return ast.Compare(_load(subject), [ast.Is()], [ast.Constant(pattern.value)])
        if isinstance(pattern, ast.MatchOr):
            return ast.BoolOp(ast.Or(), [self._test(each, subject) for each in pattern.patterns])
        if isinstance(pattern, ast.MatchAs):
            return _all([self._test(pattern.pattern, subject)] if pattern.pattern else [], [(pattern.name, subject)])
        if isinstance(pattern, ast.MatchSequence):
            starred = [index for index, each in enumerate(pattern.patterns) if isinstance(each, ast.MatchStar)]
            before = starred[0] if starred else len(pattern.patterns)
            after = len(pattern.patterns) - before - 1 if starred else 0
            found = _call("_match_sequence_", _load(subject), *map(ast.Constant, (before, bool(starred), after)))
            return self._parts(found, list(pattern.patterns))
        if isinstance(pattern, ast.MatchMapping):
            keys = ast.Tuple([self._visit(key) for key in pattern.keys], ast.Load())
            found = _call("_match_mapping_", _load(subject), keys, ast.Constant(pattern.rest is not None))
            rest = [ast.MatchAs(pattern=None, name=pattern.rest)] if pattern.rest is not None else []
            return self._parts(found, [*pattern.patterns, *rest])
        assert isinstance(pattern, ast.MatchClass), pattern
        names = ast.Tuple([ast.Constant(name) for name in pattern.kwd_attrs], ast.Load())
        count = ast.Constant(len(pattern.patterns))
        found = _call("_match_class_", _load(subject), self._visit(pattern.cls), count, names)
        return self._parts(found, [*pattern.patterns, *pattern.kwd_patterns])

    def _parts(self, found: ast.expr, patterns: Sequence[ast.pattern]) -> ast.expr:
        """True where the guard found something and each of its parts matches its pattern."""
        parts = self._temporary()
        tests: list[ast.expr] = [
            ast.Compare(ast.NamedExpr(ast.Name(parts, ast.Store()), found), [ast.IsNot()], [ast.Constant(None)])
        ]
        for index, pattern in enumerate(patterns):
            item = ast.Subscript(_load(parts), ast.Constant(index), ast.Load())
            if isinstance(pattern, ast.MatchStar):
                pattern = ast.MatchAs(pattern=None, name=pattern.name)
            if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
                tests += [_binding(pattern.name, item)] if pattern.name else []
                continue
            name = self._temporary()
            tests += [_binding(name, item), self._test(pattern, name)]
        return ast.BoolOp(ast.And(), tests) if len(tests) > 1 else tests[0]


def _listed(found: Any) -> list[ast.stmt]:
    return found if isinstance(found, list) else [] if found is None else [found]


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _call(guard: str, *args: ast.expr) -> ast.Call:
    return ast.Call(_load(guard), list(args), [])


def _binding(name: str, value: ast.expr) -> ast.expr:
    """`name := value` as something true."""
    return ast.Tuple([ast.NamedExpr(ast.Name(name, ast.Store()), value)], ast.Load())


def _all(tests: list[ast.expr], bindings: list[tuple[str | None, str]]) -> ast.expr:
    tests = [*tests, *(_binding(name, _load(subject)) for name, subject in bindings if name)]
    if not tests:
        return ast.Constant(True)
    return ast.BoolOp(ast.And(), tests) if len(tests) > 1 else tests[0]


# What compiled code calls


def match_sequence(subject: Any, before: int, starred: bool, after: int) -> list[Any] | None:
    """The items, those of a starred pattern as one list; None for what is no sequence of that length."""
    if not isinstance(subject, Sequence) or isinstance(subject, str | bytes | bytearray):
        return None
    length = len(subject)
    if length < before + after or (length != before and not starred):
        return None
    items = list(subject)
    if not starred:
        return items
    return [*items[:before], items[before : length - after], *items[length - after :]]


def match_mapping(subject: Any, keys: tuple[Any, ...], rest: bool) -> list[Any] | None:
    """The values of the keys, and last a dict of all others where `rest`."""
    if not isinstance(subject, Mapping):
        return None
    missing = object()
    found = [subject.get(key, missing) for key in keys]
    if any(value is missing for value in found):
        return None
    return [*found, {key: value for key, value in subject.items() if key not in keys}] if rest else found


def match_class(subject: Any, cls: Any, count: int, names: tuple[str, ...]) -> list[Any] | None:
    """The attributes that `count` positional patterns and the named ones stand for.

    Raises TypeError for more positional patterns than the class has `__match_args__`.
    """
    if not is_class(cls):
        raise TypeError(f"a class pattern needs a class (got {type(cls).__name__})")
    if not isinstance(subject, cls):
        return None
    if count == 1 and cls in _THEMSELVES:
        positional: tuple[str, ...] = ()
        found = [subject]
    else:
        declared = _match_args(cls)
        if count > len(declared):
            raise TypeError(f"{cls.__name__}() accepts {len(declared)} positional sub-patterns ({count} given)")
        positional, found = declared[:count], []
    for name in (*positional, *names):
        try:
            found.append(read_attribute(subject, checked_name(name)))
        except AttributeError:
            return None
    return found


def _match_args(cls: type) -> tuple[str, ...]:
    for base in type.__dict__["__mro__"].__get__(cls):
        declared = vars(base).get("__match_args__") if is_program_class(base) else None
        if type(declared) is tuple and all(type(name) is str for name in declared):
            return declared
        if declared is not None and not isinstance(declared, types.MemberDescriptorType):
            raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple of names (got {type(declared).__name__})")
    return ()
