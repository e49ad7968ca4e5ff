"""The Docker backend on a real engine: work of every kind, limits, walls, replacement, deaths, nothing left behind."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from docker_engine import TIERS, containers, of_session, why_no
from jails import SHORT, Scripted, until, workflow_of

from metaagent.docker_health import clean
from sandbox.containers import DockerSandbox, leftovers
from sandbox.containers.daemon import OWNER_LABEL, Box, connect
from workflow.failures import LimitExceeded, SandboxUnavailable

CALLED = "sandbox.conformance.called_functions"
pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(bool(why_no("warm")), reason=why_no("warm"))]


@pytest.fixture(params=TIERS)
def tier(request):
    if why := why_no(request.param):
        pytest.skip(why)
    return request.param


def run_docker(work, **options):
    async def main():
        async with DockerSandbox(**options) as sandbox:
            result = await asyncio.wait_for(work(sandbox), 200)
        assert of_session(sandbox) == [], "closing leaves no container"
        return result

    return asyncio.run(main())


def test_work_of_every_kind(tier):
    async def work(sandbox):
        strength = await sandbox.strength()
        assert (strength.backend, strength.mode) == ("docker", tier)
        done = await sandbox.run_code("import sys; print(input()); sys.exit(3)", stdin="x\n")
        assert (done.exit_status, done.stdout) == (3, "x\n")
        program = workflow_of("import subprocess", "print(subprocess.run(['python', '-c', 'print(6 * 7)']).returncode)")
        run = await sandbox.run_program(program, "q", engine=Scripted())
        assert (run.answer, run.failure, run.jail) == ("It is \\boxed{42}.", None, f"docker/{tier}")
        assert run.output.endswith("0\n")
        assert (await sandbox.describe(workflow_of())).graph is not None
        assert await sandbox.call(f"{CALLED}:double", "é") == {"doubled": "éé"}
        async with sandbox.workspace() as folder:
            await folder.write("in", b"1")
            assert (await sandbox.run_code("open('in', 'a').write('2')", workspace=folder)).ok
            assert (await sandbox.run_code("print(open('in').read())", workspace=folder)).stdout == "12\n"
            assert await folder.read("in") == b"12"
        alone = await sandbox.run_code("import os; print(os.listdir('.'))")
        assert alone.stdout == "[]\n"

    run_docker(work, tier=tier, preload=(CALLED,))


LIMITS = {
    "cpu_s": ("while True: pass", {"cpu_s": 1}),
    "wall_s": ("import time; time.sleep(60)", {"wall_s": 1}),
    "output_bytes": ("print('x' * 100000)", {"output_bytes": 1000}),
    "memory_mb": ("x = [b'x' * (1 << 20) for _ in range(4096)]", {"memory_mb": 64}),
}


def test_each_limit_is_reported_as_itself(tier):
    async def work(sandbox):
        for limit, (code, limits) in LIMITS.items():
            result = await sandbox.run_code(code, limits=SHORT.model_copy(update=limits))
            assert result.limit == limit, result

    run_docker(work, tier=tier)


WALLS = """
import ctypes, errno, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *args)
    return result < 0 and errno.errorcode[ctypes.get_errno()]
seen = {"uid": os.getuid(), "euid": os.geteuid()}
for name, family in (("vsock", 40), ("inet", 2), ("unix", 1), ("netlink", 16)):
    try:
        socket.socket(family, socket.SOCK_STREAM); seen[name] = "open"
    except OSError as error:
        seen[name] = errno.errorcode[error.errno]
for name, call in {"io_uring": (425, 1, 0), "ptrace": (101, 0, 0, 0, 0), "process_vm_writev": (311, 1, 0, 0, 0, 0, 0),
                   "bpf": (321, 0, 0, 0), "keyctl": (250, 0, 0, 0, 0, 0), "unshare": (272, 0x10000000),
                   "mount": (165, 0, 0, 0, 0, 0), "fork": (57,), "kill": (62, 1, 0)}.items():
    seen[name] = refused(*call)
