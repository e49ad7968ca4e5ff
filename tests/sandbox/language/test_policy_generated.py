"""Attacks on the policy put together by hypothesis: what is reached, how it is spelt, how it is read, and where.

Each is one of thousands of combinations; whatever it is, nothing forbidden may come out of it under the policy. That
most of them work in plain Python shows that they are attacks.
"""

from __future__ import annotations

import textwrap
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_policy_attacks import attack

TARGETS = {
    "function": ("target = lambda: 0", ("__globals__", "__code__", "__builtins__")),
    "generator": ("def g():\n    yield 1\ntarget = g()", ("gi_frame", "gi_code")),
    "class": ("class C:\n    def m(self): pass\ntarget = C", ("__dict__", "__class__", "mro")),
    "method": (
        "class C:\n    def m(self): pass\ntarget = C().m.__func__ if False else C.m",
        ("__globals__", "__code__"),
    ),
    "text": ("target = ''", ("format", "format_map")),
    "error": (
        "try:\n    [][1]\nexcept IndexError as error:\n    caught = error\ntarget = caught",
        ("__traceback__",),
    ),
    "print": ("target = print", ("__globals__", "__code__", "__self__")),
    "question": ("target = len", ("__self__",)),
}
"""What sets `target`, and attributes of it that lead out."""


@st.composite
def spelt(draw: st.DrawFn, name: str) -> str:
    """An expression whose value is the name, written so that no text search would find it."""
    cut = draw(st.integers(1, len(name) - 1))
    head, tail = name[:cut], name[cut:]
    return draw(
        st.sampled_from(
            [
                repr(name),
                f"{head!r} + {tail!r}",
                f"{head!r} {tail!r}",
                f"''.join([{head!r}, {tail!r}])",
                f"{name[::-1]!r}[::-1]",
                f"f'{head}" + '{"' + tail + "\"}'",
                f"'%s%s' % ({head!r}, {tail!r})",
                f"{name.upper()!r}.lower()",
                f"{name.replace('_', '-')!r}.replace('-', '_')",
                f"bytes({[*name.encode()]}).decode()",
                f"''.join(map(chr, {[ord(letter) for letter in name]}))",
                f"''.join(chr(n + 1) for n in {[ord(letter) - 1 for letter in name]})",
                f"{{'k': {name!r}}}['k']",
                f"({name!r} if len('x') else '')",
                f"(lambda: {name!r})()",
                f"str.join('', [{head!r}, {tail!r}])",
                f"max([{name!r}])",
                f"'{head}\\x{ord(tail[0]):02x}{tail[1:]}'",
            ]
        )
    )


def full_width(name: str) -> str:
    """Letters that Python reads as the plain ones (NFKC)."""
    return "".join(chr(ord(letter) + 0xFEE0) if letter.isalpha() else letter for letter in name)


@st.composite
def reached(draw: st.DrawFn, name: str) -> str:
    """An expression that reads the attribute of `target`."""
    text = draw(spelt(name))
    letter = draw(st.integers(0, len(name) - 1))
    odd = name[:letter] + full_width(name[letter]) + name[letter + 1 :]
    return draw(
        st.sampled_from(
            [
                f"target.{name}",
                f"target.{odd}",
                f"(target).{name}",
                f"[target][0].{name}",
                f"(t := target).{name}",
                f"getattr(target, {text})",
                f"getattr(target, {text}, None)",
                f"(lambda f: f(target, {text}))(getattr)",
                f"[*map(getattr, [target], [{text}])][0]",
                f"[getattr][0](target, {text})",
                f"next(getattr(t, n) for t, n in [(target, {text})])",
                f"[getattr(t, {text}) for t in [target]][0]",
                f"{{n: getattr(target, n) for n in [{text}]}}.popitem()[1]",
                f"__import__('operator').attrgetter({text})(target)",
                f"__import__('functools').partial(getattr, target)({text})",
                f"__import__('functools').reduce(getattr, [{text}], target)",
                f"__import__('inspect').getattr_static(target, {text})",
                f"vars(target)[{text}]",
                f"object.__getattribute__(target, {text})",
                f"type(target).__getattribute__(target, {text})",
                f"target.__getattribute__({text})",
                f"super(type(target), target).{name}",
                f"'{{0.{name}}}'.format(target)",
                f"'{{t.{name}}}'.format_map({{'t': target}})",
                f"('{{0.' + {text} + '}}').format(target)",
                f"str.format('{{0.{name}}}', target)",
                f"[*map('{{0.{name}}}'.format, [target])][0]",
                f"__import__('string').Formatter().format('{{0.{name}}}', target)",
                f"f'{{target.{name}}}'",
                f"sorted([target], key=lambda t: keep(t.{name}))",
            ]
        )
    )


