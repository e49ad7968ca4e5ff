"""Reads conversations to learn from: JSON lines in the two common forms, `messages` and ShareGPT.

Rows are read one at a time, so a file of any size takes the memory of its longest line. What an agent's tool calls look
like as text is `engine.prompt`'s business; nothing here knows tokens, templates or torch, and nothing is repaired: a
row that is not as its form says raises `ChatRowError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from engine.prompt import text_with_calls
from workflow.checks import nearest
from workflow.completion import ChatMessage
from workflow.usage import PolicyRole

LONGEST_LINE = 1 << 26
"""Bytes of one row; a file without line ends must not be read whole."""
_KEYS = ("messages", "conversations")
_FIX = "Fix: write one row per line, as jq -c does (jq -c '.[]' for a file that is one list)"


class ChatRowError(ValueError):
    """A file of chat rows is not as its form says."""


class ChatRow(BaseModel):
    """One conversation. Every assistant turn is a reply to learn; a thought stands before it in `<think>` tags, tool
    calls inside it in `<tool_call>` tags."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = Field(default_factory=list)
    """Schemas in the form of `ToolRegistry.get_tool_schemas()`."""
    role: PolicyRole | None = None
    """Whose policy it teaches; None for either."""
    place: str = ""
    """File and line, for messages to people."""


def read_rows(paths: Path | Iterable[Path], role: PolicyRole | None = None) -> Iterator[ChatRow]:
    """The rows of one or more files, in order. With `role` those of the other role are left out.

    A `messages` row is `{"messages": [{"role", "content"}, ...]}` with system, developer, user, assistant, tool and
    function turns; `content` may be a list of text parts, assistant turns may have `tool_calls` and
    `reasoning_content`. A ShareGPT row is `{"conversations": [{"from", "value"}, ...]}` with system, human or user, gpt
    or assistant, function_call, and observation, tool or function_response turns, and optionally `system`. Either may
    have `tools` (a list of schemas, or that list as JSON text) and `role` (designer or executor); other keys are
    ignored. A function_call belongs to the reply before it, if no turn lies between.

    Raises `ChatRowError`, which names file, line, field and what is expected, when a row is reached that is not so, or
    that has no reply or an empty one, and when a file has no row or cannot be read.
    """
    for path in [paths] if isinstance(paths, Path) else paths:
        count = 0
        for number, record in _records(path):
            count += 1
            row = _read(record, f"{path}, line {number}")
            if role is None or row.role in (None, role):
                yield row
        if not count:
            raise ChatRowError(f"{path} has no rows: expected one JSON object per line")


# The two forms


def _joined(content: Any) -> Any:
    """The text of a list of text parts; anything else as it is."""
    if not isinstance(content, list):
        return content
    if all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        return "".join(part["text"] for part in content)
    raise ValueError('expected text, or a list of {"type": "text", "text": ...}')


def _as_text(arguments: Any) -> Any:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _schemas(tools: Any) -> Any:
    """Schemas out of their JSON text, each wrapped as a function where it is not."""
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else []
        except ValueError:
            raise ValueError("expected a list of tool schemas, or such a list as JSON text") from None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return [] if tools is None else tools
    wrapped = [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]
    if not all(isinstance(tool["function"], dict) and "name" in tool["function"] for tool in wrapped):
        raise ValueError('expected every tool to have a name: {"type": "function", "function": {"name": ...}}')
    return wrapped


class _Function(BaseModel):
    name: str = Field(min_length=1)
    arguments: Annotated[str, BeforeValidator(_as_text)]


class _Call(BaseModel):
    function: _Function


class _Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str | None, BeforeValidator(_joined)] = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    weight: Literal[1] | None = None
    """OpenAI's fine-tuning has 0 for replies that are not to be learned, which is not known here."""


class _Turn(BaseModel):
    from_: Literal[
        "system", "human", "user", "gpt", "assistant", "function_call", "observation", "tool", "function_response"
    ] = Field(alias="from")
    value: str
    weight: Literal[1] | None = None


class _Row(BaseModel):
    tools: Annotated[list[dict[str, Any]], BeforeValidator(_schemas)] = Field(default_factory=list)
    role: PolicyRole | None = None


class _MessagesRow(_Row):
    messages: list[_Message]


class _ShareGPTRow(_Row):
    conversations: list[_Turn]
    system: str | None = None


_ROLES: dict[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
}


