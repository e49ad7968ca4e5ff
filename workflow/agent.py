"""The base of all nodes, and the agent: one role of the Executor policy with its tools.

A node is a generator of requests (`steps`), driven by whoever runs it; it never calls a model itself. A subclass
of `WorkflowNode` may instead define a plain `process(context)` and call other nodes' `process` imperatively.
Nodes made of other nodes are in `workflow.nodes`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from workflow.bridge import as_steps, perform
from workflow.checks import IGNORED_ARGUMENTS, contract
from workflow.completion import ChatMessage, MaxTokens, OwnSampling, Temperature, TopP, own_sampling
from workflow.failures import ContractError
from workflow.labels import label_problem
from workflow.messages import Context, Message, MessageType
from workflow.requests import AgentCall, Delivery, NodeCall, Steps, ToolCall, ToolResult
from workflow.text import delivery, fences, last_boxed, solution_block, strip_echo, without_blocks
from workflow.tools import ParsedCall, ToolRegistry, parse_tool_calls

DELIVERY_REQUEST = (
    "Your result goes to {reader}. Put what {reader} needs, and nothing else, inside <delivery>...</delivery>."
)
PYTHON_TOOL = "python_execute"
"""The tool that runs what agents write into Python fences."""
FROM = "### From {sender}\n"
"""Above what another agent hands on, in a prompt."""


class NodeLogger:
    """A node's `logger`, which says nothing: what runs is in the Trace, and what a program says it prints."""

    __slots__ = ()

    def info(self, *args: object, **options: object) -> None:
        """Nothing is written."""

    debug = warning = error = exception = critical = info


class WorkflowNode:
    """Base of all nodes. Subclass it and define `process(context) -> Message` in plain Python."""

    description = role = ""
    """What the node is for, in words for people: agents are not told."""
    logger = NodeLogger()

    def __init__(self, name: str, **config: Any) -> None:
        if not isinstance(name, str) or not name:
            raise ContractError(f"{type(self).__name__}: name must be a non-empty string (got {name!r})")
        if problem := label_problem(name):
            raise ContractError(f"{type(self).__name__}: name {problem} (got {name[:80]!r})")
        self.name = name
        self.config = {key: value for key, value in config.items() if key not in IGNORED_ARGUMENTS}
        for note in ("description", "role"):
            if note in config:
                setattr(self, note, config[note])

    if not TYPE_CHECKING:  # a type checker should go on finding misspelt attributes

        def __getattr__(self, attribute: str) -> Any:
            fix = "; call super().__init__(name) in its __init__" if attribute == "name" else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}{fix}")

    def process(self, context: Context) -> Message:
        """Run this node to its end and return its message. Callable from any plain code inside a run."""
        return perform(NodeCall(self, context))

    def __call__(self, context: Context) -> Message:
        """Run this node as `process` does, and add its message to the context."""
        message: Message = perform(NodeCall(self, context))
        context.add_message(message)
        return message

    def steps(self, context: Context) -> Steps:
        """The node as a generator of requests. Built-in nodes define this; plain subclasses do not."""
        if type(self).process is WorkflowNode.process:
            raise ContractError(f"{type(self).__name__} {self.name!r} defines neither process(context) nor steps")
        result = yield from as_steps(self.process, context)
        if isinstance(result, Generator):
            result = yield from result
        if isinstance(result, str):
            result = Message(result, sender=self.name)
        if not isinstance(result, Message):
            raise ContractError(
                f"{type(self).__name__} {self.name!r}: process returned {type(result).__name__}, not a Message"
            )
        if result.sender is None:
            result.sender = self.name
        return result

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def notes(description: str, role: str) -> dict[str, str]:
    """Those of a node's two notes that were given."""
    return {name: text for name, text in (("description", description), ("role", role)) if text}