PLACES = [
    "keep({0})",
    "def f():\n    return {0}\nkeep(f())",
    "def f(x={0}):\n    return x\nkeep(f())",
    "def f():\n    def g():\n        return {0}\n    return g()\nkeep(f())",
    "keep((lambda: {0})())",
    "class K:\n    x = {0}\nkeep(K.x)",
    "class K:\n    def m(self):\n        return {0}\nkeep(K().m())",
    "class K:\n    @property\n    def p(self):\n        return {0}\nkeep(K().p)",
    "for x in [{0}]:\n    keep(x)",
    "while True:\n    keep({0})\n    break",
    "if (x := {0}) is not None:\n    keep(x)",
    "class Own(Exception): pass\ntry:\n    raise Own({0})\nexcept Own as e:\n    keep(e.args[0])",
    "try:\n    1 / 0\nexcept ZeroDivisionError:\n    keep({0})\nfinally:\n    pass",
    "keep([{0} for _ in range(1)][0])",
    "keep([*({0} for _ in [1])][0])",
    "keep({{1: {0}}}[1])",
    "a, b = {0}, 1\nkeep(a)",
    "a, *b = [0, {0}]\nkeep(b[0])",
    "d = {{}}\nd['k'] = {0}\nkeep(d['k'])",
    "x: object = {0}\nkeep(x)",
    "keep(*[{0}])",
    "def f(*, value):\n    keep(value)\nf(**{{'value': {0}}})",
    "def decorate(f):\n    keep({0})\n    return f\n@decorate\ndef f(): pass",
    "def g():\n    yield {0}\nkeep(next(g()))",
    "def g():\n    yield from [{0}]\nkeep([*g()][0])",
    "assert keep({0}) or True",
    "import functools\nkeep(functools.partial(lambda x: x, {0})())",
    "match {0}:\n    case x:\n        keep(x)",
    "keep((1, [{0}]))",
    "global_name = {0}\ndef f():\n    global global_name\n    keep(global_name)\nf()",
]


def placed(place: str, expression: str) -> str:
    return place.replace("{{", "{").replace("}}", "}").replace("{0}", expression)


@st.composite
def attacks(draw: st.DrawFn) -> str:
    setup, names = TARGETS[draw(st.sampled_from(sorted(TARGETS)))]
    expression = draw(reached(draw(st.sampled_from(names))))
    if draw(st.booleans()):
        expression = draw(st.sampled_from(["({0})", "({0} or None)", "(None, {0})[1]", "[{0}][0]"])).format(expression)
    body = placed(draw(st.sampled_from(PLACES)), expression)
    if draw(st.booleans()):
        body = f"try:\n{textwrap.indent(body, '    ')}\nexcept Exception as wrapped:\n    keep(wrapped)"
    return f"{setup}\n{body}\n"


@pytest.mark.thorough
@settings(max_examples=1500, suppress_health_check=[HealthCheck.too_slow])
@given(attacks())
def test_no_generated_attack_gets_anything_forbidden(source: str) -> None:
    _, _, bad = attack(source, plain=False)
    assert bad == [], source


def test_most_generated_attacks_work_in_plain_python() -> None:
    seen: Counter[bool] = Counter()

    @settings(max_examples=300, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(attacks())
    def look(source: str) -> None:
        try:
            kept, outcome, _ = attack(source, plain=True)
        except SyntaxError as error:
            raise AssertionError(f"no attack, but no Python: {error}\n{source}") from None
        seen[bool(kept) and not outcome.refused] += 1

    look()
    assert seen[True] > seen[False], seen


def test_the_oracle_sees_what_generated_attacks_reach() -> None:
    for setup, name in (("target = lambda: 0", "__globals__"), ("def g():\n    yield 1\ntarget = g()", "gi_frame")):
        for place in PLACES:
            body = placed(place, f"getattr(target, {name!r})")
            _, _, bad = attack(f"{setup}\n{body}\n", plain=True)
            assert bad, body
