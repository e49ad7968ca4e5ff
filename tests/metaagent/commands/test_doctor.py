"""The doctor tells what is there from what is not, and its self-check would notice a jail that leaks."""

import asyncio
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner, Result

from metaagent.cli import app
from metaagent.commands import doctor
from sandbox import ProcessSandbox
from sandbox.host.owners import own_tag
from sandbox.protocol import CodeResult
from workflow.failures import SandboxUnavailable
from workflow.limits import CodeLimits


@pytest.fixture(autouse=True)
def _no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the commands that a test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()


def command(tmp_path: Path, name: str, script: str) -> None:
    path = tmp_path / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def items(result: Result) -> dict[str, doctor.Item]:
    diagnosis = doctor.Diagnosis.model_validate_json(result.stdout)
    assert all(item.fix for item in diagnosis.items if item.state != "ok"), "every gap has a fix"
    return {f"{item.area}/{item.name}": item for item in diagnosis.items}


def test_the_main_job_works_here_and_the_jail_holds() -> None:
    result = invoke("--json")
    assert result.exit_code == 0
    found = items(result)
    held = ["read a file", "read passwd", "write a file", "open a socket", "fork", "environment"]
    assert all(found[f"Jail/{name}"].detail.startswith("contained") for name in held)
    assert found["Jail/run"].state == "ok"
    modes = [found[f"Jail/{name}"].detail.partition(":") for name in ("walls", "other mode")]
    assert {mode for mode, _, _ in modes} == {"process/j", "process/j0"}
    assert all("walls; not enforced: " in said for _, _, said in modes)
    assert found["Python/version"].state == "ok"
    assert found["GPU/nvidia"].state == "gap"
    assert doctor.SECRET_VARIABLE not in os.environ


def test_people_read_it_too() -> None:
    result = invoke()
    assert result.exit_code == 0
    assert "The main job works" in result.stdout
    assert "contained" in result.stdout
    assert "fix: " in result.stdout


class LeakySandbox:
    """Runs code with no jail at all."""

    async def run_code(self, code: str, *, limits: CodeLimits) -> CodeResult:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=limits.wall_s)
        return CodeResult(exit_status=done.returncode, stdout=done.stdout, stderr=done.stderr, duration_s=0)


def test_a_jail_that_leaks_is_noticed() -> None:
    async def probe() -> list[doctor.Item]:
        sandbox = cast(ProcessSandbox, LeakySandbox())
        found = []
        async with doctor._Bait() as bait:
            for one in bait.probes():
                found.append(await doctor._try(sandbox, one, bait))
                bait.written.unlink(missing_ok=True)
        return found

    found = asyncio.run(probe())
    assert len(found) == 6
    assert {item.name: item.state for item in found} == {item.name: "broken" for item in found}


def test_the_weaker_jail_is_named_and_holds_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ProcessSandbox", lambda: ProcessSandbox(mode="j0"))
    result = invoke("--json")
    assert result.exit_code == 0
    found = items(result)
    assert found["Jail/strength"].state == "gap"
    assert "j0" in found["Jail/strength"].detail
    assert "namespaces" in found["Jail/strength"].fix
    assert all(
        item.state == "ok" for name, item in found.items() if name.startswith("Jail/") and "strength" not in name
    )


def test_no_jail_at_all_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(self: ProcessSandbox, kind: str) -> None:
        raise SandboxUnavailable("seccomp is missing", "use a kernel with seccomp")

    monkeypatch.setattr(ProcessSandbox, "_zygote", refuse)
    result = invoke("--json")
    assert result.exit_code == 1
    strength = items(result)["Jail/strength"]
    assert strength.state == "broken"
    assert strength.fix == "use a kernel with seccomp"
    assert "does not work" in invoke().stdout