class AgentNode(WorkflowNode):
    """One role of the Executor policy. Loops over tool calls for at most `max_turns` agent turns.

    Where there is a tool `python_execute`, ```` ```python ```` blocks of a reply without other tool calls are calls of
    it. `temperature`, `top_p` and `max_tokens` count where a program is run for its answer; in training and evaluation
    the recipe's hold, and the Trace says so. `max_tokens` lowers the run's limit and never raises it.

    The message's content is the last reply that carries a result (a delivery, a box or a solution) with what the
    agent said after it, such as a verdict on its tests; without any result, the last reply.
    """

    @contract
    def __init__(
        self,
        name: str,
        system_prompt: str,
        tool_registry: ToolRegistry | None = None,
        max_turns: Annotated[int, Field(ge=1)] = 10,
        *,
        temperature: Temperature | None = None,
        top_p: TopP | None = None,
        max_tokens: MaxTokens | None = None,
        description: str = "",
        role: str = "",
    ) -> None:
        super().__init__(name, **notes(description, role))
        self.system_prompt = system_prompt
        self.tool_registry = tool_registry
        self.max_turns = max_turns
        self.temperature = temperature
        self.top_p = top_p
        self.max_tokens = max_tokens

    def steps(self, context: Context) -> Steps:
        messages = self._prompt(context)
        registry = self.tool_registry
        tools = registry.get_tool_schemas() if registry else []
        content, finish_reason = "", "stop"
        for turn in range(self.max_turns):
            reply = yield AgentCall(self.name, messages, tools, turn, self._sampling())
            finish_reason = reply.finish_reason
            own = strip_echo(reply.text, self._instructions(context))
            content = content_after(content, own)
            calls = _calls_in(own, registry) if registry and tools else []
            if not calls or turn == self.max_turns - 1:
                break
            # A longer list, not the same one made longer: the call above keeps what it asked.
            messages = [*messages, ChatMessage(role="assistant", content=reply.text)]
            for call in calls:
                assert registry is not None, "calls are parsed only where there are tools"
                output = yield from self._serve(call, registry)
                messages.append(ChatMessage(role="tool", content=output))
        handed_on, source = delivery(content)
        yield Delivery(self.name, handed_on, source)
        metadata = {"delivery": handed_on, "delivery_source": source, "finish_reason": finish_reason}
        metadata["agent_name"] = self.name
        return Message._made(content, MessageType.AGENT_RESPONSE, metadata, self.name)

    def _sampling(self) -> OwnSampling:
        try:
            return own_sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens)
        except ValidationError as error:  # the program has changed it
            first = error.errors()[0]
            what = f"{first['loc'][0]} {first['msg'].lower()} (got {first['input']!r:.80})"
            raise ContractError(f"AgentNode {self.name!r}: {what}") from None

    def _prompt(self, context: Context) -> list[ChatMessage]:
        parts = [
            message.content
            if message.message_type == MessageType.USER_INPUT
            else FROM.format(sender=message.sender or "an agent") + message.delivery
            for message in context.messages
        ]
        if context.metadata.get("reader"):
            parts.append(_delivery_request(context))
        system = [ChatMessage(role="system", content=self.system_prompt)] if self.system_prompt else []
        return [*system, ChatMessage(role="user", content="\n\n".join(parts))]

    def _instructions(self, context: Context) -> list[str]:
        """What this agent is told to do, without the question and without what other agents wrote."""
        told = (message.metadata.get("instructions") for message in context.messages)
        return [self.system_prompt, _delivery_request(context), *(text for text in told if isinstance(text, str))]

    def _serve(self, call: ParsedCall, registry: ToolRegistry) -> Generator[Any, Any, str]:
        arguments = call.arguments or {}
        problem = call.problem or registry.problem_with(call.name, arguments)
        if problem:
            yield ToolResult(self.name, call.name, problem, is_error=True)
            return f"Error: {problem}"
        served = yield ToolCall(self.name, call.name, arguments)
        if served.content is not None:
            return served.content
        tool = registry.get_tool(call.name)
        assert tool is not None, "problem_with has checked the name"
        try:
            result = yield from as_steps(tool.func, **arguments)
        except Exception as error:
            # A tool's failure is told to the agent, which may mend its call.
            output, failed = f"Error: {type(error).__name__}: {error}", True
        else:
            output, failed = result if isinstance(result, str) else str(result), False
        yield ToolResult(self.name, call.name, output, failed)
        return output


def _calls_in(reply: str, registry: ToolRegistry) -> list[ParsedCall]:
    calls = parse_tool_calls(reply)
    if calls or "```" not in reply or registry.get_tool(PYTHON_TOOL) is None:
        return calls
    blocks = fences(without_blocks("solution", reply))
    return [ParsedCall(PYTHON_TOOL, {"code": code}) for language, code in blocks if language == "python"]


def content_after(content: str, reply: str) -> str:
    """What an agent's message holds once the agent has also written `reply`: see `AgentNode`."""
    return f"{content}\n\n{reply}" if content and not _has_result(reply) and _has_result(content) else reply


def _delivery_request(context: Context) -> str:
    return DELIVERY_REQUEST.replace("{reader}", context.metadata.get("reader", ""))


def _has_result(text: str) -> bool:
    return (
        last_boxed(text) is not None
        or solution_block(text) is not None
        or delivery(text)[1] in ("delivery", "final_answer")
    )


if TYPE_CHECKING:
    # A list of agents is a sequence of nodes; lists themselves are invariant.
    Nodes = Sequence[WorkflowNode]
else:
    Nodes = list[WorkflowNode]
