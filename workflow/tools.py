"""Tools that an agent may call: the registry, and the text protocol of tool calls.

A call is `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. Bad calls become messages to the agent,
never exceptions. Nothing here executes code in a sandbox; a tool is a plain Python function of the program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from workflow.checks import contract, nearest, other_names
from workflow.labels import label_problem
from workflow.nesting import depth_of
from workflow.text import blocks

DEEPEST_CALL = 32
"""Brackets within one another in a tool call: jails and traces hold no more than some 60."""


def _label(name: str) -> str:
    if problem := label_problem(name):
        raise ValueError(f"the name {problem}")
    return name


def _object_schema(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("type", "object") != "object":
        raise ValueError('parameters must be a JSON Schema of type "object"')
    if not isinstance(value.get("properties", {}), dict):
        raise ValueError("properties must map each argument's name to its JSON Schema")
    required = value.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ValueError("required must be a list of argument names")
    return value


class Tool:
    """A function of the program with what agents are shown of it. Made by `ToolRegistry.register`; read-only."""

    __slots__ = ("description", "func", "name", "parameters")
    name: str
    func: Callable[..., Any]
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments."""

    def __init__(self, name: str, func: Callable[..., Any], description: str, parameters: dict[str, Any]) -> None:
        values = {"name": name, "func": func, "description": description, "parameters": parameters}
        for field, value in values.items():
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a tool cannot be changed; register {self.name!r} again")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    # As a mapping, which it is in the published contract.

    def _entries(self) -> dict[str, Any]:
        return {"function": self.func, "description": self.description, "parameters": self.parameters}

    def __getitem__(self, key: str) -> Any:
        return self._entries()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __contains__(self, key: object) -> bool:
        return key in self._entries()

    def keys(self) -> list[str]:
        """`function`, `description` and `parameters`."""
        return list(self._entries())

    def get(self, key: str, default: Any = None) -> Any:
        """The value under one of the `keys`, or `default`."""
        return self._entries().get(key, default)

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters or {"type": "object", "properties": {}},
            },
        }


class ToolRegistry:
    """The tools of a program. Registering a name again replaces the tool."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    @contract
    def register(
        self,
        name: Annotated[str, Field(min_length=1), AfterValidator(_label)],
        func: Callable[..., Any],
        description: str = "",
        parameters: Annotated[dict[str, Any], AfterValidator(_object_schema)] | None = None,
    ) -> None:
        """Offer `func` as a tool. `parameters` is the JSON Schema of its arguments, which agents are shown."""
        self._tools[name] = Tool(name, func, description, parameters or {})

    def get_tool(self, name: str) -> Tool | None:
        """The tool of this name, or None."""
        return self._tools.get(name)

    def list_tools(self) -> list[str]:
        """The names of all tools."""
        return list(self._tools)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """What agents are shown of each tool: name, description, parameters."""
        return [tool.schema for tool in self._tools.values()]

    def problem_with(self, name: str, arguments: dict[str, Any]) -> str | None:
        """Why this call cannot be made, in words for the agent, or None if it can."""
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            hint = nearest(name, self._tools)
            return f"unknown tool {name!r}.{f' Did you mean {hint!r}?' if hint else ''} Available tools: {known}."
        properties = tool.parameters.get("properties", {})
        missing = [key for key in tool.parameters.get("required", []) if key not in arguments]
        unknown = [key for key in arguments if properties and key not in properties]
        if missing or unknown:
            wrong = [f"missing {key!r}" for key in missing] + [f"unknown {key!r}" for key in unknown]
            return f"bad arguments for {name!r}: {', '.join(wrong)}. Expected: {', '.join(properties) or 'none'}."
        return None

    @other_names(parameters="arguments")
    @contract
    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool at once. Raises ValueError for an unknown name or arguments that do not fit."""
        problem = self.problem_with(name, arguments)
        if problem:
            raise ValueError(problem)
        return self._tools[name].func(**arguments)


@dataclass(frozen=True)
class ParsedCall:
    """One tool call found in a reply: either `name` and `arguments`, or what is wrong with it."""

    name: str = ""
    arguments: dict[str, Any] | None = None
    problem: str | None = None


def parse_tool_calls(text: str) -> list[ParsedCall]:
    """All tool calls of a reply, in order. `parameters` is accepted for `arguments`; bad JSON is reported."""
    return [_parse_call(body) for body in blocks("tool_call", text)]


def _parse_call(body: str) -> ParsedCall:
    body = body.strip()
    if body.startswith("```") and body.endswith("```"):
        body = body.strip("`").removeprefix("json")
    shape = '{"name": ..., "arguments": {...}}'
    try:
        call = _json(body)
    except (ValueError, RecursionError) as error:
        return ParsedCall(problem=f"the tool call is not valid JSON ({error}). Write it as {shape}.")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return ParsedCall(problem=f"the tool call has no name. Write it as {shape}.")
    arguments = call.get("arguments", call.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = _json(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        return ParsedCall(call["name"], problem=f"arguments of {call['name']!r} must be a JSON object.")
    return ParsedCall(call["name"], arguments)


def _json(text: str) -> Any:
    """Raises ValueError, and RecursionError where the caller has left a parser little room."""
    if depth_of(text) > DEEPEST_CALL:
        raise ValueError(f"nested deeper than {DEEPEST_CALL} levels")
    # Literal newlines inside strings are what models write for code: accept them.
    return json.loads(text, strict=False)
