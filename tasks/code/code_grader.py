"""Grade code: run a solution under tests and compare what it gives outside its process.

Scripts are run on each test's stdin, functions are called through `tasks.code.harness`, both in a fresh jail per
test; Python assertions run in a jail of their own (`tasks.code.asserts`). Expected values never enter the
candidate's jail. Reading an answer out of an agent's text is `workflow.answers`' job.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import JsonValue

from tasks.code.asserts import CANDIDATE, read_reply, run_asserts
from tasks.code.equality import same_output, same_value
from tasks.code.grades import CodeGrade, TestResult, ended, raised, short
from tasks.code.harness import encode
from tasks.problems import AssertTests, CallTest, CodeTests, StdinTest, StdinTests
from workflow.limits import CodeLimits

if TYPE_CHECKING:
    from sandbox.protocol import CodeResult, Sandbox

GRADING_LIMITS = CodeLimits(wall_s=60, cpu_s=10, memory_mb=512, output_bytes=4 << 20)
"""Per test, or for all assertions of one problem together. What computes ends by its CPU seconds, since a busy machine
must change no grade; the clock is for what waits."""

ALL_TESTS_S = 1800
"""For all tests of one solution together, by the clock: one that waits a little in each of a thousand is ended, too."""

AT_ONCE = 64 << 10
"""Characters of an output that are compared at once."""

REPLY_ROOM = 64 << 10
"""Bytes that a returned value may take beyond what the expected one, written with tags, would."""

T = TypeVar("T")

CALL_PROMPT = """\
from typing import *
from collections import *
from functools import *
from itertools import *
from heapq import *
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string
"""
"""What LeetCode-style solutions use without importing it; their own imports and names come after."""


async def grade_code(
    sandbox: Sandbox,
    solution: str,
    tests: CodeTests,
    *,
    limits: CodeLimits = GRADING_LIMITS,
    stop_at_failure: bool = False,
    most_timeouts: int | None = None,
) -> CodeGrade:
    """Run `solution` under `tests`. With `stop_at_failure`, tests after the first that fails are `not_run`; with
    `most_timeouts`, those after as many that took too long.

    Raises `SandboxUnavailable`, never for anything that the solution does.
    """
    if isinstance(tests, AssertTests):
        return CodeGrade(tests=tuple(await run_asserts(sandbox, solution, tests, limits, stop_at_failure)))
    if isinstance(tests, StdinTests):
        runs = [partial(_run_script, sandbox, solution, test, limits) for test in tests.tests]
    else:
        runs = [partial(_call_function, sandbox, solution, tests.fn_name, test, limits) for test in tests.tests]
    results: list[TestResult] = []
    began = time.monotonic()
    for run in runs:
        if time.monotonic() - began > ALL_TESTS_S:
            detail = f"all tests together took more than {ALL_TESTS_S:g} s"
            results.append(TestResult(outcome="timeout", detail=detail, by_clock=True))
            break
        results.append(await run())
        if stop_at_failure and results[-1].outcome != "pass":
            break
        if most_timeouts is not None and sum(test.outcome == "timeout" for test in results) >= most_timeouts:
            break
    results += [TestResult(outcome="not_run")] * (len(tests.tests) - len(results))
    return CodeGrade(tests=tuple(results))


async def _run_script(sandbox: Sandbox, solution: str, test: StdinTest, limits: CodeLimits) -> TestResult:
    room = max(limits.output_bytes, 4 * len(test.stdout))
    result = await sandbox.run_code(solution, stdin=test.stdin, limits=limits.model_copy(update={"output_bytes": room}))
    if not result.ok:
        return ended(result)
    if await _aside(len(result.stdout), same_output, result.stdout, test.stdout):
        return TestResult(outcome="pass")
    return _differs(result.stdout, test.stdout)


async def _call_function(
    sandbox: Sandbox, solution: str, fn_name: str, test: CallTest, limits: CodeLimits
) -> TestResult:
    nonces = [secrets.token_hex(8) for _ in range(3)]
    requests = [
        {"do": "load", "prompt": CALL_PROMPT, "solution": solution, "names": [fn_name]},
        {"do": "find", "name": fn_name},
        {"do": "call", "ref": 0, "values": encode([test.args, {}])},  # 0: the function, the first value kept
    ]
    lines = [json.dumps({**request, "nonce": nonce}) for request, nonce in zip(requests, nonces, strict=True)]
    result = await sandbox.run_code(CANDIDATE, stdin="\n".join(lines) + "\n", limits=limits)
    return await _aside(len(result.stdout), _judged, result, nonces, (test.expected, *test.also))


def _judged(result: CodeResult, nonces: list[str], expected: tuple[JsonValue, ...]) -> TestResult:
    """What the lines say that the candidate's process wrote in answer to requests with these nonces."""
    replies = result.stdout.split("\n", len(nonces))
    room = REPLY_ROOM + 16 * max(len(json.dumps(value)) for value in expected)
    got: JsonValue = None
    for nonce, line in zip(nonces, replies, strict=False):  # the process writes one line for each, or ends
        if not line:
            return ended(result)
        if len(line) > room:
            return TestResult(outcome="wrong_answer", detail=f"a value of {len(line):,} bytes")
        reply = read_reply(line, nonce)
        if reply is None:
            return TestResult(outcome="forged", detail="the solution wrote on the grader's channel")
        if "raised" in reply:
            return raised(*reply["raised"])
        got = reply["value"]
    if len(replies) < len(nonces):
        return ended(result)
    try:
        right = any(same_value(got, value) for value in expected)
        return TestResult(outcome="pass") if right else _differs(got, expected[0])
    except (ValueError, RecursionError) as error:
        return TestResult(outcome="forged", detail=f"malformed value: {error}"[:300])


async def _aside(size: int, compare: Callable[..., T], *values: Any) -> T:
    """Compare long outputs in a thread: comparing megabytes word by word takes seconds, in which other runs go on."""
    return compare(*values) if size <= AT_ONCE else await asyncio.to_thread(compare, *values)


def _differs(got: object, expected: object) -> TestResult:
    return TestResult(outcome="wrong_answer", detail=f"got {short(got)}, expected {short(expected)}")
