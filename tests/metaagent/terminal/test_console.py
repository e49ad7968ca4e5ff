"""Errors become one line and an exit code, or one JSON document; nothing untamed reaches a terminal."""

import json
import unicodedata
from io import StringIO

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from metaagent.terminal.console import (
    FAILURE_CODES,
    ExitCode,
    Stop,
    command,
    fields,
    heading,
    print_json,
    raw,
    stdout,
)
from workflow.failures import (
    EngineFailed,
    Finding,
    LimitExceeded,
    ProgramFailed,
    ProgramRejected,
    SandboxUnavailable,
)
from workflow.labels import visible

ERRORS = [
    (Stop("no such option"), ExitCode.USAGE, "usage"),
    (Stop("it is bad", ExitCode.BAD), ExitCode.BAD, "stopped"),
    (ProgramRejected([Finding(line=1, code="c", message="m")]), ExitCode.BAD, "program_rejected"),
    (ProgramFailed("ValueError", "x"), ExitCode.FAILED, "program_failed"),
    (LimitExceeded("tokens", 1, 2), ExitCode.FAILED, "limit_exceeded"),
    (EngineFailed("e", "down"), ExitCode.INFRASTRUCTURE, "engine_failed"),
    (SandboxUnavailable("no jail", "get one"), ExitCode.INFRASTRUCTURE, "sandbox_unavailable"),
    (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted"),
]


@pytest.mark.parametrize(("error", "code", "kind"), ERRORS, ids=[kind for _, _, kind in ERRORS])
def test_expected_errors_become_exit_codes(
    error: BaseException, code: ExitCode, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @command
    def fails(as_json: bool = False) -> ExitCode:
        raise error

    with pytest.raises(typer.Exit) as ended:
        fails()
    assert ended.value.exit_code == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1

    with pytest.raises(typer.Exit) as ended:
        fails(as_json=True)
    assert ended.value.exit_code == code
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["kind"] == kind
    assert document["error"]["exit_code"] == code


def test_unexpected_errors_are_not_hidden() -> None:
    @command
    def fails() -> ExitCode:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()


def test_every_kind_of_failure_has_a_code() -> None:
    assert all(code not in (ExitCode.OK, ExitCode.USAGE) for code in FAILURE_CODES.values())
    assert len(FAILURE_CODES) == 5


@given(st.text(st.characters()))
def test_safe_text_has_no_control_characters(text: str) -> None:
    tamed = visible(text)
    assert all(character >= " " or character in "\n\t" for character in tamed)
    assert not any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in tamed if sign not in "\n\t")
    assert not set(tamed) & set("\x7f\x85\x9b\u2028\u202e\u2066\ud800\udfff")
    if text.isascii() and text.isprintable():
        assert tamed == text


def test_every_character_that_nobody_sees_is_shown() -> None:
    everything = [chr(code) for code in range(0x110000)]
    unseen = [sign for sign in everything if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert len(unseen) > 2_000
    for sign in set(unseen) - set("\n\t"):
        assert visible(f"a{sign}b").isascii(), hex(ord(sign))
    for sign in "\u2764\ufe0f é中 \u00a0":
        assert visible(sign) == sign


def test_a_name_cannot_look_like_lines_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    heading(stdout(), "a\nGrade  correct\t1.0\u202e" + "x" * 1000, "path\nmore")
    assert capsys.readouterr().out.count("\n") == 2


def test_raw_output_keeps_tabs_and_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    raw(stdout(), "a\tb  \n\n\tc")
    assert capsys.readouterr().out == "a\tb  \n\n\tc\n"


def test_fields_hang_and_are_never_wrapped_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    fields(stdout(), [("Name", "x" * 300), ("Empty", ""), ("Longer", "one\ntwo")])
    assert capsys.readouterr().out == f"Name    {'x' * 300}\nLonger  one\n        two\n"


def test_json_is_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    monkeypatch.setattr("sys.stdout", out)
    odd = {"numbers": [float("nan"), float("inf"), -float("inf"), 1.5]}
    print_json({"text": "π\x1b\ud800", "finding": Finding(line=1, code="c", message="m"), **odd})
    assert out.getvalue().isascii()
    read = json.loads(out.getvalue(), parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert (read["finding"]["code"], read["numbers"]) == ("c", ["nan", "inf", "-inf", 1.5])
