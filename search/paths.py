"""The replies that a run has had so far: with the same ones the same program reaches the same state (decision 2 in
docs/architecture.md).

A path is data: it can be kept, compared and replayed. Nothing here runs anything.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from engine.replay import ReplayEntry, difference
from workflow.completion import ChatMessage, Completion, CompletionRequest
from workflow.environment import Observation
from workflow.failures import Failure
from workflow.requests import Act, CodeReply, CodeRun, Observe

Asked = CompletionRequest | CodeRun | Observe | Act
"""What a run may be held at."""


class _Step(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    """Of the request (`workflow.scheduler`)."""


class AgentStep(_Step):
    """A reply to an agent's call."""

    type: Literal["agent"] = "agent"
    agent: str
    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = []
    reply: Completion | Failure
    """A failure where the call itself went past a limit, such as the model's context; of no other kind."""

    @field_validator("reply")
    @classmethod
    def _is_a_limit(cls, reply: Completion | Failure) -> Completion | Failure:
        if isinstance(reply, Failure) and not {"limit_kind", "limit", "used"} <= reply.fields.keys():
            raise ValueError(f"a reply that failed with {reply.kind} is none. Fix: keep only replies and limits")
        return reply

    @classmethod
    def of(cls, request: CompletionRequest, reply: Completion | Failure) -> AgentStep:
        return cls.model_construct(
            key=request.key, agent=request.agent, messages=request.messages or [], tools=request.tools, reply=reply
        )

    def mismatch(self, request: Asked) -> str | None:
        """The first thing in which a request under this key is not the recorded one, in words."""
        if not isinstance(request, CompletionRequest):
            return f"{_named(request)}, recorded was a call of agent {self.agent!r}"
        recorded = ReplayEntry.model_construct(agent=self.agent, messages=self.messages, tools=self.tools)
        return difference(recorded, request)

    def reached(self) -> list[Any]:
        """What of the reply the run's state follows from, as JSON."""
        if isinstance(self.reply, Failure):
            return [self.reply.kind, self.reply.message]
        reply = self.reply
        spent = [reply.usage.prompt_tokens, reply.usage.completion_tokens]  # a limit counts them
        return [reply.text, reply.reasoning, reply.finish_reason, reply.token_ids, reply.prompt_token_ids, spent]


class CodeStep(_Step):
    """What code that the program ran has done."""

    type: Literal["code"] = "code"
    code: str
    stdin: str = ""
    timeout_s: float | None = None
    reply: CodeReply
    charged_s: float = 0.0
    """Seconds that it took of the run's own time; what runs side by side counts as often as it takes longest."""

    @property
    def request(self) -> CodeRun:
        return CodeRun(self.code, self.stdin, self.timeout_s)

    def mismatch(self, request: Asked) -> str | None:
        if not isinstance(request, CodeRun):
            return f"{_named(request)}, recorded was code"
        if request.stdin != self.stdin:
            return f"its code reads {request.stdin[-200:]!r}, recorded was {self.stdin[-200:]!r}"
        return (
            None if request.code == self.code else f"it runs {request.code[-200:]!r}, recorded was {self.code[-200:]!r}"
        )

    def reached(self) -> list[Any]:
        return [self.reply.exit_status, self.reply.stdout, self.reply.stderr, self.reply.limit]


class GameStep(_Step):
    """What the program saw of the game, or did in it."""

    type: Literal["game"] = "game"
    agent: str
    text: str | None = None
    """None where it only looked."""
    commit: bool
    author: str | None = None
    """Who wrote the action; None where no agent did, and where it only looked."""
    reply: Observation

    @classmethod
    def of(cls, key: str, request: Observe | Act, reply: Observation, author: str | None) -> GameStep:
        acts = isinstance(request, Act)
        text, commit = (request.text, request.commit) if acts else (None, False)
        return cls.model_construct(key=key, agent=request.agent, text=text, commit=commit, author=author, reply=reply)

    def mismatch(self, request: Asked) -> str | None:
        if not isinstance(request, (Observe, Act)):
            return f"{_named(request)}, recorded was a look at the game or a move in it"
        asked = self.of(self.key, request, self.reply, self.author)
        return None if asked == self else f"it plays as {_played(asked)}, recorded was {_played(self)}"

    def reached(self) -> list[Any]:
        return [self.reply.text, self.reply.done]


def _named(request: Asked) -> str:
    if isinstance(request, CompletionRequest):
        return f"agent {request.agent!r} is asked"
    return (
        "it runs code" if isinstance(request, CodeRun) else f"agent {request.agent!r} looks at the game or acts in it"
    )


def _played(step: GameStep) -> str:
    return f"{step.agent!r} ({'for good' if step.commit else 'to see'}): {(step.text or 'a look')[-200:]!r}"


AnyStep = AgentStep | CodeStep | GameStep
Step = Annotated[AnyStep, Field(discriminator="type")]


class Path(BaseModel):
    """The replies to all requests of a run so far, in the order in which the program was given them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: str
    """`Program.digest` of what was run."""
    steps: tuple[Step, ...] = ()
    _digest: str = PrivateAttr(default="")

    @property
    def digest(self) -> str:
        """Hexadecimal; the same for paths that lead to the same state, whatever is recorded beside the replies."""
        if not self._digest:
            digest = self.program
            for step in self.steps:
                digest = _further(digest, step)
            self._digest = digest
        return self._digest

    def then(self, step: AnyStep) -> Path:
        longer = Path.model_construct(program=self.program, steps=(*self.steps, step))
        longer._digest = _further(self.digest, step)
        return longer

    @property
    def decisions(self) -> tuple[AgentStep, ...]:
        """The agents' replies alone."""
        return tuple(step for step in self.steps if isinstance(step, AgentStep))


def _further(digest: str, step: AnyStep) -> str:
    said = json.dumps([digest, step.key, *step.reached()], separators=(",", ":"))
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()
