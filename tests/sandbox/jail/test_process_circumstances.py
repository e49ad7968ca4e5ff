"""Circumstances of a host: a strict umask, no descriptors, no namespaces, no seccomp, engines that fail oddly."""

import asyncio
import contextlib
import json
import os
import resource
import subprocess
import sys
import textwrap
import time

import pytest
from jails import Scripted, open_descriptors, run_in, why_not, workflow_of, zygotes

from sandbox import ProcessSandbox
from sandbox.host.zygote_client import ZygoteClient
from workflow.failures import SandboxUnavailable

AGENT = workflow_of()


@pytest.mark.thorough
def test_a_host_with_a_strict_umask(mode):
    old = os.umask(0o077)
    try:

        async def work(sandbox):
            assert (await sandbox.run_code("import json; open('x', 'w').write('y'); print(1)")).ok
            async with sandbox.workspace() as folder:
                await folder.write("x", b"1")
                assert (await sandbox.run_code("open('x', 'a').write('2')", workspace=folder)).ok
                assert await folder.read("x") == b"12"
            assert (await sandbox.run_program(AGENT, "q", engine=Scripted())).failure is None

        run_in(mode, work)
    finally:
        os.umask(old)


def test_a_host_without_descriptors_left_says_so(any_mode):
    async def work(sandbox):
        await sandbox.run_code("print(1)")
        await sandbox.run_program(AGENT, "q", engine=Scripted())
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        before = open_descriptors()
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + 30, limits[1]))
        taken = []
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            run = await sandbox.run_program(AGENT, "q", engine=Scripted())
            assert run.failure is not None
            assert run.failure.kind == "sandbox_unavailable"
            assert "ulimit" in run.failure.message
            for _ in range(10):  # a code run wants 12 for a moment
                with pytest.raises(SandboxUnavailable, match="ulimit"):
                    await sandbox.run_code("print(1)")
                os.close(taken.pop())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for fd in taken:
                os.close(fd)
        await asyncio.sleep(0)
        assert open_descriptors() == before
        assert (await sandbox.run_code("print(1)")).ok

    run_in(any_mode, work, max_jails=1)


def test_a_wall_that_cannot_be_put_up_is_no_result(mode):
    """The run fails as unavailable; it does not look like code that ended, and no code runs."""

    async def work(sandbox):
        await sandbox.strength()
        zygote = zygotes(sandbox)[0]
        spawn = zygote.spawn
        zygote.spawn = lambda fds, limits, workspace, **more: spawn(fds, {**limits, "cpu_s": "many"}, workspace)  # type: ignore[method-assign]
        with pytest.raises(SandboxUnavailable, match=mode):
            await sandbox.run_code("print('ran')")
        zygote.spawn = spawn  # type: ignore[method-assign]
        assert (await sandbox.run_code("print('ran')")).stdout == "ran\n"

    run_in(mode, work)


def test_no_exit_status_passes_for_a_missing_wall(jail):
    for status in range(256):
        if status % 51 == 0 or 118 <= status <= 123:
            result = jail.code(f"import os; os.write(2, b'jail: OSError'); os._exit({status})")
            assert result.exit_status == status


