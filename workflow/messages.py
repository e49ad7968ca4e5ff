"""What nodes exchange: `Message`, and the `Context` that collects the messages of one run.

Plain validated data: no history trimming, no prompts, no I/O.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from workflow.checks import contract_data

_STRICT = ConfigDict(extra="forbid", validate_assignment=True)


class MessageType(StrEnum):
    USER_INPUT = "user_input"
    AGENT_RESPONSE = "agent_response"
    CRITIQUE = "critique"
    ENSEMBLE_RESULT = "ensemble_result"
    TOOL_RESULT = "tool_result"
    SYSTEM = "system"
    ERROR = "error"


@contract_data
@dataclass(config=_STRICT)
class Message:
    """What one node hands to the next. `content` is the whole text; `metadata["delivery"]`, where present, is
    the part that downstream agents see."""

    content: str
    message_type: MessageType = MessageType.AGENT_RESPONSE
    metadata: dict[str, Any] = Field(default_factory=dict)
    sender: str | None = None
    recipient: str | None = None

    @classmethod
    def of_agent(cls, content: str, metadata: dict[str, Any], sender: str) -> Message:
        """An agent's response, made once per agent from values that are known to be right: not validated again."""
        message = object.__new__(cls)
        message.__dict__.update(
            content=content,
            message_type=MessageType.AGENT_RESPONSE,
            metadata=metadata,
            sender=sender,
            recipient=None,
        )
        return message

    @property
    def delivery(self) -> str:
        """What a downstream agent sees: the delivery if there is one, else the whole content."""
        return self.metadata.get("delivery", self.content)


@contract_data
@dataclass(config=_STRICT)
class Context:
    """The messages and the free-form state of one run. Nodes read it; workflows append to it."""

    messages: list[Message] = Field(default_factory=list)
    state: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)

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
        self.messages.append(message)

    def get_messages_by_type(self, message_type: MessageType) -> list[Message]:
        return [message for message in self.messages if message.message_type == message_type]

    def get_latest_message(self, message_type: MessageType | None = None) -> Message | None:
        for message in reversed(self.messages):
            if message_type is None or message.message_type == message_type:
                return message
        return None

    def set_state(self, key: str, value: Any) -> None:
        self.state[key] = value

    def get_state(self, key: str, default: Any = None) -> Any:
        return self.state.get(key, default)

    def extended(self, *messages: Message, reader: str = "") -> Context:
        """A copy with more messages, sharing `state`. `reader` names who will read the next node's result."""
        metadata = {**self.metadata, "reader": reader} if reader else self.metadata
        # Every part has been validated already, and this runs once per node: copy without validating again.
        copy = object.__new__(Context)
        copy.__dict__.update(messages=[*self.messages, *messages], state=self.state, metadata=metadata)
        return copy