for path in ("/etc/ld.so.conf", "/proc/1/environ", "/proc/self/status", "/scratch", "/sys", "/opt"):
    try:
        seen[path] = bool(os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError as error:
        seen[path] = errno.errorcode[error.errno]
for path in ("/x", "/scratch/x", "/dev/shm/x", "../x", "/opt/python/x"):
    try:
        open(path, "w"); seen["write " + path] = "open"
    except OSError as error:
        seen["write " + path] = errno.errorcode[error.errno]
print(json.dumps(seen))
"""


def test_what_code_finds_inside(tier):
    async def work(sandbox):
        result = await sandbox.run_code(WALLS, limits=SHORT)
        seen = json.loads(result.stdout)
        assert seen["uid"] == seen["euid"] >= 61184
        assert "open" not in [seen[name] for name in ("vsock", "inet", "unix", "netlink")]
        calls = ("io_uring", "ptrace", "process_vm_writev", "bpf", "keyctl", "unshare", "mount", "fork", "kill")
        assert [name for name in calls if not seen[name]] == []
        assert seen["write /x"] in ("EACCES", "EROFS")
        assert seen["write /opt/python/x"] in ("EACCES", "EROFS")
        assert seen["write /dev/shm/x"] in ("EACCES", "EROFS", "ENOENT")
        # landlock; or a root of the jail's own, which leaves it a container to itself.
        refused = "ENOENT" if tier == "gvisor" else "EACCES"
        assert seen["/proc/1/environ"] == seen["/proc/self/status"] == seen["/sys"] == refused
        if tier != "gvisor":
            assert seen["/scratch"] == seen["write /scratch/x"] == seen["write ../x"] == "EACCES"

    run_docker(work, tier=tier)


def test_the_container_as_the_daemon_sees_it():
    async def work(sandbox):
        await sandbox.run_code("1")
        api = connect()
        (one,) = of_session(sandbox)
        seen = api.inspect_container(one["Id"])
        host, config = seen["HostConfig"], seen["Config"]
        assert (host["NetworkMode"], host["IpcMode"], host["ReadonlyRootfs"]) == ("none", "none", True)
        assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], None, False)
        assert host["Memory"] == host["MemorySwap"] == 512 << 20
        assert (host["PidsLimit"], host["NanoCpus"], host["AutoRemove"]) == (200, 10**9, True)
        assert host["LogConfig"]["Type"] == "none"
        assert "no-new-privileges" in host["SecurityOpt"]
        (profile,) = [json.loads(o.partition("=")[2]) for o in host["SecurityOpt"] if o.startswith("seccomp=")]
        assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
        allowed = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
        forbidden = "socket ptrace process_vm_readv process_vm_writev io_uring_setup bpf keyctl mount unshare setns"
        assert allowed.isdisjoint(forbidden.split())
        assert config["OpenStdin"] is config["StdinOnce"] is True
        assert not config["User"].startswith("0")
        api.close()

    run_docker(work, box=Box(memory_mb=512, cpus=1, processes=200))


def test_a_container_out_of_memory_is_replaced_and_the_run_says_why():
    """Files in the work folder are memory of the container, which no limit of the process itself counts."""

    async def work(sandbox):
        first = await sandbox._acquire("code")
        sandbox._release(first)
        code = "n = 0\nwhile True:\n open(str(n), 'wb').write(b'x' * (32 << 20)); n += 1"
        result = await sandbox.run_code(code, limits=SHORT)
        assert result.limit == "memory_mb", result
        assert (await sandbox.run_code("print(1)")).ok
        assert await sandbox._acquire("code") is not first

    run_docker(work, box=Box(memory_mb=128, disk_mb=1024))


def test_a_run_that_times_out_costs_its_container_after_the_others_have_ended():
    async def work(sandbox):
        steady = await sandbox.start_code("print(input(), input())", limits=SHORT)
        first = steady._spawner
        result = await sandbox.run_code("import time; time.sleep(60)", limits=SHORT.model_copy(update={"wall_s": 0.5}))
        assert result.limit == "wall_s"
        assert first.spoiled
        assert (await sandbox.run_code("print(1)")).ok
        await steady.write(b"still\nthere\n")
        assert (await steady.wait()).stdout == "still there\n"
        await until(lambda: first.lost)
        with pytest.raises(LimitExceeded):
            await sandbox.call(f"{CALLED}:sleep", 60, wall_s=0.5)

    run_docker(work, preload=(CALLED,))


@pytest.mark.thorough
def test_a_container_that_is_killed_fails_its_runs_and_the_next_one_works(tier):
    async def work(sandbox):
        process = await sandbox.start_code("print(1, flush=True); import time; time.sleep(60)", limits=SHORT)
        assert await process.readline() == b"1\n"
        await until(lambda: not any(sandbox._pool._starting.values()), 60)  # the spares are ready
        api = connect()
        for one in of_session(sandbox):
            api.remove_container(one["Id"], force=True)
        api.close()
        with pytest.raises(SandboxUnavailable, match="has ended"):
            await asyncio.wait_for(process.wait(), 20)
        assert (await sandbox.run_code("print(1)")).ok

    run_docker(work, tier=tier)


def test_the_cap_is_hard():
    async def work(sandbox):
        most = 0

        async def watch():
            nonlocal most
            while True:
                most = max(most, len(await asyncio.to_thread(of_session, sandbox)))

        watching = asyncio.create_task(watch())
        program = workflow_of("import subprocess", "subprocess.run(['python', '-c', 'print(1)'])")
        runs = [sandbox.run_program(program, "q", engine=Scripted()) for _ in range(6)]
        runs += [sandbox.run_code("print(1)") for _ in range(6)]
        for done in await asyncio.gather(*runs):
            assert getattr(done, "failure", None) is None
        watching.cancel()
        assert 0 < most <= 5

    run_docker(work, tier="strict", max_containers=5, spares=1)


HOST = """
import asyncio, sys
from sandbox.containers import DockerSandbox
async def main():
    async with DockerSandbox(tier=sys.argv[1]) as sandbox:
        process = await sandbox.start_code("print(1, flush=True); import time; time.sleep(600)")
        await process.readline()
        print(sandbox._session, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def test_a_host_that_is_killed_leaves_no_container(tier):
    host = subprocess.Popen([sys.executable, "-c", HOST, tier], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    session = host.stdout.readline().strip()
    assert containers(**{"metaagent.session": session})
    host.kill()
    host.wait(10)
    host.stdout.close()

    async def gone():
        await until(lambda: not containers(**{"metaagent.session": session}), 30)

    asyncio.run(gone())


def test_leftovers_of_the_dead_are_found_and_removed_and_no_others():
    dead = subprocess.run(
        [sys.executable, "-c", "from sandbox.host.owners import own_tag; print(own_tag())"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout.strip()

    async def work(sandbox):
        await sandbox.run_code("1")
        api = connect()
        made = [
            api.create_container(sandbox._image, command=["python"], labels={OWNER_LABEL: owner})["Id"]
            for owner in (dead, "1-1-1-00000000")
        ]
        try:
            found = {one.name: one for one in leftovers.containers(api)}
            (ours,) = of_session(sandbox)
            lives = [found[name].owner_lives for name in (made[0], made[1], ours["Id"])]
            assert lives == [False, None, True]
            cleaned = clean(30)
            assert any(made[0][:12] in line for line in cleaned.removed)
            assert cleaned.failed == []
            assert any(made[1][:12] in line and "cannot be seen from here" in line for line in cleaned.kept)
            assert any(ours["Id"][:12] in line and "in use" in line for line in cleaned.kept)
            for kept in (made[1], ours["Id"]):
                with pytest.raises(ValueError, match="in use"):
                    leftovers.remove(found[kept], api)
            assert made[0] not in {one.name for one in leftovers.containers(api)}
        finally:
            for name in made:
                leftovers.remove_container(api, name)
            api.close()

    run_docker(work)


def test_what_is_missing_is_named_with_its_fix(monkeypatch, tmp_path):
    async def attempt(**options):
        async with DockerSandbox(**options) as sandbox:
            await sandbox.run_code("1")

    with pytest.raises(SandboxUnavailable, match=r"no image nothing:here Fix: .*python -m sandbox\.image"):
        asyncio.run(attempt(image="nothing:here"))
    with monkeypatch.context() as patch:
        patch.setattr("sandbox.containers.daemon.code_hash", lambda: "0123456789abcdef")
        with pytest.raises(SandboxUnavailable, match=r"built from other code .*0123456789abcdef Fix: "):
            asyncio.run(attempt())
    with pytest.raises(SandboxUnavailable, match=r"no_such_module"):
        asyncio.run(call_of("no_such_module"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(SandboxUnavailable, match=r"Fix: start Docker"):
        asyncio.run(attempt())


async def call_of(module):
    async with DockerSandbox(preload=(module,)) as sandbox:
        await sandbox.call(f"{module}:f", 1)


def test_a_daemon_that_hangs_is_not_waited_for_forever(monkeypatch, tmp_path):
    monkeypatch.setattr("sandbox.containers.daemon.connect.__defaults__", (0.5,))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "docker.sock"))
        silent.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")

        async def attempt():
            async with DockerSandbox() as sandbox:
                await sandbox.run_code("1")

        started = time.monotonic()
        with pytest.raises(SandboxUnavailable, match="timed out"):
            asyncio.run(attempt())
        assert time.monotonic() - started < 30


def test_a_daemon_that_dies_fails_what_runs():
    """Its containers' stdio goes through it."""
    pid = os.environ.get("METAAGENT_DOCKERD_PID", "")
    restart = os.environ.get("METAAGENT_DOCKERD_RESTART", "")
    if not pid or not restart:
        pytest.skip("only an engine that make test-sandbox has started may be killed")

    async def work(sandbox):
        process = await sandbox.start_code("print(1, flush=True); import time; time.sleep(60)", limits=SHORT)
        assert await process.readline() == b"1\n"
        os.kill(int(Path(pid).read_text()), signal.SIGKILL)
        try:
            with pytest.raises(SandboxUnavailable, match="has ended"):
                await asyncio.wait_for(process.wait(), 30)
            with pytest.raises(SandboxUnavailable, match="Fix: start Docker"):
                await asyncio.wait_for(sandbox.run_code("print(1)"), 60)
        finally:
            subprocess.run([restart], timeout=60, check=True, stdin=subprocess.DEVNULL)
        assert (await sandbox.run_code("print(1)")).ok

    run_docker(work)
