"""Every reader of data files against rows and files of somebody who means ill: a `DatasetError`, or problems."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.data import READERS, DatasetError, read_task, rows
from tasks.data.rows import MAX_DEPTH
from tasks.problems import Problem

CALLS = {"inputs": [[1]], "outputs": [1], "fn_name": "f"}
NONE = {"input": [], "output": []}
GOOD: dict[str, dict[str, Any]] = {
    "aime": {"id": 1, "problem": "p", "answer": "12"},
    "math500": {"id": "a", "prompt": "p", "answer": "1"},
    "gsm8k": {"question": "q", "answer": "x #### 12"},
    "humaneval": {
        "task_id": "t",
        "prompt": "def f(x):\n",
        "entry_point": "f",
        "canonical_solution": " return x\n",
        "test": "def check(c): assert c(1) == 1",
    },
    "mbpp": {
        "task_id": 1,
        "text": "t",
        "code": "def f(x): return x",
        "test_setup_code": "",
        "test_list": ["assert f(1) == 1"],
    },
    "math": {"problem": "p", "solution": "\\boxed{1}"},
    "polaris": {"problem": "p", "answer": "1"},
    "apps": {"problem_id": 1, "question": "q", "starter_code": "", "input_output": json.dumps(CALLS)},
    "code_contests": {
        "name": "n",
        "description": "d",
        "public_tests": {"input": ["1"], "output": ["1"]},
        "private_tests": NONE,
        "generated_tests": NONE,
    },
    "problems": {"id": "i", "question": "q", "domain": "math", "gold": "1"},
}
FIELDS = [(kind, field) for kind, row in GOOD.items() for field in row]
DEEP = "[" * 100_000
EVIL = {
    "deep": DEEP,
    "closed": DEEP + "]" * 100_000,
    "just too deep": "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
    "objects": '{"a":' * 100_000,
    "NaN": "NaN",
    "infinity": "-Infinity",
    "1e999": "1e999",
    "digits": "1" * 5000,
    "half a character": '"\\ud800"',
    "half a key": '{"\\udfff": 1}',
}


def file_of(folder: Path, data: bytes, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def outcome(kind: str, path: Path) -> list[Problem] | str:
    """The problems, or what is said; anything but a `DatasetError` is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read_task(f"{kind}:{path}")
        except DatasetError as error:
            said = str(error)
    assert str(path) in said
    assert len(said) < 2000
    return said


def test_every_reader_is_attacked() -> None:
    assert [*GOOD, "boxoban"] == list(READERS)  # which is no JSON: tests/tasks/data/test_boxoban.py


@pytest.mark.parametrize("kind", GOOD)
def test_files_of_any_bytes(kind: str, tmp_path: Path) -> None:
    line = json.dumps(GOOD[kind]).encode()
    mark = b"\xef\xbb\xbf"
    for data in (line, mark + line + b"\r\n\r\n", b"\n \n" + line + b"\n"):
        assert len(outcome(kind, file_of(tmp_path, data))) == 1
        assert len(outcome(kind, file_of(tmp_path, b"[" + data.replace(mark, b"") + b"]", "rows.json"))) == 1
    assert len(outcome(kind, file_of(tmp_path, mark + b"[" + line + b"]", "rows.json"))) == 1
    for data in (
        b"",
        b" \n",
        b"\x00\x01\x80\xff",
        line.decode().encode("utf-16"),
        b"[]",
        b"1",
        b'"x"',
        line + mark + line,
    ):
        assert isinstance(outcome(kind, file_of(tmp_path, data)), str)
    for text in EVIL.values():
        for data in (text.encode(), line[:-1] + b', "more": ' + text.encode() + b"}"):
            assert isinstance(outcome(kind, file_of(tmp_path, data)), str)
            assert isinstance(outcome(kind, file_of(tmp_path, b"[" + data + b"]", "rows.json")), str)


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_fields_of_any_value(kind: str, field: str, tmp_path: Path) -> None:
    for text in EVIL.values():
        row = json.dumps({**GOOD[kind], field: "@"}).replace('"@"', text)
        assert isinstance(outcome(kind, file_of(tmp_path, row.encode())), str)
    sources = [
        "-" * 300_000 + "1",
        "+".join("a" * 100_000),
        "lambda:" * 50_000 + "1",
        "a\0b",
        "a" + ".a" * 50_000,
        "(" * 9999,
    ]
    for value in [None, True, -1, 10**40, 1e300, {}, [[]], {"a": 1}, "", DEEP, *sources, sources]:
        outcome(kind, file_of(tmp_path, json.dumps({**GOOD[kind], field: value}).encode()))


@pytest.mark.parametrize("text", EVIL.values())
def test_tests_inside_a_text(text: str, tmp_path: Path) -> None:
    good = json.dumps(CALLS)
    inside = [good.replace("[[1]]", f"[[{text}]]"), good.replace('"outputs": [1]', f'"outputs": [{text}]')]
    for tests in (text, *inside, "gASVIQAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOULg==", '{"inputs": {}}', "[1]", 1, CALLS):
        row = json.dumps({**GOOD["apps"], "input_output": tests})
        assert isinstance(outcome("apps", file_of(tmp_path, row.encode())), str)


@pytest.mark.parametrize(
    "name", ["__import__('os').system('true')", "__class__", "f\nGrade  correct", "a.b", "class", " f"]
)
def test_names_of_functions_are_names(name: str, tmp_path: Path) -> None:
    tests = {"kind": "call", "fn_name": name, "tests": [{"args": [1], "expected": 1}]}
    asserts = {"kind": "assert", "names": {"candidate": name}, "tests": ["pass"]}
    rows_of = {
        "apps": {"input_output": json.dumps({**CALLS, "fn_name": name})},
        "humaneval": {"entry_point": name},
        "problems": {"domain": "code", "gold": None, "tests": tests},
    }
    for kind, fields in [*rows_of.items(), ("problems", {"domain": "code", "gold": None, "tests": asserts})]:
        said = outcome(kind, file_of(tmp_path, json.dumps({**GOOD[kind], **fields}).encode()))
        assert "should be the name of a function" in said


def test_a_file_without_line_ends_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(rows, "LARGEST_LIST", 1 << 20)
    link = tmp_path / "rows.json"
    link.symlink_to("/dev/zero")
    for path in (Path("/dev/zero"), Path("/dev/full"), link):
        assert "1,048,576 bytes" in str(outcome("problems", path))


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "a\0b", "/dev/null/x", "x" * 5000, "/", "/dev/null"])
def test_paths_of_any_kind(path: str) -> None:
    with pytest.raises(DatasetError):
        read_task(f"problems:{path}")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(FIELDS), value=ANY)
def test_anything_at_all(place: tuple[str, str], value: Any, tmp_path: Path) -> None:
    kind, field = place
    for problem in outcome(kind, file_of(tmp_path, json.dumps({**GOOD[kind], field: value}).encode())):
        if isinstance(problem, Problem):
            Problem.model_validate_json(problem.model_dump_json())