def _read(record: Any, place: str) -> ChatRow:
    if not isinstance(record, dict):
        raise ChatRowError(f"{place}: expected one JSON object per line, found {_short(record)}. {_FIX}")
    found = [key for key in _KEYS if key in record]
    if len(found) != 1:
        near = next((f"; did you mean {near!r} by {key!r}?" for key in record if (near := nearest(key, _KEYS))), "")
        said = "both" if found else f"the keys {', '.join(map(repr, record)) or '(none)'}{near}"
        raise ChatRowError(f"{place}: expected either 'messages' or 'conversations', found {said}")
    try:
        if found == ["messages"]:
            row: _Row = (read := _MessagesRow.model_validate(record))
            messages = [_message(each, f"{place}, field messages.{n}") for n, each in enumerate(read.messages)]
        else:
            row = (shared := _ShareGPTRow.model_validate(record))
            messages = _share_gpt(shared, place)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        wrong = first["msg"].removeprefix("Value error, ")
        raise ChatRowError(f"{place}, field {field}: {wrong} (found {_short(first['input'])})") from None
    _check_turns(messages, f"{place}, field {found[0]}")
    return ChatRow(messages=messages, tools=row.tools, role=row.role, place=place)


def _message(message: _Message, place: str) -> ChatMessage:
    content = message.content
    if message.role != "assistant":
        if content is None or message.tool_calls or message.reasoning_content:
            wrong = "no content" if content is None else "tool_calls or reasoning_content"
            raise ChatRowError(f"{place}: expected text alone in a {message.role} turn, found {wrong}")
        return ChatMessage(role=_ROLES[message.role], content=content)
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
    text = text_with_calls(content or "", calls)
    if message.reasoning_content:
        text = f"<think>\n{message.reasoning_content.strip()}\n</think>\n\n{text}"
    return ChatMessage(role="assistant", content=text)


def _share_gpt(row: _ShareGPTRow, place: str) -> list[ChatMessage]:
    messages = [ChatMessage(role="system", content=row.system)] if row.system else []
    for number, turn in enumerate(row.conversations):
        role = _ROLES[turn.from_]
        if turn.from_ != "function_call":
            messages.append(ChatMessage(role=role, content=turn.value))
            continue
        calls = _calls(turn.value, f"{place}, field conversations.{number}.value")
        if messages and messages[-1]["role"] == "assistant":
            messages[-1] = ChatMessage(role=role, content=text_with_calls(messages[-1]["content"], calls))
        else:
            messages.append(ChatMessage(role=role, content=text_with_calls("", calls)))
    return messages


def _calls(value: str, place: str) -> list[tuple[str, str]]:
    try:
        said = json.loads(value)
        functions = [_Function.model_validate(each) for each in (said if isinstance(said, list) else [said])]
    except (ValueError, RecursionError):
        raise ChatRowError(
            f'{place}: expected {{"name": ..., "arguments": {{...}}}} or a list of such calls (found {_short(value)})'
        ) from None
    return [(function.name, function.arguments) for function in functions]


def _check_turns(messages: list[ChatMessage], place: str) -> None:
    replies = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    if not replies:
        raise ChatRowError(f"{place}: expected an assistant turn to learn, found none")
    if not any(message["role"] in ("user", "tool") for message in messages[: replies[0]]):
        raise ChatRowError(f"{place}: expected a user turn before the first reply")
    for number in replies:
        if not messages[number]["content"].strip():
            raise ChatRowError(f"{place}: expected replies that are not empty, but turn {number} says nothing")


# Lines


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    """(number, record) for each line that is not blank."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise ChatRowError(f"{path}, line {number}: expected at most {LONGEST_LINE:,} bytes in one line")
                if line.strip():
                    yield number, _record(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, path, number)
    except OSError as error:
        raise ChatRowError(f"cannot read {path}: {error.strerror}. Fix: name a file of JSON lines") from error


def _record(line: bytes, path: Path, number: int) -> Any:
    place = f"{path}, line {number}"
    try:
        record = json.loads(line.decode())
        if b"\\u" in line:  # JSON can spell half a character, which no tokenizer takes
            json.dumps(record, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ChatRowError(f"{place}: expected UTF-8 text, byte {error.start} is not") from None
    except UnicodeEncodeError:
        raise ChatRowError(f"{place}: expected text, found half of a surrogate pair (\\ud800 to \\udfff)") from None
    except (ValueError, RecursionError) as error:
        raise ChatRowError(f"{place}: expected one JSON object per line: {error}. {_FIX}") from None
    return record


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
