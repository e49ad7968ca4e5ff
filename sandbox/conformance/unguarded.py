"""Preloaded into a worker of programs: its programs are then plain Python, as if they had escaped the policy.

For tests only. What such programs can do is up to the jail alone.
"""

import builtins
import os
import sys
from typing import Any

import workflow
import workflow.nodes
from sandbox.jail import run_program
from sandbox.language import CompileResult


def compile_anything(source: str, filename: str) -> CompileResult:
    return CompileResult(compile(source, filename, "exec"))


def plain_globals(*, question: str, write: Any, run_code: Any, seed: int, modules: Any) -> dict[str, Any]:
    def print_(*values: object) -> None:
        write(" ".join(map(str, values)) + "\n")

    names = {name: getattr(workflow, name) for name in workflow.__all__}
    return {"__builtins__": builtins, "__name__": "__main__", "question": question, "print": print_, **names}


run_program.compile_program = compile_anything
run_program.program_globals = plain_globals
run_program.begin = lambda names, question, seed, environment: names.update(question=question, environment=environment)
# What an attacker would have to import; the jail opens no files.
IMPORTED = [
    __import__(name) for name in ("ctypes", "fcntl", "json", "signal", "socket", "struct", "subprocess", "threading")
]
assert os
assert sys
