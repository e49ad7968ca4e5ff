"""Chat turns in plain form, for models and servers that know only system, user and assistant turns.

Agents speak a text protocol: they read tool schemas in their system turn, write `<tool_call>` blocks and get the
results back inside `<tool_response>` (the Hermes form, which Qwen models are trained on). Pure functions; parsing
an agent's calls is the business of `workflow.tools`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from workflow.completion import ChatMessage

_TOOLS = """# Tools

These tools are yours to call. One JSON description per line:
<tools>
{schemas}
</tools>

A call is a JSON object with the tool's name and its arguments, inside a tag of its own:
<tool_call>
{{"name": "tool name", "arguments": {{"argument name": "value"}}}}
</tool_call>
Write one tag per call, then end your turn; each result comes back inside <tool_response></tool_response>."""


def tool_instructions(tools: list[dict[str, Any]]) -> str:
    """What an agent is told about its tools: their schemas and how to call them."""
    return _TOOLS.format(schemas="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))


def plain_messages(messages: list[ChatMessage], tools: list[dict[str, Any]]) -> list[ChatMessage]:
    """The same conversation without `tool` turns and without separate tool schemas.

    Schemas join the first system turn (one is added where there is none). Tool results become user turns;
    results that follow each other share one, since many chat formats want roles to alternate.
    """
    plain: list[ChatMessage] = []
    after_tool = False
    for message in messages:
        is_tool = message["role"] == "tool"
        if is_tool:
            wrapped = f"<tool_response>\n{message['content']}\n</tool_response>"
            if after_tool:
                plain[-1] = ChatMessage(role="user", content=f"{plain[-1]['content']}\n{wrapped}")
            else:
                plain.append(ChatMessage(role="user", content=wrapped))
        else:
            plain.append(message)
        after_tool = is_tool
    if not tools:
        return plain
    instructions = tool_instructions(tools)
    if plain and plain[0]["role"] == "system":
        system = f"{plain[0]['content']}\n\n{instructions}" if plain[0]["content"] else instructions
        return [ChatMessage(role="system", content=system), *plain[1:]]
    return [ChatMessage(role="system", content=instructions), *plain]


def text_with_calls(content: str, calls: Iterable[tuple[str, str]]) -> str:
    """A reply in which native tool calls `(name, arguments as JSON text)` have become `<tool_call>` blocks.

    Arguments that are not JSON stay as they are, so that the agent is told of its mistake as for any bad call.
    """
    parts = [content] if content else []
    for name, arguments in calls:
        call = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments.strip() or "{}"}}}'
        parts.append(f"<tool_call>\n{call}\n</tool_call>")
    return "\n".join(parts)
