"""Rows of conversations: what both forms mean, and what is said about rows that are not in form."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.sft import chat_rows
from trainer.sft.chat_rows import ChatRow, ChatRowError, read_rows
from workflow.completion import ChatMessage

ADD = {"name": "add", "description": "", "parameters": {"type": "object", "properties": {}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
ASK: dict[str, Any] = {"role": "user", "content": "1 + 1?"}
SAY: dict[str, Any] = {"role": "assistant", "content": "2"}


def write(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def read(tmp_path: Path, *rows: Any) -> list[ChatRow]:
    return list(read_rows(write(tmp_path, *rows)))


def wrong(tmp_path: Path, *rows: Any) -> str:
    with pytest.raises(ChatRowError) as caught:
        read(tmp_path, *rows)
    return str(caught.value).replace(f"{tmp_path}/", "")


def turn(role: Any, content: str) -> ChatMessage:
    return ChatMessage(role=role, content=content)


# What rows mean


def test_messages(tmp_path: Path) -> None:
    row = {
        "messages": [
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "1 + "}, {"type": "text", "text": "1?"}],
                "name": "x",
            },
            {"role": "assistant", "content": None, "tool_calls": [call("add", '{"a": 1}')]},
            {"role": "tool", "content": "2", "tool_call_id": "7"},
            {"role": "assistant", "content": "It is 2.", "reasoning_content": "the tool says so", "weight": 1},
        ],
        "tools": [{"type": "function", "function": ADD}],
        "source": "ignored",
    }
    [read_row] = read(tmp_path, row)
    assert read_row.messages == [
        turn("system", "be brief"),
        turn("user", "1 + 1?"),
        turn("assistant", CALL),
        turn("tool", "2"),
        turn("assistant", "<think>\nthe tool says so\n</think>\n\nIt is 2."),
    ]
    assert read_row.tools == [{"type": "function", "function": ADD}]
    assert (read_row.role, read_row.place) == (None, f"{tmp_path}/rows.jsonl, line 1")


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "7", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_arguments_may_be_an_object_and_stand_behind_text(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "Let me see.", "tool_calls": [call("add", {"a": 1}), call("add", {})]}
    [row] = read(tmp_path, {"messages": [ASK, message]})
    second = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    assert row.messages[1]["content"] == f"Let me see.\n{CALL}\n{second}"


def test_share_gpt(tmp_path: Path) -> None:
    row = {
        "system": "be brief",
        "conversations": [
            {"from": "human", "value": "1 + 1?"},
            {"from": "gpt", "value": "Let me see."},
            {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1}}'},
            {"from": "observation", "value": "2"},
            {"from": "gpt", "value": "2"},
        ],
        "tools": json.dumps([ADD]),
        "role": "executor",
    }
    [read_row] = read(tmp_path, row)
    assert read_row.messages == [
        turn("system", "be brief"),
        turn("user", "1 + 1?"),
        turn("assistant", f"Let me see.\n{CALL}"),
        turn("tool", "2"),
        turn("assistant", "2"),
    ]
    assert read_row.tools == [{"type": "function", "function": ADD}]
    assert read_row.role == "executor"


def test_two_calls_of_share_gpt_are_one_reply(tmp_path: Path) -> None:
    one = '{"name": "add", "arguments": {"a": 1}}'
    for turns in ([one, one], [f"[{one}, {one}]"]):
        calls = [{"from": "function_call", "value": value} for value in turns]
        [row] = read(tmp_path, {"conversations": [{"from": "user", "value": "?"}, *calls], "tools": ""})
        assert [message["content"] for message in row.messages] == ["?", f"{CALL}\n{CALL}"]


def test_both_forms_in_one_file_and_one_role_of_several_files(tmp_path: Path) -> None:
    share = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    path = write(tmp_path, {"messages": [ASK, SAY], "role": "designer"}, "", share | {"role": "executor"}, share)
    rows = list(read_rows([path, path]))
    assert [row.place.rpartition(" ")[2] for row in rows] == ["1", "3", "4"] * 2
    assert [row.role for row in read_rows(path, "executor")] == ["executor", None]


texts = st.text(min_size=1).filter(str.strip)


@given(question=texts, reply=texts)
def test_any_text_comes_through_as_it_is(question: str, reply: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [
        {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]},
        {"conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": reply}]},
    ]
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode())
    assert [row.messages for row in read_rows(path)] == [[turn("user", question), turn("assistant", reply)]] * 2


# What is said about others


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"messages": [', "line 2: expected one JSON object per line"),
        ("[1]", "line 2: expected one JSON object per line, found [1]. Fix"),
        ("7", "line 2: expected one JSON object per line, found 7. Fix"),
        ("[" * 100_000, "line 2: expected one JSON object per line"),
        ({"mesages": []}, "line 2: expected either 'messages' or 'conversations', found the keys 'mesages'; did you"),
        ({}, "found the keys (none)"),
        ({"messages": [ASK, SAY], "conversations": []}, "found both"),
        ({"messages": "hello"}, "line 2, field messages: Input should be a valid list (found 'hello')"),
        ({"messages": [{"content": "x"}]}, "field messages.0.role: Field required"),
        ({"messages": [ASK, {"role": "bot", "content": "x"}]}, "field messages.1.role: Input should be 'system', "),
        ({"messages": [ASK, {"role": "assistant", "content": 3}]}, "field messages.1.content: Input should be a valid"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}, SAY]},
            "field messages.0.content: expected text, or a list of",
        ),
        (
            {"messages": [{"role": "user"}, SAY]},
            "field messages.0: expected text alone in a user turn, found no",
        ),
        (
            {"messages": [ASK | {"tool_calls": [call("add", "{}")]}, SAY]},
            "field messages.0: expected text alone in a user turn, found tool_calls",
        ),
        ({"messages": [ASK, SAY | {"weight": 0}]}, "field messages.1.weight: Input should be 1 (found 0)"),
        ({"messages": [ASK]}, "field messages: expected an assistant turn to learn, found none"),
        ({"messages": []}, "field messages: expected an assistant turn to learn, found none"),
        ({"messages": [SAY]}, "field messages: expected a user turn before the first reply"),
        (
            {"messages": [ASK, SAY | {"content": " \n"}]},
            "expected replies that are not empty, but turn 1",
        ),
        ({"messages": [ASK, SAY], "role": "judge"}, "field role: Input should be 'designer' or 'executor'"),
        ({"messages": [ASK, SAY], "tools": "[{"}, "field tools: expected a list of tool schemas"),
        ({"messages": [ASK, SAY], "tools": [{"type": "function", "function": {}}]}, "field tools: expected every tool"),
        ({"conversations": [{"from": "human"}]}, "field conversations.0.value: Field required"),
        (
            {"conversations": [{"from": "robot", "value": "x"}]},
            "field conversations.0.from: Input should be 'system'",
        ),
        (
            {"conversations": [{"from": "human", "value": "x"}, {"from": "function_call", "value": "add(1)"}]},
            "field conversations.1.value: expected {",
        ),
        ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "found half of a surrogate pair"),
    ],
)
def test_a_row_out_of_form_is_named_with_its_place(row: Any, said: str, tmp_path: Path) -> None:
    message = wrong(tmp_path, {"messages": [ASK, SAY]}, row)
    assert message.startswith("rows.jsonl, line 2")
    assert said in message


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_rows_is_an_error(text: str, tmp_path: Path) -> None:
    assert wrong(tmp_path, text) == "rows.jsonl has no rows: expected one JSON object per line"


@pytest.mark.parametrize("text", ['[{"messages": []}]', '[\n{"messages": []}\n]', '{\n"messages": []\n}'])
def test_a_json_list_is_told_from_json_lines(text: str, tmp_path: Path) -> None:
    assert "jq -c" in wrong(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ChatRowError, match=r"cannot read .*none: No such file"):
        list(read_rows(tmp_path / "none"))
    with pytest.raises(ChatRowError, match=r"cannot read .*: Is a directory"):
        list(read_rows(tmp_path))
    path = tmp_path / "latin"
    path.write_bytes(b'{"messages": "\xff"}')
    with pytest.raises(ChatRowError, match=r"line 1: expected UTF-8 text, byte 14 is not"):
        list(read_rows(path))


# Memory


def test_rows_before_a_bad_one_are_given_and_no_more_is_read_than_asked(tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path, {"messages": [ASK, SAY]}, "not JSON"))
    assert next(rows).messages == [turn("user", "1 + 1?"), turn("assistant", "2")]
    with pytest.raises(ChatRowError, match="line 2"):
        next(rows)


def test_a_file_takes_the_memory_of_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = json.dumps({"messages": [ASK | {"content": "x" * 10_000}, SAY]}) + "\n"
    with path.open("w") as file:
        file.writelines(row for _ in range(1000))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_rows(path)) == 1000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000  # of 10 MB
    finally:
        tracemalloc.stop()


def test_a_line_without_end_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_rows, "LONGEST_LINE", 1000)
    assert "line 1: expected at most 1,000 bytes in one line" in wrong(tmp_path, "x" * 1001)
