"""What nodes exchange: `Message`, and the `Context` that collects the messages of one run.

Plain validated data: no history trimming, no prompts, no I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from workflow.checks import Record, contract
from workflow.failures import ContractError


class MessageType(StrEnum):
    USER_INPUT = "user_input"
    AGENT_RESPONSE = "agent_response"
    CRITIQUE = "critique"
    ENSEMBLE_RESULT = "ensemble_result"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    INTERMEDIATE = "intermediate"
    FINAL_RESULT = "final_result"
    SYSTEM = "system"
    ERROR = "error"


class Message(Record):
    """What one node hands to the next. `content` is the whole text; `metadata["delivery"]`, where present, is
    the part that downstream agents see."""

    __slots__ = ("content", "message_type", "metadata", "recipient", "sender")
    content: str
    message_type: MessageType
    metadata: dict[str, Any]
    sender: str | None
    recipient: str | None

    @contract
    def __init__(
        self,
        content: str,
        message_type: MessageType = MessageType.AGENT_RESPONSE,
        metadata: dict[str, Any] | None = None,
        sender: str | None = None,
        recipient: str | None = None,
    ) -> None:
        metadata = {} if metadata is None else metadata
        self._fill(content=content, message_type=message_type, metadata=metadata, sender=sender, recipient=recipient)

    @classmethod
    def _made(cls, content: str, message_type: MessageType, metadata: dict[str, Any], sender: str) -> Message:
        """Made for each agent of a run from values that are known to be right: not validated again."""
        message = object.__new__(cls)
        message._fill(content=content, message_type=message_type, metadata=metadata, sender=sender, recipient=None)
        return message

    @property
    def delivery(self) -> str:
        """What a downstream agent sees: the delivery if there is one, else the whole content."""
        return self.metadata.get("delivery", self.content)

    def to_dict(self) -> dict[str, Any]:
        """The message as a dict of `content`, `type`, `metadata`, `sender` and `recipient`."""
        return {
            "content": self.content,
            "type": self.message_type.value,
            "metadata": dict(self.metadata),
            "sender": self.sender,
            "recipient": self.recipient,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Message:
        """The message of which `to_dict` made this dict."""
        if not isinstance(data, dict) or not {"content", "type"} <= set(data):
            raise ContractError('Message.from_dict needs a dict with "content" and "type", as to_dict gives it')
        more = {name: data[name] for name in ("metadata", "sender", "recipient") if name in data}
        return cls(data["content"], data["type"], **more)


def _is_of(message: Message, kind: MessageType) -> bool:
    is_result = message.message_type is MessageType.ENSEMBLE_RESULT and kind == MessageType.AGENT_RESPONSE
    return is_result or message.message_type == kind


class Context(Record):
    """The messages and the free-form state of one run. Nodes read it; workflows append to it."""

    __slots__ = ("messages", "metadata", "state")
    messages: list[Message]
    state: dict[str, Any]
    metadata: dict[str, Any]

    @contract
    def __init__(
        self,
        messages: list[Message] | None = None,
        state: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self._fill(messages=messages or [], state=state or {}, metadata=metadata or {})

    @classmethod
    def for_question(cls, question: str, state: dict[str, Any] | None = None) -> Context:
        """A fresh context whose only message is the user's question."""
        return cls([Message(question, MessageType.USER_INPUT, sender="user")], dict(state or {}))

    @property
    def question(self) -> str:
        """The first user message, or the empty string."""
        asked = self.get_messages_by_type(MessageType.USER_INPUT)
        return asked[0].content if asked else ""

    def add_message(self, message: Message) -> None:
        """Append a message, unless it is the newest already."""
        if not self.messages or self.messages[-1] is not message:
            self.messages.append(message)

    def get_messages_by_type(self, message_type: MessageType) -> list[Message]:
        """All messages of a type, the oldest first. What an ensemble or a debate says is an agents' response, too."""
        return [message for message in self.messages if _is_of(message, message_type)]

    def get_latest_message(self, message_type: MessageType | None = None) -> Message | None:
        """The newest message, or the newest of a type; None where there is none."""
        for message in reversed(self.messages):
            if message_type is None or _is_of(message, message_type):
                return message
        return None

    def set_state(self, key: str, value: Any) -> None:
        """Keep a value under a key, for all nodes of the run."""
        self.state[key] = value

    def get_state(self, key: str, default: Any = None) -> Any:
        """The value under a key, or `default`."""
        return self.state.get(key, default)

    def extended(self, *messages: Message, reader: str = "") -> Context:
        """A copy with more messages, sharing `state`. `reader` names who will read the next node's result."""
        metadata = {**self.metadata, "reader": reader} if reader else self.metadata
        # Every part has been validated already, and this runs once per node: copy without validating again.
        copy = object.__new__(Context)
        copy._fill(messages=[*self.messages, *messages], state=self.state, metadata=metadata)
        return copy
