"""How a family's chat template writes tool calls, learned from the template itself, and the two ways between that form
and ours (`<tool_call>` blocks, see `engine.prompt`).

Families whose calls are JSON can be learned, such as Llama 3 and newer ones of Mistral. Those whose templates write
calls in another way (XML, Python), show no schemas, or drop the system turn once a tool has answered cannot, and get
our form in plain text. Pure functions over text; nothing is called here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from engine.chat_templates import TemplateFailed, render
from workflow.completion import ChatMessage
from workflow.text import blocks, without_blocks

_PROBE = {"probe-key": "probe-value"}
_SCHEMA = {
    "type": "function",
    "function": {"name": "probe-name", "description": "", "parameters": {"type": "object", "properties": {}}},
}
_NAMES = ("arguments", "parameters")
_BETWEEN = " \t\r\n,;]"
_JSON = json.JSONDecoder(strict=False)  # models write newlines inside strings as they are


@dataclass(frozen=True, slots=True)
class ToolForm:
    """A call is JSON with `name` and `arguments`, or a list of such."""

    opening: str
    """What stands before the JSON; empty where the reply is JSON and nothing else."""
    mark: int | None = None
    """The id of the opening, where it is a special token, which a reply's text does not show."""


def speaks_ours(tokenizer: Any) -> bool:
    """Whether the chat template itself shows schemas and tool turns, and asks for calls in our form.

    Many templates drop both in silence, and some ask for calls in a form of their own.
    """
    turns = [
        ChatMessage(role="user", content="question"),
        ChatMessage(role="assistant", content="call"),
        ChatMessage(role="tool", content="probe-result"),
    ]
    text = _rendered(tokenizer, turns)
    return all(part in text for part in ("probe-name", "probe-result", "<tool_call>", '"arguments"'))


def learned(tokenizer: Any) -> ToolForm | None:
    """The form that the chat template gives to a call; None where it shows no schemas, no results or no JSON call."""
    asked = [ChatMessage(role="system", content="probe-system"), ChatMessage(role="user", content="question")]
    call = ChatMessage(role="assistant", content=f"<tool_call>{_block('probe-call', _PROBE)}</tool_call>")
    result = ChatMessage(role="tool", content="probe-result")
    spoken = _rendered(tokenizer, [*asked, ChatMessage(role="assistant", content="reply")])
    called = _rendered(tokenizer, native_messages([*asked, call, result]))
    if not all(part in called for part in ("probe-system", "probe-name", "probe-call", "probe-result")):
        return None
    together = enumerate(zip(spoken, called, strict=False))
    parted = next((at for at, (one, other) in together if one != other), 0)
    for start in (match.start() for match in re.compile(r"\{").finditer(called, parted)):
        found, _ = _json_at(called, start)
        if found and _call(found[0])[:2] == ("probe-call", _PROBE):
            opening = called[parted:start].rstrip().removesuffix("[").strip()
            ids = tokenizer(opening, add_special_tokens=False)["input_ids"]
            special = [token for token in ids if token in tokenizer.all_special_ids]
            return ToolForm(opening, special[-1] if special else None)
    return None


def native_messages(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """The same turns with calls and results as templates expect them. Blocks that hold no call stay text."""
    native: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for message in messages:
        turn: dict[str, Any] = dict(message)
        if message["role"] == "assistant":
            waiting = _structured(message["content"])
            if waiting:
                turn |= {
                    "content": without_blocks("tool_call", message["content"]).strip(),
                    "tool_calls": list(waiting),
                }
        elif message["role"] == "tool":
            answered = waiting.pop(0) if waiting else {"id": _identity(0), "function": {"name": "tool"}}
            turn |= {"tool_call_id": answered["id"], "name": answered["function"]["name"]}
        native.append(turn)
    return native


def in_our_form(said: str, bodies: list[str], form: ToolForm, tools: Collection[str]) -> str:
    """A reply in which calls of those tools have become `<tool_call>` blocks: `said` before the first opening, and what
    follows each of them. A reply without an opening that is no call stays as it is.

    What follows an opening and is no call becomes a block too, so that the agent is told of its mistake; what stands
    behind the calls goes.
    """
    try:
        if not form.opening:
            return _bare(said, tools)
        parts = [said.rstrip()] if said.strip() else []
        for body in bodies:
            found, _ = _json_at(body, len(body) - len(body.lstrip(" \n\t[")))
            parts += [_wrapped(_block(*_call(each, tools)) or _text(each)) for each in found] or [
                _wrapped(body.strip())
            ]
        return "\n".join(parts) if bodies else said
    except RecursionError:  # nested as deep as can just be read, and not written
        return said


def _bare(text: str, tools: Collection[str]) -> str:
    """A reply that is nothing but calls; any other stays as it is."""
    start = text.find("{")
    found, end = _json_at(text, start) if start >= 0 else ([], 0)
    blocks = [_block(*_call(each, tools)) for each in found]
    alone = not text[:start].strip(" \n\t[") and not text[end:].strip()
    return "\n".join(map(_wrapped, blocks)) if alone and blocks and all(blocks) else text


def _rendered(tokenizer: Any, turns: list[Any]) -> str:
    """Empty where the template raises, whatever it raises: it does not speak tools then."""
    if not tokenizer.chat_template:
        return ""
    try:
        return render(tokenizer, turns, [_SCHEMA])
    except TemplateFailed:
        return ""


def _structured(content: str) -> list[dict[str, Any]]:
    """The calls in a reply of ours; none unless all blocks hold one."""
    calls: list[dict[str, Any]] = []
    for number, body in enumerate(blocks("tool_call", content)):
        found, _ = _json_at(body, len(body) - len(body.lstrip()))
        name, arguments, identity = _call(found[0]) if len(found) == 1 else ("", None, "")
        if arguments is None:
            return []
        function = {"name": name, "arguments": arguments}
        calls.append({"type": "function", "id": identity or _identity(number), "function": function})
    return calls


def _identity(number: int) -> str:
    return f"call{number:05d}"  # nine letters and digits, which Mistral's templates insist on


def _json_at(text: str, start: int) -> tuple[list[Any], int]:
    """JSON values from `start` on, one behind the other, and where the last one ends."""
    found: list[Any] = []
    end = start
    while start < len(text) and text[start] == "{":
        try:
            value, end = _JSON.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        found.append(value)
        while end < len(text) and text[end] in _BETWEEN:
            end += 1
        start = end
    return found, end


def _call(value: Any, tools: Collection[str] = ()) -> tuple[str, dict[str, Any] | None, str]:
    """Name, arguments and id of a call; arguments of None where it is none. One of those tools needs none."""
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return "", None, ""
    arguments = next((function[name] for name in _NAMES if name in function), None)
    if isinstance(arguments, str):
        given, _ = _json_at(arguments.strip(), 0)
        arguments = given[0] if len(given) == 1 else None
    if arguments is None and function["name"] in tools:
        arguments = {}
    identity = value.get("id")
    return (
        function["name"],
        arguments if isinstance(arguments, dict) else None,
        identity if isinstance(identity, str) else "",
    )


def _block(name: str, arguments: dict[str, Any] | None, identity: str = "") -> str:
    """Empty for what is no call."""
    own = {"id": identity} if identity else {}
    return "" if arguments is None else _text({"name": name, "arguments": arguments, **own})


def _text(value: Any) -> str:
    """As JSON, with halves of surrogate pairs replaced: no tokenizer takes them."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


def _wrapped(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"
