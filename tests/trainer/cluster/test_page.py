"""The commands of `docs/cluster.md` for a Ray of one's own, as they are written there: a token, a head node, a job that
is stopped, and the run gone on with from a shell."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("deepspeed")

from clusters import ENVIRONMENT, head_node

PAGE = Path(__file__).parents[3] / "docs" / "cluster.md"
BIN = Path(sys.executable).parent
LIMIT_S = 240
STEPS = 30
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def written(*beginning: str, **stand_ins: str) -> list[str]:
    """The page's one command that begins with these words, with its stand-ins replaced."""
    lines = PAGE.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    commands = {tuple(shlex.split(line, comments=True)) for line in lines if line.startswith(f"{beginning[0]} ")}
    [found] = [list(words) for words in commands if words[: len(beginning)] == beginning]
    for name, value in stand_ins.items():
        assert any(name in word for word in found), f"{name} in {found}"
        found = [word.replace(name, value) for word in found]
    return found


def free_port() -> int:
    with socket.socket() as probing:
        probing.bind(("127.0.0.1", 0))
        return probing.getsockname()[1]


class Shell:
    """A user's, on a machine without another Ray."""

    def __init__(self, home: Path) -> None:
        self.home, self.lines = home, home / "head.log"
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        quiet = {name: value for name, value in ENVIRONMENT.items() if "AUTH" not in name}
        self.environment = {**own, **quiet, "HOME": str(home), "PATH": path}

    def export(self, words: list[str]) -> None:
        name, _, value = words[1].partition("=")
        self.environment[name] = value

    def run(self, words: list[str], limit_s: float = LIMIT_S) -> str:
        done = self.tried(words, limit_s)
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}"
        return done.stdout

    def tried(self, words: list[str], limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
        )

    @contextmanager
    def head(self, words: list[str], dashboard: int) -> Iterator[None]:
        """The head node, beside what other Rays of this machine have."""
        apart = ["--block", "--dashboard-port", str(dashboard), "--dashboard-agent-listen-port", str(free_port())]
        with self.lines.open("w") as log:
            settings = {"cwd": self.home, "env": self.environment, "stdout": log, "stderr": log}
            with head_node([*words, *apart, "--num-cpus", "4"], f"/tmp/ray-page-{os.getpid()}", **settings):
                yield

    def until(self, words: list[str], says: str, limit_s: float = 90) -> str:
        """What a command says, once it works and says that."""
        ends = time.monotonic() + limit_s
        while (done := self.tried(words)).returncode or says not in done.stdout:
            assert time.monotonic() < ends, f"{shlex.join(words)}\n{done.stdout}\n{self.lines.read_text()}"
            time.sleep(1)
        return done.stdout


def test_a_job_is_submitted_stopped_and_gone_on_with(model: Path, problems: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    token = tmp_path / ".ray" / "auth_token"
    shell.run(written("ray", "get-auth-token"))
    shell.run(written("chmod", "600", **{"~/.ray/auth_token": str(token)}))
    assert token.stat().st_mode & 0o777 == 0o600
    shell.export(written("export", "RAY_AUTH_MODE=token"))
    port, dashboard = free_port(), free_port()
    with shell.head(written("ray", "start", "--head", **{"6379": str(port)}), dashboard):
        shell.until([*written("ray", "status"), "--address", f"127.0.0.1:{port}"], "Active")
        shell.export(
            written(
                "export", "RAY_API_SERVER_ADDRESS=http://HEAD:8265", **{"HEAD": "127.0.0.1", "8265": str(dashboard)}
            )
        )
        out = tmp_path / "shared" / "runs" / "two"
        place = {"/shared/runs/two": str(out), "cluster/two_nodes": "cluster/tiny_cluster"}
        train = "metaagent train cluster/two_nodes cluster.address=auto policies.p0.model=MODEL --out /shared/runs/two"
        submit = written("ray", "job", "submit", **{"/shared/MODEL": str(model), **place})
        small = ["questions=2", "max_prompt_tokens=512", "max_tokens=40"]
        settings = ["data.0.format=problems", f"data.0.path={problems}", f"steps={STEPS}", "checkpoint_every=1"]
        settings += [f"cluster.address=127.0.0.1:{port}", *(f"rollout.{each}" for each in small)]
        (tmp_path / "small").mkdir()
        submit[submit.index("--working-dir") + 1] = str(tmp_path / "small")
        said = shell.until(
            [*submit[: submit.index("--")], "--no-wait", *submit[submit.index("--") :], *settings], "raysubmit_"
        )
        [job] = set(re.findall(r"raysubmit_\w+", said))
        lines = out / "metrics.jsonl"
        ends = time.monotonic() + LIMIT_S
        while not (lines.exists() and lines.read_text()):
            assert time.monotonic() < ends, shell.run(["ray", "job", "logs", job])
            time.sleep(0.2)
        shell.run(written("ray", "job", "stop", ID=job))
        logs = shell.run(written("ray", "job", "logs", "--follow", ID=job))
        assert "ranks 0-1" in logs
        assert "was stopped" in logs, logs[-3000:]
        assert lines.read_text().count("\n") < STEPS
        resume = written(*train.split(), "--resume", MODEL=str(model), auto=f"127.0.0.1:{port}", **place)
        shell.run([*resume, *settings])
    steps = [json.loads(line)["step"] for line in lines.read_text().splitlines()]
    assert steps == list(range(STEPS))
