"""What the doctor says of a cluster: each thing right and wrong, without Ray; and real nodes, one of which sees another
folder than the others.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from metaagent import cluster_health
from metaagent.cli import app
from metaagent.cluster_probe import NodeFacts, Probed
from metaagent.commands import doctor
from metaagent.terminal import Item

HAS_RAY = importlib.util.find_spec("ray") is not None


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No jail, no token, no variables, and no Ray of somebody else."""

    async def nothing() -> list[Item]:
        return []

    monkeypatch.setattr(doctor, "_jail", nothing)
    monkeypatch.setattr(cluster_health, "ray_addresses", list)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)


def invoke(*arguments: str) -> tuple[Result, dict[str, Item]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    diagnosis = doctor.Diagnosis.model_validate_json(result.stdout)
    found = {item.name: item for item in diagnosis.items if item.area == "Cluster"}
    assert all(item.fix for item in found.values() if item.state != "ok"), "what is not ok has a fix"
    return result, found


def here(name: str, ask: Any = lambda words: (127, "")) -> Item:
    """One thing that is said of this node."""
    return {item.name: item for item in cluster_health.node_items(ask)}[name]


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else found(name, *more))


# Ray installed or not


@pytest.mark.usefixtures("no_ray")
def test_without_ray_there_is_no_word_of_a_cluster_unless_it_is_asked_for() -> None:
    result, found = invoke()
    assert (result.exit_code, found) == (0, {})
    result, found = invoke("--cluster")
    assert result.exit_code == 1
    assert found["ray"].state == "broken"
    assert "metaagent[cluster]" in found["ray"].fix
    assert found["nodes"].detail == "not tried: Ray is not installed"
    assert "NCCL" not in found


@pytest.mark.usefixtures("no_ray")
def test_people_are_told_that_the_main_job_works_all_the_same() -> None:
    result = CliRunner().invoke(app, ["doctor", "--cluster"])
    assert result.exit_code == 1
    assert "The main job works" in result.stdout
    assert re.search(r"In the way of a cluster: \d; see what is BROKEN", result.stdout)


def test_where_ray_is_installed_this_node_is_looked_at_and_no_other_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: name == "ray" or there(name, *more))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.61.3" if name == "ray" else "1.0")
    result, found = invoke()
    assert result.exit_code == 0
    assert set(found) == {"ray", "head", "token", "ports", "shared memory", "open files", "GPUs", "allocator"}
    assert found["ray"].state == "gap"
    assert "2.61.3" in found["ray"].detail
    assert "ray[default]==2.60.0" in found["ray"].fix


# This node


@contextlib.contextmanager
def raylet(address: str) -> Iterator[None]:
    """A process that looks like one."""
    words = ["raylet", "-c", "import time; time.sleep(60)", f"--gcs-address={address}"]
    process = subprocess.Popen(words, executable=sys.executable)
    try:
        ends = time.monotonic() + 10
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"raylet") and time.monotonic() < ends:
            time.sleep(0.01)
        yield
    finally:
        process.kill()
        process.wait()


def test_a_ray_that_runs_here_is_found_as_auto_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        with raylet(address):
            assert address in cluster_health.ray_addresses()
        assert address not in cluster_health.ray_addresses()
        assert cluster_health._head([address]).state == "ok"
    gone = cluster_health._head([address])
    assert (gone.state, address in gone.detail) == ("broken", True)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert cluster_health.ray_addresses()[0] == "10.0.0.1:6379"


def test_no_head_and_several_are_told_apart() -> None:
    assert "ray start --head" in cluster_health._head([]).fix
    several = cluster_health._head(["10.0.0.1:6379", "10.0.0.2:6379"])
    assert several.state == "gap"
    assert "cluster.address=HOST:PORT" in several.fix


def test_the_token_is_there_for_its_owner_alone_and_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "ray get-auth-token --generate" in here("token").fix
    file = tmp_path / ".ray" / "auth_token"
    file.parent.mkdir()
    file.write_text("")
    assert here("token").state == "broken"
    token = secrets.token_hex(32)
    file.write_text(token)
    file.chmod(0o600)
    assert "RAY_AUTH_MODE=token" in here("token").fix
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    one = here("token")
    assert one.state == "ok"
    assert token not in one.detail
    file.write_text(secrets.token_hex(32))
    assert here("token").detail != one.detail
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert here("token").detail == "RAY_AUTH_MODE=disabled: whoever reaches Ray's ports runs code here"


