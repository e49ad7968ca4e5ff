"""Run tests written in Python: the tests in one jail, the solution in another, this relay between them.

The relay passes on each call of the tests as plain JSON and hands back the solution's reply, which must repeat the
call's nonce. It decodes no values and decides nothing about them: the tests' jail does (`tasks.code.remote`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import secrets
from typing import TYPE_CHECKING, Any

from tasks.code import harness, remote
from tasks.code.grades import TestResult, ended, raised
from tasks.problems import AssertTests
from workflow.limits import CodeLimits

if TYPE_CHECKING:
    from sandbox.protocol import CodeProcess, Sandbox

_HARNESS = inspect.getsource(harness)
CANDIDATE = f"{_HARNESS}\nserve_candidate()\n"
_REMOTE = inspect.getsource(remote).partition("# ---- the checker's side\n")[2]
CHECKER = f"{_HARNESS}\n{_REMOTE}\nserve_checker()\n"
CHECKER_OUTPUT_BYTES = 32 << 20
"""What the tests of one problem may send to the solution, in bytes."""

MAX_REPLY = 1 << 20
"""Longest reply of a solution to one call, in bytes: what is parsed here holds up every other run."""


class _CandidateLost(Exception):
    """The solution's process cannot answer any more; carries what that means for the test at hand."""

    def __init__(self, result: TestResult) -> None:
        self.result = result
        super().__init__(result.detail)


async def run_asserts(
    sandbox: Sandbox, solution: str, tests: AssertTests, limits: CodeLimits, stop_at_failure: bool
) -> list[TestResult]:
    """One result per test of `tests`; `limits.wall_s` bounds them all together.

    A test that did not come to its end because the solution's process ended, or was too slow, takes that as its
    outcome, and the tests after it are `not_run`.
    """
    results: list[TestResult] = []
    async with contextlib.AsyncExitStack() as stack:
        candidate = await sandbox.start_code(CANDIDATE, limits=limits)
        stack.push_async_callback(candidate.kill)
        room = max(limits.output_bytes, CHECKER_OUTPUT_BYTES)
        checker = await sandbox.start_code(CHECKER, limits=limits.model_copy(update={"output_bytes": room}))
        stack.push_async_callback(checker.kill)
        try:
            async with asyncio.timeout(limits.wall_s):
                await _converse(candidate, checker, solution, tests, results, stop_at_failure)
        except _CandidateLost as lost:
            results.append(lost.result)
        except TimeoutError:
            results.append(TestResult(outcome="timeout", detail=f"limit wall_s={limits.wall_s:g}", by_clock=True))
    results += [TestResult(outcome="not_run")] * (len(tests.tests) - len(results))
    return results


async def _converse(
    candidate: CodeProcess,
    checker: CodeProcess,
    solution: str,
    tests: AssertTests,
    results: list[TestResult],
    stop_at_failure: bool,
) -> None:
    """Load the solution, start the tests and relay until they are done; fills `results`."""
    load = {"do": "load", "prompt": tests.prompt, "solution": solution, "names": list(tests.names.values())}
    loaded = await _ask(candidate, load)
    if "raised" in loaded:
        raise _CandidateLost(raised(*loaded["raised"]))
    await _send(checker, {"names": tests.names, "setup": tests.setup, "tests": tests.tests})
    while len(results) < len(tests.tests):
        line = await checker.readline()
        if not line:  # the tests themselves were killed or ended: not by the solution's process, but on its values
            raise _CandidateLost(ended(await checker.wait()))
        message: dict[str, Any] = json.loads(line)
        if "ask" in message:
            await _send(checker, await _ask(candidate, message["ask"]))
            continue
        results.append(TestResult(outcome=message["test"], detail=message["detail"]))
        if stop_at_failure and results[-1].outcome != "pass":
            return


async def _ask(candidate: CodeProcess, request: dict[str, Any]) -> dict[str, Any]:
    """One request to the solution's process and its reply, `{"value": wire}`, with what became of
    the arguments under `after` where that was asked for, or `{"raised": [type, message]}`."""
    nonce = secrets.token_hex(8)
    await _send(candidate, {**request, "nonce": nonce})
    line = await candidate.readline()
    if not line:
        raise _CandidateLost(ended(await candidate.wait()))
    if len(line) > MAX_REPLY:
        raise _CandidateLost(TestResult(outcome="output", detail=f"a value of {len(line):,} bytes"))
    reply = read_reply(line, nonce)
    if reply is None:
        raise _CandidateLost(TestResult(outcome="forged", detail="the solution wrote on the grader's channel"))
    return reply


def read_reply(line: bytes | str, nonce: str) -> dict[str, Any] | None:
    """The reply in a line from the solution's process if it is one to the request with `nonce`, else None."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("nonce") != nonce:
        return None
    if "value" in message:
        return {name: message[name] for name in ("value", "after") if name in message}
    match message.get("raised"):
        case [str(kind), str(text)]:
            return {"raised": [kind, text]}
    return None


async def _send(process: CodeProcess, message: dict[str, Any]) -> None:
    await process.write(json.dumps(message).encode() + b"\n")
