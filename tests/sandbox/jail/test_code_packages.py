"""Packages that code computes with: loaded by the zygote's child, equal to what an import in the jail gives, and those
that are closed to code are not there."""

import asyncio
import importlib.util
import os
import signal
from pathlib import Path

import pytest
from jails import jailed_processes, run_in

from sandbox import ProcessSandbox
from sandbox.jail.loading import MODULES, installed, names_a_package
from workflow.failures import SandboxUnavailable
from workflow.limits import CodeLimits

LOADED = "import sys\nprint('sympy' in sys.modules)\nimport sympy\nprint(sympy.sqrt(8))"


async def until_loaded(sandbox: ProcessSandbox) -> None:
    for _ in range(100):
        result = await sandbox.run_code(LOADED, limits=CodeLimits(wall_s=30))
        assert result.stdout.endswith("2*sqrt(2)\n"), result.stderr
        if result.stdout.startswith("True"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the child was never ready")


def test_code_that_names_a_package_finds_it_loaded_and_other_code_does_not(any_mode) -> None:
    async def work(sandbox: ProcessSandbox) -> None:
        await until_loaded(sandbox)
        (child,) = jailed_processes(sandbox)
        plain = await sandbox.run_code("import sys; print('sym' + 'py' in sys.modules)")
        assert plain.stdout == "False\n"
        threads = "import threading, sympy\nt = threading.Thread(target=print, args=('x',)); t.start(); t.join()"
        assert (await sandbox.run_code(threads)).stdout == "x\n"
        late = await sandbox.run_code("import sympy\nwhile True: pass", limits=CodeLimits(wall_s=0.3))
        assert late.limit == "wall_s"
        big = await sandbox.run_code("import sympy\nb'x' * (1 << 30)", limits=CodeLimits(memory_mb=64))
        assert big.limit == "memory_mb"
        async with sandbox.workspace() as folder:
            await folder.write("a", b"1")
            assert (await sandbox.run_code("open('a', 'a').write('sympy')", workspace=folder)).ok
            assert await folder.read("a") == b"1sympy"
        runs = await asyncio.gather(*(sandbox.run_code(LOADED) for _ in range(20)))
        assert {run.stdout for run in runs} == {"True\n2*sqrt(2)\n"}
        for _ in range(100):
            if jailed_processes(sandbox) == {child}:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("something is left of a run")

    run_in(any_mode, work)


def test_a_child_that_is_killed_takes_its_jails_along_and_another_one_comes(any_mode) -> None:
    async def work(sandbox: ProcessSandbox) -> None:
        await until_loaded(sandbox)
        (child,) = jailed_processes(sandbox)
        process = await sandbox.start_code("import sympy\nprint('up', flush=True)\nimport time; time.sleep(60)")
        assert await process.readline() == b"up\n"
        os.kill(child, signal.SIGKILL)
        assert (await process.wait()).signal == signal.SIGKILL
        assert (await sandbox.run_code("print(1)")).stdout == "1\n"
        await until_loaded(sandbox)
        assert jailed_processes(sandbox) != {child}

    run_in(any_mode, work)


def test_closing_while_it_loads_leaves_nothing(any_mode) -> None:
    left: list[int] = []

    async def work(sandbox: ProcessSandbox) -> None:
        assert (await sandbox.run_code("print('sympy')")).ok
        left.extend(jailed_processes(sandbox))

    run_in(any_mode, work)
    assert left
    assert not any(Path(f"/proc/{pid}").exists() for pid in left)


def test_packages_that_code_may_not_read_are_not_loaded(any_mode) -> None:
    async def work(sandbox: ProcessSandbox) -> None:
        for _ in range(2):
            result = await sandbox.run_code("import sympy")
            assert result.stderr.endswith("ModuleNotFoundError: No module named 'sympy'\n")
        assert jailed_processes(sandbox) == set()

    run_in(any_mode, work, code_packages=())


def test_what_is_closed_to_code_is_not_there(any_mode) -> None:
    """A package that can do without another one tries to import it, and takes any other error for a broken one."""
    code = "try:\n    import pydantic\nexcept ImportError as error: print(type(error).__name__)"
    assert run_in(any_mode, lambda sandbox: sandbox.run_code(code)).stdout == "ModuleNotFoundError\n"


@pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="needs numpy")
def test_each_run_draws_random_numbers_of_its_own(mode) -> None:
    async def work(sandbox: ProcessSandbox) -> None:
        await until_loaded(sandbox)
        drawn = [await sandbox.run_code("import numpy; print(numpy.random.rand())") for _ in range(3)]
        assert len({run.stdout for run in drawn}) == 3

    run_in(mode, work)


def test_which_code_names_a_package() -> None:
    assert names_a_package(b"from sympy.abc import x")
    assert names_a_package(b"import scipy.stats, numpy")
    assert not names_a_package(b"numpyro = my_sympy")
    assert installed(("pandas", "nothing")) == []
    assert set(installed(MODULES)) <= {module for modules in MODULES.values() for module in modules}


def test_a_dead_zygote_is_told_while_its_child_lives(mode) -> None:
    async def work(sandbox: ProcessSandbox) -> None:
        await until_loaded(sandbox)
        (child,) = jailed_processes(sandbox)
        zygote = sandbox._zygotes["code"]
        assert zygote._process is not None
        process = await sandbox.start_code("import sympy\nprint('up', flush=True)\nimport time; time.sleep(60)")
        assert await process.readline() == b"up\n"
        os.kill(zygote._process.pid, signal.SIGKILL)
        with pytest.raises(SandboxUnavailable):
            await process.wait()
        for _ in range(100):
            if not Path(f"/proc/{child}").exists():
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the child outlives its zygote")

    run_in(mode, work)
