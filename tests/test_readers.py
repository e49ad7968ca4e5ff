"""Every reader of hostile text takes time and memory in proportion to the text, and none is missing in the list."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from growth import cpu_s, peak_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from readers import ELSEWHERE, MODULES, NO_READERS, READERS

from sandbox.conformance.attacks import HOSTILE_TEXTS
from workflow import text as text_module

ROOT = Path(__file__).parents[1]
ROOMS = ("workflow", "engine", "tasks", "designer")

UNITS = [
    *"`*_{}\\$ \n\t:/|.,0a<>[]-'\"()=&\r\x1c\u2028\u0663",
    *("```\n", "```python\n", "```text\nx\n", "````\n", "~~~\n", "```python\nx\n```\n", "'''", '"""'),
    *("\\boxed{", "\\boxed{1} ", "\\boxed{1}\n", "\\boxed 1 ", "\\boxed ", "\\fbox{{}", "\\boxed{1} words\n", "{}"),
    *("<delivery>", "</delivery>", "<solution>", "</solution>", "<solution>x</solution>", "<delivery>.</delivery>"),
    *("<tool_call>", "</tool_call>", "<tool_call>{</tool_call>", '{"name": ', '{"a":[', "[[", "1e9,", "[],"),
    *(
        "final answer",
        "final answer\n",
        "the final answer is ",
        "verdict",
        "verdict:\n",
        "CORRECT or ",
        "NOT a ",
        "n't ",
    ),
    *("correct/", "1,111", "1.5 ", "1e9 ", "-", "\\left", "\\text ", "\\dfrac", "\\\\", "\\[", "\\(", "\\begin{a}"),
    *("<code>", "</code>", "<code>\n", "<think>", "</think>", "&lt;", "from workflow import A\n", "x=(", "1,", "a+b;"),
    *(
        "def f(\n",
        "def f(",
        "at most ",
        "up to 1 ",
        "f(",
        "f() ",
        ">>> \n",
        "assert ",
        "input:\n",
        "10^",
        "rows ",
        "coin ",
    ),
    *("n't ", "coin ", "find a + ", "such that ", "remainder when ", "[asy]", "A) ", "Mr. ", "? A", "<= "),
]
TEXTS: list[tuple[str, str, str]] = [
    *(("", unit, "") for unit in UNITS),
    *(("", "\\boxed{", "}"), ("", "\\boxed{ ", " }"), ("", "{", "}"), ("\\boxed{", "{}", ""), ("", "\\boxed{ {", "}}")),
    *(("final answer", "*", ""), ("", "final answer ", " "), ("", "final answer\n", "\n"), ("", "_-", "final answer")),
    *(
        ("", "verdict ", " not "),
        ("verdict", ":", " "),
        ("not ", "a", ""),
        ("correct", "/", ""),
        ("correct ", "| ", ""),
    ),
    *(("\\text", " ", ""), ("", "\\text \\left", " "), ("<delivery>", ".", "x"), ("<solution>```\n", "`", " ")),
    *(
        ("```python\n", "x\n", "```\n"),
        ("````\n", "```\n", "x"),
        ("def f(\n", "at most ", "1"),
        ("", "[", "]"),
        ("$", "1,", "a"),
    ),
]
"""What stands once, what comes over and over, and what then does as often."""
SCREENED = 3_000
"""Characters of the texts among which the slowest are looked for."""
MANY_S = 0.05
"""CPU time of a text of 20,000 characters that is worth a closer look."""


def grown(text: tuple[str, str, str], size: int) -> str:
    once, many, then = text
    count = size // len(many + then)
    return once + many * count + then * count


def check_growth(name: str, text: Callable[[int], str], longest: int) -> None:
    """Eight times the text, up to the longest that the reader gets, may take 24 times the work and the memory."""
    read = READERS[name].read
    small, large = text(longest // 8), text(longest)
    tries = []
    for _ in range(3):
        few, many = cpu_s(lambda: read(small)), cpu_s(lambda: read(large))
        if many <= max(24 * few, MANY_S):
            break
        tries.append(f"{few:.3f} s, then {many:.3f} s")
    else:
        raise AssertionError(f"{name}: eight times {small[:80]!r} takes {tries}")
    less, more = peak_bytes(lambda: read(text(longest // 32))), peak_bytes(lambda: read(text(longest // 4)))
    assert more <= max(24 * less, 1 << 20), f"{name}: eight times {small[:80]!r} takes {less} bytes, then {more}"


@pytest.fixture(autouse=True, scope="module")
def nothing_is_remembered() -> Iterator[None]:
    """Each reading is measured as if it were the first."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_module, "KEPT", 0)
        yield


@pytest.mark.thorough
@pytest.mark.parametrize("name", READERS)
def test_the_slowest_of_many_texts_grows_in_proportion(name: str) -> None:
    read = READERS[name].read
    slowest = max(TEXTS, key=lambda text: cpu_s(lambda: read(grown(text, SCREENED))))
    check_growth(name, partial(grown, slowest), READERS[name].longest)


@settings(max_examples=50, deadline=None)
@given(*[st.lists(st.sampled_from(UNITS), max_size=3).map("".join)] * 3, st.sampled_from(sorted(READERS)))
def test_texts_nobody_thought_of_do_too(before: str, unit: str, after: str, name: str) -> None:
    def text(size: int) -> str:
        return grown((before, unit or "x", ""), size) + after

    if cpu_s(lambda: READERS[name].read(text(20_000))) > MANY_S:
        check_growth(name, text, 40_000)


@pytest.mark.thorough
@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_no_reader_is_held_by_a_text_of_the_corpus(text: str) -> None:
    hostile = eval(HOSTILE_TEXTS[text])
    assert len(hostile) <= 256 << 10
    for name, reader in READERS.items():
        assert cpu_s(lambda: reader.read(hostile)) < 2.0, name  # noqa: B023  (called at once)


def functions_of(module: str) -> set[str]:
    """Public functions of a module that take text."""
    found = importlib.import_module(module)
    return {
        f"{module}:{name}"
        for name, value in vars(found).items()
        if inspect.isfunction(value) and value.__module__ == module and not name.startswith("_")
    }


def test_every_function_of_their_modules_is_a_reader_in_the_list_or_none() -> None:
    covered = {name for each in READERS.values() for name in each.covers}
    found = set().union(*map(functions_of, MODULES))
    assert found - covered - set(NO_READERS) == set(), "add them to tests/readers.py"
    assert set(NO_READERS) <= found - covered, "gone, or read after all"


def reads_text(path: Path) -> bool:
    """Whether a module searches, or parses, text: it uses `re`, `json.loads` or `ast.parse`."""
    tree = ast.parse(path.read_text())
    used = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return bool(used & {"json.loads", "ast.parse", "ast.literal_eval"}) or any(name.startswith("re.") for name in used)


def test_every_module_that_parses_text_has_its_readers_in_the_list_or_none() -> None:
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if reads_text(path)
    }
    assert found - set(MODULES) - set(ELSEWHERE) == set(), "say in tests/readers.py what they read"
    assert set(ELSEWHERE) <= found, "gone, or no reader any more"