def test_without_seccomp_nothing_runs(mode, monkeypatch, tmp_path):
    """Fail closed: a filter that the kernel refuses means no jail, in either mode."""
    (tmp_path / "no_seccomp.py").write_text(
        textwrap.dedent(
            """
            from sandbox.jail import seccomp
            seccomp.SECCOMP_MODE_FILTER = 77
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)

    async def main():
        zygote = ZygoteClient("code", mode, ("no_seccomp",))
        await zygote.start()
        sandbox = ProcessSandbox(mode=mode)
        sandbox._zygotes["code"] = zygote
        marker = tmp_path / "ran"
        with pytest.raises(SandboxUnavailable, match="prctl"):
            await sandbox.run_code(f"open({str(marker)!r}, 'w')")
        assert not marker.exists()
        await sandbox.close()

    asyncio.run(main())


def test_code_is_refused_where_the_kernel_has_no_landlock_unless_the_user_says_otherwise(monkeypatch, tmp_path):
    if why := why_not("j0"):
        pytest.skip(why)
    (tmp_path / "sitecustomize.py").write_text("from sandbox.jail import kernel\nkernel.landlock_version = lambda: 0\n")
    monkeypatch.syspath_prepend(tmp_path)

    async def main():
        async with ProcessSandbox(mode="j0") as sandbox:
            with pytest.raises(SandboxUnavailable, match=r"landlock version 0: .*Fix: .*allow_weak=True.*process/weak"):
                await sandbox.run_code("print('ran')")
            run = await sandbox.run_program(AGENT, "q", engine=Scripted())
            assert run.failure is None, "a program opens no files, so landlock guards nothing there"
        async with ProcessSandbox(mode="j0", allow_weak=True) as sandbox:
            assert (await sandbox.run_code("print('ran')")).stdout == "ran\n"
            assert "weak, as allowed: landlock version 0" in (await sandbox.strength()).reason

    asyncio.run(main())


def test_mode_j0_is_chosen_where_namespaces_are_refused(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("")
    refused = OSError(1, "unshare: Operation not permitted")

    async def start(self, kind, mode, preload):
        if mode == "j":
            raise SandboxUnavailable(f"{kind} jail in mode j: {refused}")
        return await original(self, kind, mode, preload)

    original = ProcessSandbox._start
    monkeypatch.setattr(ProcessSandbox, "_start", start)

    async def main():
        async with ProcessSandbox() as sandbox:
            try:
                strength = await sandbox.strength()
            except SandboxUnavailable as error:
                pytest.skip(str(error))
            assert strength.mode == "j0"
            assert "Operation not permitted" in strength.reason
            run = await sandbox.run_program(AGENT, "q", engine=Scripted())
            assert run.jail == "process/j0"
            assert run.trace.started.jail == "process/j0"

    asyncio.run(main())


CONTAINED = """
import asyncio, json
from jails import Scripted, workflow_of
from sandbox import ProcessSandbox
from sandbox.jail import walls

async def main():
    async with ProcessSandbox() as sandbox:
        strength = await sandbox.strength()
        result = await sandbox.run_code("open('x', 'w').write('y'); print(6 * 7)")
        run = await sandbox.run_program(workflow_of(), "q", engine=Scripted())
        print(json.dumps([strength.model_dump(), result.stdout, run.answer, walls.may_change_users()]))

asyncio.run(main())
"""


def test_root_of_a_container_that_refuses_namespaces_gets_mode_j0():
    """As in a rootless container: root, but with one user id and no further user namespaces."""
    if why := why_not_nested():
        pytest.skip(why)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    shell = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", shell, sys.executable, CONTAINED],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    strength, printed, answer, many_users = json.loads(done.stdout)
    assert (strength["mode"], printed, answer, many_users) == ("j0", "42\n", "It is \\boxed{42}.", False)
    assert strength["reason"].startswith("code jail in mode j: [Errno")


def why_not_nested() -> str:
    try:
        done = subprocess.run(["unshare", "-Ur", "true"], capture_output=True, text=True, timeout=20, check=False)
    except OSError as error:
        return str(error)
    return done.stderr if done.returncode else ""


def test_the_strength_is_reported(jail):
    strength = jail.run(jail.sandbox.strength())
    assert (strength.backend, strength.mode) == ("process", jail.mode)
    assert bool(strength.reason) == (jail.mode == "j0")


def test_a_start_is_quick(jail):
    """Not a benchmark: catches a start that became seconds."""
    jail.code("1")
    started = time.monotonic()
    for _ in range(10):
        jail.code("1")
    assert time.monotonic() - started < 5


@pytest.mark.thorough
def test_a_burst_of_calls_and_checks_takes_turns(mode):
    """They compute; all at once, each would use up its time limit waiting for a core."""
    called = "sandbox.conformance.called_functions"
    most = {"call": 0, "program": 0}

    class Watched(ProcessSandbox):
        at_work = 0

        async def _acquire(self, kind):
            spawner = await super()._acquire(kind)
            Watched.at_work += 1
            most[kind] = max(most[kind], Watched.at_work)
            return spawner

        def _release(self, spawner):
            Watched.at_work -= 1
            super()._release(spawner)

    async def work():
        async with Watched(mode=mode, preload=(called,)) as sandbox:
            calls = [sandbox.call(f"{called}:sleep", 0.05) for _ in range(24)]
            shown = [sandbox.describe(AGENT, "q") for _ in range(24)]
            return await asyncio.gather(*calls, *shown)

    assert len(asyncio.run(work())) == 48
    assert 2 <= max(most.values()) <= 2 * len(os.sched_getaffinity(0))
