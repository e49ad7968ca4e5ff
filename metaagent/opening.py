"""Opens what commands name: engines and sandboxes, with a usage error for names that there are not.

Not here: what engines and sandboxes do (`engine`, `sandbox`), and the options that name them
(`metaagent.commands.options`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from engine import Engine, parse_engine
from metaagent import embedded
from metaagent.terminal import note, usage_error
from sandbox.host import JailSandbox
from sandbox.named import named_sandbox
from tasks import MATH_WORKER

CHECKER = "designer.check"


@asynccontextmanager
async def open_engine(
    spec: str, cache: Path | None = None, also: Mapping[str, str] | None = None
) -> AsyncIterator[Engine]:
    """The engine that `spec` names, with a folder that keeps its replies if given; closed in the end.

    `also` holds what the option takes besides engines, each with how it is written: a wrong name is answered with all.
    """
    try:
        engine = made_engine(spec, cache, also)
    except ValueError as error:
        usage_error(str(error))
    try:
        yield engine
    finally:
        await engine.close()
        if cache is not None:
            from engine.openai import CachedEngine

            if isinstance(engine, CachedEngine) and engine.problem:
                note(engine.problem)


def made_engine(spec: str, cache: Path | None = None, also: Mapping[str, str] | None = None) -> Engine:
    """The same, to be closed by whoever asks; a wrong name raises ValueError. Workers of a cluster open theirs so."""
    if spec != embedded.SPEC:
        return parse_engine(spec, cache, {embedded.SPEC: embedded.SPEC} | dict(also or {}))
    if cache is not None:
        raise ValueError("the embedded policy's replies are not kept. Fix: leave --cache out")
    return embedded.open_embedded()


def sandbox_name(name: str | None) -> str:
    """As given, or else as METAAGENT_SANDBOX says."""
    return name or os.environ.get("METAAGENT_SANDBOX") or "process"


def open_sandbox(name: str | None = None, *, grading: bool = False) -> JailSandbox:
    """A sandbox in which programs can be checked, and answers graded if asked for.

    `name` is process, process/weak (which lets code run where the kernel cannot keep it in), docker, docker/warm,
    docker/strict or docker/gvisor; without one METAAGENT_SANDBOX decides.
    """
    preload = (CHECKER, MATH_WORKER) if grading else (CHECKER,)
    try:
        return named_sandbox(sandbox_name(name), preload)
    except ValueError as error:
        usage_error(str(error))