def test_a_token_that_others_can_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as home:
        monkeypatch.setenv("HOME", home)
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        file = Path(home) / ".ray" / "auth_token"
        file.parent.mkdir()
        file.write_text("x" * 64)
        file.chmod(0o644)
        assert here("token").state == "ok"  # nobody comes to it
        Path(home).chmod(0o755)
        assert here("token").fix == "chmod 600 ~/.ray/auth_token"


def test_a_port_that_something_else_has_is_named_with_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(cluster_health, "PORTS", {port: ("of the dashboard", "--dashboard-port")})
        taken = here("ports")
        assert taken.state == "broken"
        assert f"{port} (of the dashboard)" in taken.detail
        assert "--dashboard-port" in taken.fix
        assert cluster_health._ports(runs_here=True).state == "ok"
    assert here("ports").state == "ok"


@pytest.mark.parametrize(
    ("free", "state"), [(64 << 20, "broken"), (2 << 30, "gap"), (12 * 10**9, "ok"), (600 << 30, "ok")]
)
def test_shared_memory_must_hold_what_ray_and_vllm_put_there(
    monkeypatch: pytest.MonkeyPatch, free: int, state: str
) -> None:
    memory = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (128 << 30) // 4096}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=free, used=0, free=free))
    monkeypatch.setattr(os, "sysconf", memory.__getitem__)
    assert here("shared memory").state == state


@pytest.mark.parametrize(
    ("limits", "state"),
    [((1024, 4096), "broken"), ((1024, 65536), "ok"), ((1024, resource.RLIM_INFINITY), "ok"), ((8192, 8192), "ok")],
)
def test_open_files_are_limited_by_the_hard_limit(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], state: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    assert here("open files").state == state


def test_gpus_are_counted_by_their_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    two = "NVIDIA H100 80GB HBM3, GPU-1\nNVIDIA H100 80GB HBM3, GPU-2\n"
    assert here("GPUs", lambda words: (0, two)).detail == "2 x NVIDIA H100 80GB HBM3; CUDA_VISIBLE_DEVICES=0"
    lost = here("GPUs", lambda words: (9, "NVIDIA-SMI has failed"))
    assert (lost.state, "has failed" in lost.detail) == ("gap", True)


def test_memory_that_cuda_ipc_cannot_share_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert here("allocator").state == "ok"
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128, expandable_segments:True")
    assert here("allocator").fix == "unset PYTORCH_CUDA_ALLOC_CONF before `ray start`"


# All nodes, as they say


def facts(address: str, **more: Any) -> NodeFacts:
    return NodeFacts(address=address, **{"gpus": 8, "python": "3.11.7", "versions": {"torch": "2.13.0"}, **more})


@pytest.mark.parametrize(
    ("other", "state", "told"),
    [
        (facts("b"), "ok", "2 with 16 GPUs, all with the same versions"),
        (facts("b", versions={"torch": "2.12.0"}), "broken", "b has torch 2.12.0, a 2.13.0"),
        (facts("b", versions={}), "broken", "b has torch not at all"),
        (facts("b", python="3.12.1"), "broken", "b has Python 3.12.1"),
        (facts("b", gpus=4), "gap", "nodes have 4 or 8 GPUs"),
        (facts("b", silent="no answer within 45 s"), "broken", "b: no answer"),
    ],
)
def test_nodes_must_be_alike(other: NodeFacts, state: str, told: str) -> None:
    item = cluster_health._nodes(Probed(nodes=[facts("a"), other]))
    assert item.state == state
    assert told in item.detail
    assert bool(item.fix) == (state != "ok")


def test_a_folder_that_one_node_does_not_see_is_told_with_the_node() -> None:
    found = Probed(nodes=[facts("a"), facts("b", shared="No such file or directory: /data/x")])
    item = cluster_health._seen(Path("/data"), found)
    assert item.state == "broken"
    assert "b: No such file" in item.detail
    assert "a:" not in item.detail


@pytest.mark.parametrize(
    ("said", "state", "told"),
    [
        ({"nccl": "an all-reduce of 64 MiB between a and b: 40.1 GB/s"}, "ok", "40.1 GB/s"),
        (
            {"nccl_left_out": "it needs GPUs on two nodes, and 0 of 2 nodes have some"},
            "gap",
            "not tried: it needs GPUs",
        ),
        ({"nccl_failed": "between a and b: DistBackendError: timed out"}, "broken", "timed out"),
    ],
)
def test_nccl_worked_or_failed_or_was_not_tried(said: dict[str, str], state: str, told: str) -> None:
    item = cluster_health._nccl(Probed(nodes=[facts("a"), facts("b")], **said))
    assert item.state == state
    assert told in item.detail


