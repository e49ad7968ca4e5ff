"""What a sandbox offers, whatever backend it is: programs, code, and jailed calls of trusted functions.

Types and one protocol; the process backend is `sandbox.host.process_sandbox`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, JsonValue

from engine.protocol import Engine
from engine.session import Run
from workflow.completion import Sampling
from workflow.failures import Finding
from workflow.game import Game
from workflow.graph import GraphNode
from workflow.limits import CodeLimits, Limits
from workflow.trace import AgentTurn, Event

CodeLimitKind = Literal["wall_s", "cpu_s", "memory_mb", "output_bytes", "disk_mb"]


class CodeResult(BaseModel):
    """How a code run ended. `exit_status` is None when a signal or a limit ended it."""

    model_config = ConfigDict(frozen=True)

    exit_status: int | None
    signal: int | None = None
    stdout: str
    stderr: str
    """Text; undecodable bytes become U+FFFD. Cut at `CodeLimits.output_bytes`, both streams together."""
    duration_s: float
    limit: CodeLimitKind | None = None

    @property
    def ok(self) -> bool:
        return self.exit_status == 0 and self.limit is None


class CodeProcess(Protocol):
    """A running jailed Python process that one can talk to."""

    async def write(self, data: bytes) -> None:
        """Send bytes to its stdin. A process that has closed it or ended swallows them."""
        ...

    async def close_stdin(self) -> None: ...

    async def readline(self) -> bytes:
        """The next line of its stdout with the newline; `b""` at the end. A line is at most `output_bytes` long."""
        ...

    async def wait(self) -> CodeResult:
        """Wait for its end, at most until `CodeLimits.wall_s` after its start."""
        ...

    async def kill(self) -> None: ...


class Workspace(Protocol):
    """A folder that code runs share; it is their working directory. Files in it are untrusted."""

    async def write(self, name: str, data: bytes) -> None:
        """Raises `WorkspaceError` where code has left what is no file under this name, or has filled the workspace."""
        ...

    async def read(self, name: str) -> bytes:
        """Contents of a regular file; FileNotFoundError if there is none, `WorkspaceError` if it is a link."""
        ...


class WorkspaceError(OSError):
    """A file of a workspace cannot be written or read, because of what code has left there."""


class Description(BaseModel):
    """A program's structure, found by running it without agents, on canned replies."""

    graph: GraphNode | None = None
    unreachable: list[str] = []
    """Nodes that were built but are not part of the workflow that runs."""
    findings: list[Finding] = []


_SLOW = (
    "see that every loop outside of functions ends, and move what takes long into a node's process, a tool function or "
    "code that a tool runs: the program is built before any agent is asked"
)
_LIMIT_FIXES = {
    "cpu_s": _SLOW,
    "memory_mb": "keep less in memory while the workflow is built: no long lists, no large numbers",
    "output_bytes": "print less while the workflow is built",
}
"""What a program can do about a limit that its building has hit."""


def over_limit(limit_kind: str, limit: float) -> Finding:
    """What a check says of a program whose building hits a limit."""
    return Finding(
        line=0,
        code="build-failed",
        message=f"building the workflow goes beyond its limit of {limit:g} ({limit_kind})",
        fix=_LIMIT_FIXES.get(limit_kind, "build the workflow without long computations"),
    )


class Strength(BaseModel):
    """How strong this machine's jails are, as probed."""

    backend: str
    mode: Literal["j", "j0", "warm", "strict", "gvisor"]
    """Of processes: `j` (own namespaces and an empty root for each run) or `j0` (landlock, seccomp and limits only).
    Of containers, with j0 inside: `warm` (runs share them), `strict` (one per run or workspace), `gvisor` (those, on a
    kernel of their own)."""
    reason: str = ""
    """What is weaker than it could be, and why."""


class Sandbox(Protocol):
    """Where other people's code runs. Raises `SandboxUnavailable` when no jail can be had."""

    max_jails: int
    """Programs that run at once; more wait."""

    async def strength(self) -> Strength: ...

    async def run_program(
        self,
        source: str,
        question: str,
        *,
        engine: Engine,
        limits: Limits | None = None,
        sampling: Sampling | None = None,
        seed: int = 0,
        sink: Callable[[Event], None] | None = None,
        asking: Callable[[AgentTurn], None] | None = None,
        own_sampling: bool = False,
        game: Game | None = None,
    ) -> Run:
        """Run a program on a question. Whatever the program does is in the result, not raised.

        `sink` gets every event as it happens, `asking` the turn of an agent as it begins, without its reply.
        `own_sampling`: agents are sampled as their nodes ask (`temperature=` and so on), not as `sampling` says. `game`
        is where the game begins that the program plays as `environment`.
        """
        ...

    async def describe(self, source: str, question: str = "") -> Description: ...

    async def run_code(
        self, code: str, *, stdin: str = "", limits: CodeLimits | None = None, workspace: Workspace | None = None
    ) -> CodeResult: ...

    async def start_code(
        self, code: str, *, limits: CodeLimits | None = None, workspace: Workspace | None = None
    ) -> CodeProcess: ...

    def workspace(self, disk_mb: int = 64) -> AbstractAsyncContextManager[Workspace]: ...

    async def call(
        self, target: str, payload: JsonValue, *, cpu_s: int = 10, wall_s: float = 60.0, memory_mb: int = 1024
    ) -> JsonValue:
        """Run the trusted function `package.module:name` on untrusted data in a jail of its own. What computes too long
        ends by `cpu_s`, which a busy machine does not change; `wall_s` is for what waits.

        Raises `LimitExceeded`, or `ProgramFailed` with what the function raised.
        """
        ...

    async def close(self) -> None: ...
