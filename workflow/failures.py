"""The few, named ways in which a run can end badly (docs/architecture.md, decision 7).

Each failure is an exception with fields, and has a serializable `Failure` record for the Trace.
`ProgramRejected`, `ProgramFailed` and `LimitExceeded` are data: they become rewards.
`EngineFailed` and `SandboxUnavailable` are infrastructure: they are retried, then stop loudly, and never
become rewards. This module does not retry, log or decide rewards.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

FailureKind = Literal["program_rejected", "program_failed", "limit_exceeded", "engine_failed", "sandbox_unavailable"]

LimitKind = Literal[
    "wall_s", "cpu_s", "memory_mb", "output_bytes", "agent_calls", "tokens", "tool_calls", "context_tokens"
]
"""All are fields of `Limits` but `context_tokens`: a conversation that has outgrown its model."""


class Finding(BaseModel):
    """One thing that the static check found wrong (or doubtful) in a program."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    line: int
    """Line in the program, counted from 1; 0 when the finding concerns the whole program."""
    code: str
    """Short stable identifier, such as `unknown-argument`."""
    message: str
    """Names the culprit and its value."""
    fix: str = ""
    """What to write instead."""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.message}" + (f" Fix: {self.fix}" if self.fix else "")


class Failure(BaseModel):
    """Serializable record of a failed run; `kind` says which exception it stands for."""

    model_config = ConfigDict(frozen=True, defer_build=True, ser_json_inf_nan="strings")

    kind: FailureKind
    message: str
    fields: dict[str, Any] = {}

    @property
    def is_infrastructure(self) -> bool:
        """True for failures that must never become a reward."""
        return self.kind in ("engine_failed", "sandbox_unavailable")

    @property
    def is_stop(self) -> bool:
        """True for a run that was stopped from outside, as by Ctrl-C, which is not the program's doing."""
        return self == stopped().record()


class MetaAgentError(Exception):
    """Base of the five failure kinds. `record()` gives the form that goes into a Trace."""

    kind: FailureKind

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, vars(self))

    def record(self) -> Failure:
        fields = {k: v for k, v in vars(self).items() if not k.startswith("_")}
        return Failure(kind=self.kind, message=str(self), fields=fields)


def _again(kind: type[MetaAgentError], said: tuple[Any, ...], fields: dict[str, Any]) -> MetaAgentError:
    """An exception that was pickled, which its constructor could not make from its message alone."""
    error = kind.__new__(kind)
    error.args = said
    vars(error).update(fields)
    return error


class ProgramRejected(MetaAgentError):
    """The program was refused before it ran. `findings` name line, culprit and fix."""

    kind = "program_rejected"

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings
        super().__init__("\n".join(str(finding) for finding in findings))

    def record(self) -> Failure:
        findings = [finding.model_dump() for finding in self.findings]
        return Failure(kind=self.kind, message=str(self), fields={"findings": findings})


class ProgramFailed(MetaAgentError):
    """The program raised. `line` is the line of the program where it happened, if known."""

    kind = "program_failed"

    def __init__(self, error_type: str, message: str, line: int | None = None) -> None:
        self.error_type = error_type
        self.line = line
        place = f" (line {line})" if line else ""
        super().__init__(f"{error_type}: {message}{place}")


def stopped() -> ProgramFailed:
    """What is on record of a run that was stopped from outside. A program's own error of this name has a line."""
    return ProgramFailed("Cancelled", "the run was cancelled")


class LimitExceeded(MetaAgentError):
    """A run hit one of its limits: `used` went past `limit`, both in the unit that `limit_kind` names."""

    kind = "limit_exceeded"

    def __init__(self, limit_kind: LimitKind, limit: float, used: float) -> None:
        self.limit_kind = limit_kind
        self.limit = limit
        self.used = used
        fix = "say less, or use a model with more" if limit_kind == "context_tokens" else f"raise Limits.{limit_kind}"
        super().__init__(f"limit {limit_kind}={limit:g} exceeded (used {used:g}); {fix}")


class EngineFailed(MetaAgentError):
    """An engine could not give a completion after its retries."""

    kind = "engine_failed"

    def __init__(self, engine: str, reason: str, attempts: int = 1, status: int | None = None) -> None:
        self.engine = engine
        self.attempts = attempts
        self.status = status
        tries = f" after {attempts} attempts" if attempts > 1 else ""
        super().__init__(f"engine {engine} failed{tries}: {reason}")


class SandboxUnavailable(MetaAgentError):
    """No jail can be had, or one died for reasons that are not the program's. `fix` says what to do."""

    kind = "sandbox_unavailable"

    def __init__(self, reason: str, fix: str = "") -> None:
        self.fix = fix
        super().__init__(f"sandbox unavailable: {reason}" + (f" Fix: {fix}" if fix else ""))


class ContractError(TypeError):
    """A node was built or used against the contract: an unknown argument, a wrong type, a missing method.

    The message names the node, the argument and the nearest valid name.
    """


class NoEngineConnected(RuntimeError):
    """A workflow was run outside a jail with no engine connected."""


def raise_infrastructure(failure: Failure | None) -> None:
    """Raise a run's failure that is none of its program's."""
    if failure is None or not failure.is_infrastructure:
        return
    reason = failure.message.partition(": ")[2] or failure.message  # the exception puts its own words before
    if failure.kind == "engine_failed":
        raise EngineFailed(failure.fields.get("engine", ""), reason, failure.fields.get("attempts", 1))
    raise SandboxUnavailable(reason)