def test_nodes_that_cannot_be_asked_are_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; print('Traceback', file=sys.stderr); sys.exit('ConnectionError: nobody is there')"
    real = subprocess.run

    def run(words: list[str], **options: Any) -> Any:
        assert words[:3] == [sys.executable, "-m", "metaagent.cluster_probe"]
        return real([sys.executable, "-c", script], **options)

    monkeypatch.setattr(subprocess, "run", run)
    told = cluster_health._probed("10.0.0.1:6379", None)
    assert told == "the Ray at 10.0.0.1:6379 cannot be asked: ConnectionError: nobody is there"


def test_a_folder_that_is_not_here_is_told_without_asking_others(monkeypatch: pytest.MonkeyPatch) -> None:
    result, found = invoke("--shared", "/no/such/folder")
    assert result.exit_code == 1
    assert found["shared folder"].state == "broken"
    assert "/no/such/folder: No such file or directory" in found["shared folder"].detail
    with tempfile.TemporaryDirectory() as folder:
        _, found = invoke("--shared", folder)
        assert found["shared folder"].state == "ok"
        assert "other nodes were not asked" in found["shared folder"].detail
        assert list(Path(folder).iterdir()) == []


# Real nodes

RAY_TOKEN = secrets.token_hex(32)
RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": RAY_TOKEN,
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_raylet_start_wait_time_s": "180",
}


@contextlib.contextmanager
def ray_node(port: int, *words: str, before: str = "true") -> Iterator[subprocess.Popen[bytes]]:
    """`ray start` in a session and a mount namespace of its own, after a shell command that may hide something."""
    ray = [str(Path(sys.executable).parent / "ray"), "start", "--block", "--disable-usage-stats", *words]
    ray += ["--node-ip-address", "127.0.0.1", "--dashboard-agent-listen-port", str(port)]
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f'{before} && exec "$0" "$@"', *ray],
        env=os.environ | RAY_ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # after SIGTERM it waits half a minute for whoever may drain it
        process.wait(10)


def listens(port: int, process: subprocess.Popen[bytes], within_s: float = 120) -> bool:
    ends = time.monotonic() + within_s
    while time.monotonic() < ends and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        time.sleep(0.2)
    return False


@pytest.mark.skipif(not HAS_RAY, reason="ray not installed")
@pytest.mark.timeout(600)
def test_two_real_nodes_are_asked_and_one_sees_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("mount namespaces are not allowed here")
    shared, hidden = tmp_path / "shared", tmp_path / "hidden"
    shared.mkdir()
    hidden.mkdir()
    port = 42_000 + os.getpid() % 10_000
    address = f"127.0.0.1:{port}"
    temporary = Path(tempfile.mkdtemp(prefix="rd-", dir="/tmp"))  # names of sockets must be short
    head = ["--head", "--port", str(port), "--num-cpus", "1", "--include-dashboard", "false"]
    for name, value in RAY_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(cluster_health, "ray_addresses", lambda: [address])
    try:
        with ray_node(port + 1, *head, "--temp-dir", str(temporary)) as first:
            assert listens(port, first)
            hiding = f"mount -t tmpfs none {hidden}"
            with ray_node(port + 2, "--address", address, "--num-cpus", "1", before=hiding) as second:
                assert listens(port + 2, second)
                result, found = asked_until_two_are_there(hidden)
                assert found["nodes"].detail == "2 with 0 GPUs, all with the same versions"
                assert found["nodes"].state == "ok"
                assert found["shared folder"].state == "broken"
                assert "No such file or directory" in found["shared folder"].detail
                assert result.exit_code == 1
                assert found["head"].state == "ok"
                assert found["NCCL"].detail.startswith("not tried: it needs GPUs on two nodes, and 0 of 2")
                _, found = invoke("--shared", str(shared))
                assert found["shared folder"].detail == f"{shared} is seen and written by 2 nodes"
                assert [*shared.iterdir(), *hidden.iterdir()] == []
                monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
                _, found = invoke("--cluster")
                assert found["nodes"].state == "broken"
                assert f"the Ray at {address} cannot be asked: " in found["nodes"].detail
                assert "token" in found["nodes"].fix
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def asked_until_two_are_there(folder: Path) -> tuple[Result, dict[str, Item]]:
    for _ in range(5):
        result, found = invoke("--shared", str(folder))
        if found["nodes"].detail.startswith("2 "):
            break
        time.sleep(1)
    return result, found
