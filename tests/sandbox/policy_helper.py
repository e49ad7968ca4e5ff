"""Runs small programs under the policy, and the same text in plain Python, for comparison."""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.language.compiler import compile_program
from sandbox.language.contract_modules import contract_facades
from sandbox.language.guards import program_globals
from sandbox.language.stdlib.importable import facade
from workflow.failures import Finding
from workflow.requests import CodeReply, CodeRun


@dataclass
class Outcome:
    printed: str = ""
    error: BaseException | None = None
    findings: list[Finding] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        return bool(self.findings) or self.error is not None

    @property
    def reason(self) -> str:
        """Why the program did not run to its end, or the empty string."""
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return "\n".join(str(finding) for finding in self.findings)


def contract_modules(**more: Mapping[str, object]) -> dict[str, Any]:
    modules = contract_facades(no_code)
    return modules | {name: facade(name, values) for name, values in more.items()}


def no_code(request: CodeRun) -> CodeReply:
    raise AssertionError(f"the program ran code: {request.code!r}")


def run(
    source: str,
    *,
    seed: int = 0,
    run_code: Callable[[CodeRun], CodeReply] = no_code,
    **more_modules: Mapping[str, object],
) -> Outcome:
    """The program under the policy, in this process."""
    compiled = compile_program(source)
    if compiled.code is None:
        return Outcome(findings=compiled.findings)
    written: list[str] = []
    names = program_globals(
        question="What is 6 * 7?",
        write=written.append,
        run_code=run_code,
        seed=seed,
        modules=contract_modules(**more_modules),
    )
    return _executed(compiled.code, names, written)


def run_plain(source: str, extra: Mapping[str, object] | None = None) -> Outcome:
    """The same text in plain Python; `extra` names stand for what the program would import."""
    written: list[str] = []

    def show(*objects: object, sep: str = " ", end: str = "\n", **ignored: object) -> None:
        written.append(sep.join(str(obj) for obj in objects) + end)

    names = {"__name__": "__main__", "__builtins__": {**vars(builtins), "print": show}, **(extra or {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, "<plain>", "exec", dont_inherit=True)
    return _executed(code, names, written)


def _executed(code: Any, names: dict[str, Any], written: list[str]) -> Outcome:
    try:
        exec(code, names)
    except (Exception, SystemExit) as error:
        return Outcome("".join(written), error, variables=names)
    return Outcome("".join(written), variables=names)
