"""Which changes of the code make runs again: those of what it does, wherever it decides about learning."""

import ast
from pathlib import Path

import pytest

from speedrun import versions
from speedrun.versions import LEARNING, VERBATIM, code_alone, code_of, learning_code

ROOT = Path(__file__).parents[2]
MODULE = '''"""What it is for."""

import math


def area(radius: float) -> float:
    """In m^2."""
    # The formula.
    text = """two

lines  # and no comment
"""
    return math.pi * radius**2 + len(text)  # by Archimedes


FACTOR = 0.5
"""Of what."""
'''


@pytest.mark.parametrize(
    ("said", "otherwise"),
    [
        ("# The formula.", "# It is known."),
        ("    # The formula.\n", ""),
        ('"""In m^2."""', '"""In square metres,\n\n    not in feet."""'),
        ('"""Of what."""', "'Of what not.'"),
        ("  # by Archimedes", ""),
        ("\n\n\ndef", "\n\ndef"),
        ("import math\n", "import math  \n\n"),
        ('"""What it is for."""', "# Nothing."),
    ],
)
def test_what_is_only_said_is_no_part_of_the_code(said: str, otherwise: str) -> None:
    assert code_alone(MODULE.replace(said, otherwise)) == code_alone(MODULE)


@pytest.mark.parametrize(
    ("done", "otherwise"),
    [
        ("**2", "**3"),
        ("two\n\nlines", "two\nlines"),
        ("lines  # and no comment", "lines"),
        ("    text = ", "    text: str = "),
        ("0.5", "0.25"),
        ("    return", "    if radius:\n        return"),
    ],
)
def test_what_is_done_is(done: str, otherwise: str) -> None:
    assert code_alone(MODULE.replace(done, otherwise)) != code_alone(MODULE)


@pytest.mark.parametrize("room", LEARNING)
def test_the_code_that_decides_stays_the_code_that_it_is(room: str) -> None:
    """Whole modules, with a `pass` where nothing but a docstring was."""
    for path in sorted((ROOT / room).glob("*.py")) or [ROOT / room]:
        source = path.read_text(encoding="utf-8")
        with_bodies = ast.unparse(_undocumented(ast.parse(source)))
        alone = code_alone(with_bodies)
        assert ast.dump(ast.parse(alone)) == ast.dump(ast.parse(with_bodies)), path
        assert code_alone(code_alone(source)) == code_alone(source), path


@pytest.mark.parametrize("place", LEARNING)
def test_a_run_is_of_whatever_decides_what_it_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for each in LEARNING:
        for path in (ROOT / each).glob("*.py") if (ROOT / each).is_dir() else [ROOT / each]:
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(versions, "_ROOT", tmp_path)
    before = learning_code.__wrapped__()
    assert before == learning_code()
    changed = tmp_path / place
    changed = next(iter(sorted(changed.glob("*.py")))) if changed.is_dir() else changed
    with changed.open("a", encoding="utf-8") as file:
        file.write("\n# A remark.\n")
    assert learning_code.__wrapped__() == before
    with changed.open("a", encoding="utf-8") as file:
        file.write("x = 1\n")
    assert learning_code.__wrapped__() != before


@pytest.mark.parametrize("name", ["single.py", "vote.py"])
def test_a_program_that_is_shown_is_all_that_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(versions, "_ROOT", tmp_path)
    shown = tmp_path / VERBATIM[0] / name
    shown.parent.mkdir(parents=True)
    shown.write_text('"""Once."""\n# pattern: one\n')
    before = code_of(VERBATIM[0])
    shown.write_text('"""Once."""\n# pattern: other\n')
    assert code_of(VERBATIM[0]) != before


def _undocumented(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [each for each in body if not _is_text(each)] or [ast.Pass()]
    return tree


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
