"""Attempts and questions spread over a real Ray: what comes of it is what one process makes, whoever is killed."""

# pyright: reportMissingImports=false

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import toy
from clusters import gone

from engine.spec import parse_engine
from sandbox import ProcessSandbox
from templates import load_templates
from trainer.cluster.crew_worker import Job, Player
from trainer.cluster.seats import Seat
from trainer.cluster.spread import Crew
from trainer.config import ClusterConfig, EngineConfig, PolicyConfig
from trainer.distill.distill_log import DistillReport
from trainer.distill.distillation import DistillSettings, Questions, distill
from trainer.evaluate.attempts import Attempt
from trainer.evaluate.evaluation import Attempts, EvalSettings, evaluate
from trainer.evaluate.evaluation_report import report_of
from workflow.completion import Sampling
from workflow.trace import Trace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SAMPLING = Sampling(temperature=1.0, max_tokens=40)
SETTINGS = EvalSettings(
    k=2, style="short", repair=False, sampling=SAMPLING, designer_sampling=SAMPLING, max_concurrent=6
)
PROBLEMS = toy.problems()[0][:16]
TEMPLATES = [each for each in load_templates() if each.name in ("math_single", "math_majority_vote")]
LIMIT_S = 240


@pytest.fixture(scope="module")
def exact(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy in float64, in which it cannot be seen what ran beside a request."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("exact") / "model"
    AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


def cluster(address: str, **changes: Any) -> ClusterConfig:
    settings = {"gpus_per_node": 0, "run_workers_per_node": 2, "heartbeat_s": 3.0, "start_timeout_s": 200.0}
    return ClusterConfig.model_validate({"address": address, "restarts_per_hour": 9, **settings, **changes})


async def alone(work: Callable[..., Any], **engines: str) -> Any:
    """In this process: `work` is given the engines with these names, and a sandbox."""
    made = {role: parse_engine(name) for role, name in engines.items()}
    async with ProcessSandbox(preload=("designer.check", "tasks.math.worker")) as sandbox:
        try:
            return await work(sandbox=sandbox, **made)
        finally:
            for engine in made.values():
                await engine.close()


def kill(seat: Seat) -> int:
    assert seat.identity is not None
    pid = seat.identity.pid
    os.kill(pid, signal.SIGKILL)
    return pid


async def whole(crew: Crew, losses: int) -> None:
    """Wait until so many have been replaced in all, and nobody is missing."""
    async with asyncio.timeout(LIMIT_S):
        while (
            len(crew._restarts.history) < losses
            or not all(seat.identity for seat in crew.seats.seated)
            or any(cast.serving != set(range(len(cast.engines))) for cast in crew.casts.values())
        ):
            await asyncio.sleep(0.1)
    assert len(crew._restarts.history) == losses


INCIDENTAL = {"duration_s", "attempt_s", "prefix_tokens"}
"""What depends on when something was made, and beside what."""


def lasting(value: Any) -> Any:
    """Without what is incidental."""
    if isinstance(value, BaseModel):
        return lasting(value.model_dump())
    if isinstance(value, dict):
        return {name: lasting(each) for name, each in value.items() if name not in INCIDENTAL}
    return [lasting(each) for each in value] if isinstance(value, list) else value


def differences(some: list[Attempt], others: list[Attempt]) -> list[tuple[Any, ...]]:
    """What two evaluations do not have in common."""
    return [
        (one["problem"], one["attempt"], name, one[name], other[name])
        for one, other in zip(lasting(some), lasting(others), strict=True)
        for name in one
        if one[name] != other[name]
    ]


def log_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of an evaluation, in the order of what they stand for."""
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    return sorted(lasting(lines), key=lambda line: (line["problem"], line["attempt"]))


def said_in(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """By trace, what it says without its clock: what was drawn, with which weights."""
    said: dict[str, list[tuple[Any, ...]]] = {}
    for path in (folder / "traces").iterdir():
        trace = Trace.from_lines(path.read_text(encoding="utf-8").splitlines(keepends=True))
        assert trace.started is not None
        turns = [(turn.key, turn.completion) for turn in trace.agent_turns]
        drawn = sorted(
            (key, each.text, tuple(each.token_ids or ()), each.weights_version) for key, each in turns if each
        )
        said[path.name] = [(trace.started.engine, trace.started.seed), *drawn]
    return said


def test_attempts_are_those_of_one_process_also_where_workers_and_engines_are_killed(
    ray_address: str, exact: Path, tmp_path: Path
) -> None:
    spec = f"transformers:{exact}"
    plays = Player(spec, PolicyConfig(model=str(exact), engine=EngineConfig(kind="transformers", replicas=2)))
    job = Job(partial(Attempts, settings=SETTINGS), plays, plays)
    told: list[str] = []
    killed: list[int] = []

    async def here(sandbox: Any, executor: Any) -> list[Attempt]:
        return await evaluate(
            PROBLEMS,
            executor=executor,
            designer=executor,
            sandbox=sandbox,
            settings=SETTINGS,
            folder=tmp_path / "alone",
        )

    async def there(crew: Crew, folder: Path, blows: dict[int, Callable[[], Seat]]) -> list[Attempt]:
        """`blows` says who is killed when so many attempts have been made."""
        made = 0
        named = parse_engine(spec)

        def seen(_: Attempt) -> None:
            nonlocal made
            made += 1
            if made in blows:
                killed.append(kill(blows[made]()))

        return await evaluate(
            PROBLEMS,
            executor=named,
            designer=named,
            sandbox=None,  # pyright: ignore[reportArgumentType]
            settings=SETTINGS,
            folder=folder,
            watch=seen,
            make=crew.make,
        )

    async def spread() -> list[list[Attempt]]:
        crew = Crew(cluster(ray_address), job, at_once=6, piece_s=60, folder=tmp_path.absolute(), told=told.append)
        async with asyncio.timeout(LIMIT_S), crew:
            first = await there(crew, tmp_path / "spread", {})
            engines = crew.casts["executor"].engines
            blows = {4: lambda: crew.workers[0], 9: lambda: engines[0], 20: lambda: crew.workers[1]}
            second = await there(crew, tmp_path / "disturbed", blows)
            await whole(crew, 3)
            # Now only the engine that took the place of a killed one is left.
            third = await there(crew, tmp_path / "again", {3: lambda: engines[1]})
            await whole(crew, 4)
            pids = [seat.identity.pid for seat in crew.seats.seated if seat.identity]
        assert gone([*pids, *killed], 20)
        return [first, second, third]

    expected = asyncio.run(alone(here, executor=spec))
    assert len({attempt.correct for attempt in expected}) == 2
    assert {attempt.structure for attempt in expected} >= {"single", "ensemble"}
    for name, attempts in zip(("spread", "disturbed", "again"), asyncio.run(spread()), strict=True):
        assert differences(attempts, expected) == []
        assert lasting(report_of(attempts)) == lasting(report_of(expected))
        assert log_of(tmp_path / name) == log_of(tmp_path / "alone")
        assert (tmp_path / name / "evaluation.json").read_text() == (tmp_path / "alone" / "evaluation.json").read_text()
        assert said_in(tmp_path / name) == said_in(tmp_path / "alone")
    assert len(killed) == 4
    assert told[-1] == "starting 2 engines and 2 run workers"


# Clients of a server


class Endpoint:
    """Speaks OpenAI's interface. Which replies are right depends on what is asked and on the seed alone."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.keys.add(self.headers["Authorization"])
                asked = re.findall(r"Last digit of \d \d (\d)", str(body["messages"]))
                digit = asked[-1] if body["seed"] % 3 else "x"
                message = {"role": "assistant", "content": f"<solution>\\boxed{{{digit}}}</solution>"}
                reply = {
                    "id": "x",
                    "object": "chat.completion",
                    "model": "toy",
                    "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
                }
                data = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.spec = f"openai:toy@http://127.0.0.1:{self.http.server_port}/v1"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.http.shutdown()
    made.http.server_close()


def test_questions_are_distilled_by_workers_that_ask_a_server_each(
    ray_address: str, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-this-process")
    settings = DistillSettings(designs=2, executions=2, min_format=0.0, max_concurrent=8)
    client = Player(endpoint.spec, partial(parse_engine, endpoint.spec))
    maker = partial(Questions, settings=settings.shared_among(2))

    async def here(sandbox: Any, executor: Any, folder: str, **how: Any) -> DistillReport:
        return await distill(
            PROBLEMS,
            executor=executor,
            sandbox=sandbox,
            folder=tmp_path / folder,
            templates=TEMPLATES,
            settings=settings,
            **how,
        )

    async def there(sandbox: Any, executor: Any) -> DistillReport:
        job = Job(maker, client, environment={"OPENAI_API_KEY": "of-the-workers"})
        crew = Crew(cluster(ray_address), job, at_once=settings.questions_at_once(2), piece_s=60)

        def seen(report: DistillReport) -> None:
            if report.questions == 5:
                kill(crew.workers[1])

        async with asyncio.timeout(LIMIT_S), crew:
            report = await here(sandbox, executor, "spread", watch=seen, make=crew.make)
            await whole(crew, 1)
            assert crew.casts == {}
            return report

    expected = asyncio.run(alone(partial(here, folder="alone"), executor=endpoint.spec))
    assert endpoint.keys == {"Bearer of-this-process"}
    endpoint.keys.clear()
    assert asyncio.run(alone(there, executor=endpoint.spec)) == expected
    assert endpoint.keys == {"Bearer of-the-workers"}
    assert 0 < expected.runs_kept < expected.runs == len(PROBLEMS) * 4
    assert (tmp_path / "spread" / "rows.jsonl").read_bytes() == (tmp_path / "alone" / "rows.jsonl").read_bytes()
    lines = (tmp_path / "spread" / "attempts.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["question"] for line in lines) == sorted(problem.id for problem in PROBLEMS)


# The command


def test_the_command_is_killed_and_goes_on(ray_address: str, exact: Path, problems: Path, tmp_path: Path) -> None:
    spec, out = f"transformers:{exact}", tmp_path / "out"
    common = ["eval", f"problems:{problems}", "-e", spec, "-d", spec, "--style", "short", "--limit", "16", "--k", "2"]
    common += ["--max-tokens", "40", "--max-concurrent", "3", "--json"]
    spread = ["--cluster", ray_address, "--run-workers", "1", "--gpus-per-node", "0", "--out", str(out)]
    words = [sys.executable, "-m", "metaagent", *common, *spread]
    root = Path(__file__).parents[3]
    results = out / "results.jsonl"
    with subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        ends = time.monotonic() + LIMIT_S
        while not results.exists() or results.read_text().count("\n") < 5:
            assert first.poll() is None, first.communicate()
            assert time.monotonic() < ends
            time.sleep(0.02)
        first.kill()
    kept = results.read_text()
    assert 5 <= kept.count("\n") < 32
    again = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert again.returncode == 0, again.stderr
    assert results.read_text().startswith(kept[: kept.rindex("\n") + 1])
    here = [sys.executable, "-m", "metaagent", *common, "--out", str(tmp_path / "alone")]
    done = subprocess.run(here, cwd=root, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert log_of(out) == log_of(tmp_path / "alone")
    assert lasting(json.loads(again.stdout)["report"]) == lasting(json.loads(done.stdout)["report"])
    assert said_in(out) == said_in(tmp_path / "alone")