@pytest.fixture
def no_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the jail out, where a test looks at something else."""

    async def nothing() -> list[doctor.Item]:
        return []

    monkeypatch.setattr(doctor, "_jail", nothing)


@pytest.mark.usefixtures("no_jail")
def test_engines_are_named_and_secrets_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAAGENT_ENGINE", "openai:qwen@http://me:hunter2@localhost:8000/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    result = invoke("--json")
    assert result.exit_code == 0
    assert "hunter2" not in result.output
    assert "sk-secret" not in result.output
    found = items(result)
    assert "openai:qwen@http://***@localhost:8000/v1" in found["Engines/default"].detail
    assert found["Engines/openai"].state == "ok"


@pytest.mark.usefixtures("no_jail")
@pytest.mark.parametrize("spec", ["opnai:qwen", "replay:/no/such/file", "openai:m@user:hunter2@host:1/v1"])
def test_a_default_engine_that_cannot_be_is_broken(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAAGENT_ENGINE", spec)
    result = invoke("--json")
    assert result.exit_code == 1
    assert items(result)["Engines/default"].state == "broken"


@pytest.mark.usefixtures("no_jail")
def test_a_gpu_that_answers(tmp_path: Path) -> None:
    command(tmp_path, "nvidia-smi", "echo 'NVIDIA H200, 143771 MiB'")
    assert items(invoke("--json"))["GPU/nvidia"].detail == "NVIDIA H200, 143771 MiB"


@pytest.mark.usefixtures("no_jail")
def test_a_daemon_and_a_gpu_that_hang_or_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "COMMAND_SECONDS", 0.3)
    command(tmp_path, "nvidia-smi", "/bin/sleep 20 & wait")  # the grandchild keeps the output open
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "docker.sock"))
        silent.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        started = time.monotonic()
        result = invoke("--json")
        assert time.monotonic() - started < 20
    assert result.exit_code == 0
    found = items(result)
    assert "timed out" in found["Docker/daemon"].detail
    assert "no answer within" in found["GPU/nvidia"].detail


@pytest.mark.usefixtures("no_jail")
def test_no_daemon_is_a_gap_with_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    found = items(invoke("--json"))
    assert found["Docker/daemon"].state == "gap"
    assert "DOCKER_HOST" in found["Docker/daemon"].fix


@pytest.mark.usefixtures("no_jail")
def test_clean_removes_what_dead_processes_left_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    child = subprocess.run(
        [sys.executable, "-c", "from sandbox.host.owners import own_tag; print(own_tag())"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    dead, ours = child.stdout.strip(), own_tag()
    left = tmp_path / f"metaagent-{dead}-abc"
    (left / "scratch" / "1").mkdir(parents=True)
    kept = [tmp_path / name for name in (f"metaagent-{ours}-abc", f"metaagent-{dead[:-1]}x-abc", "metaagent-abc", "x")]
    for folder in kept:
        folder.mkdir()
    (tmp_path / f"metaagent-{dead}-link").symlink_to(kept[-1])
    assert items(invoke("--json"))["Leftovers/found"].detail == "0 containers and 1 folders of killed processes"
    result = invoke("--clean", "--json")
    assert result.exit_code == 0
    assert str(left) in json.loads(result.stdout)["removed"][0]
    assert not left.exists()
    assert all(folder.exists() for folder in kept)
    assert "Nothing was left behind" in invoke("--clean").stdout


@pytest.mark.usefixtures("no_jail")
def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    gone = {"torch", "RestrictedPython"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name in gone else real(name, *rest))
    result = invoke("--json")
    assert result.exit_code == 1
    found = items(result)
    assert found["Python/packages"].state == "broken"
    assert "RestrictedPython" in found["Python/packages"].detail
    assert found["Extras/local"].fix == 'pip install "metaagent[local]"'
    assert json.loads(result.stdout)["ok"] is False


def test_what_extras_bring_is_what_pyproject_says() -> None:
    """The modules of each extra that doctor looks for, and every distribution that the extra names."""
    root = Path(__file__).parents[3]
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    def brought(extra: str) -> set[str]:
        names: set[str] = set()
        for requirement in declared[extra]:
            other = re.fullmatch(r"metaagent\[(\w+)\]", requirement)
            names |= brought(other[1]) if other else {re.split(r"[<>=~ ]", requirement)[0]}
        return names

    assert {extra: set(modules) for extra, (_, modules) in doctor.EXTRAS.items()} == {
        extra: brought(extra) for extra in doctor.EXTRAS
    }


def test_what_code_can_import_is_tried_in_its_jail() -> None:
    found = items(invoke("--json"))["Code/imports"]
    assert "sympy 1." in found.detail
    assert (found.state == "ok") == (importlib.util.find_spec("numpy") is not None and "not" not in found.detail)
    assert found.state == "ok" or 'pip install "metaagent[code]"' in found.fix
