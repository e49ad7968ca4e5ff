"""Workspaces: files persist from run to run and to the host, nobody else sees them, and nothing leads out of them."""

from __future__ import annotations

import asyncio

from sandbox.conformance.scripted import SHORT
from sandbox.conformance.subject import Subject
from sandbox.conformance.suite import check, raises
from sandbox.protocol import CodeResult, Workspace

FILL = "for n in range(8):\n with open(str(n), 'wb') as f: f.write(b'x' * (1 << 20))"


async def run_in(subject: Subject, folder: Workspace, code: str, stdin: str = "") -> CodeResult:
    return await subject.sandbox.run_code(code, stdin=stdin, limits=SHORT, workspace=folder)


@check("workspaces")
async def files_persist_from_run_to_run_and_to_the_host(subject: Subject) -> None:
    async with subject.sandbox.workspace(8) as folder:

        async def run(code: str) -> str:
            result = await run_in(subject, folder, code)
            assert result.ok, result
            return result.stdout

        await folder.write("in.txt", b"from the host")
        assert await run("print(open('in.txt').read())") == "from the host\n"
        await run("open('state', 'w').write('1'); open('in.txt', 'w').write('changed')")
        assert await folder.read("in.txt") == b"changed"
        # Another run may change what an earlier one made, folders included.
        await run("f = open('state', 'a'); f.write('2'); import os; os.makedirs('d/e'); open('d/e/x', 'w').write('y')")
        assert await folder.read("state") == b"12", "a file left open is written at the end"
        await run("import os, shutil; open('d/e/x', 'a').write('z'); os.rename('d/e/x', 'x'); shutil.rmtree('d')")
        assert await folder.read("x") == b"yz"
        await folder.write("x", b"host again")
        seen = await run("print(open('x').read()); import os; os.remove('x'); print(sorted(os.listdir('.')))")
        assert seen == "host again\n['in.txt', 'state']\n"
        async with raises(FileNotFoundError):
            await folder.read("x")
        # A module that one run wrote is found by the next.
        await run("open('helper.py', 'w').write('VALUE = 6 * 7')")
        assert await run("import helper; print(helper.VALUE)") == "42\n"


@check("workspaces")
async def large_and_odd_contents_travel(subject: Subject) -> None:
    async with subject.sandbox.workspace(16) as folder:
        data = bytes(range(256)) * (12 << 10)
        await folder.write("big", data)
        code = "d = open('big', 'rb').read(); open('back', 'wb').write(d[::-1]); print(len(d))"
        assert (await run_in(subject, folder, code)).stdout == f"{len(data)}\n"
        assert await folder.read("back") == data[::-1]
        await folder.write("empty", b"")
        assert await folder.read("empty") == b""


LOOK = (
    "import os\nprint(os.listdir('.'))\n"
    "for root in ('..', '../..', '../../workspaces', '/workspaces', '/'):\n"
    " try:\n  for name in os.listdir(root):\n   print(root, name, os.listdir(f'{root}/{name}'))\n"
    " except OSError: pass\n"
)


@check("workspaces")
async def workspaces_and_scratch_are_isolated_from_other_runs(subject: Subject) -> None:
    async with subject.sandbox.workspace(8) as folder, subject.sandbox.workspace(8) as other:
        await run_in(subject, folder, "open('mine', 'w').write('secret of this run')")
        alone = await subject.code(LOOK + "open('left', 'w').write('x')")
        assert alone.stdout.startswith("[]\n")
        assert "mine" not in alone.stdout
        again = await subject.code(LOOK)
        assert again.stdout.startswith("[]\n"), "scratch is fresh for each run"
        there = await run_in(subject, other, LOOK)
        assert there.stdout.startswith("[]\n")
        assert "mine" not in there.stdout
        path = await run_in(subject, folder, "import os; print(os.getcwd())")
        stolen = await run_in(subject, other, f"print(open({path.stdout.strip()!r} + '/mine').read())")
        assert "secret" not in stolen.stdout
        assert stolen.exit_status == 1
        assert await folder.read("mine") == b"secret of this run"


@check("workspaces")
async def names_that_are_not_plain_are_refused(subject: Subject) -> None:
    async with subject.sandbox.workspace(8) as folder:
        for name in ("", ".", "..", "a/b", "/etc/passwd", "../x", "a/", "nul\x00"):
            async with raises(ValueError, "plain name", "null"):
                await folder.write(name, b"x")
            async with raises(ValueError, "plain name", "null"):
                await folder.read(name)


@check("workspaces")
async def only_regular_files_are_read(subject: Subject) -> None:
    """Links cannot be made by code (see the corpus); that planted ones are not followed is each backend's to test."""
    async with subject.sandbox.workspace(8) as folder:
        await run_in(subject, folder, "import os; os.mkdir('folder')")
        async with raises(OSError, "not a regular file"):
            await folder.read("folder")
        async with raises(OSError):
            await folder.write("folder", b"x")
        result = await run_in(subject, folder, "import os; os.symlink('/etc/passwd', 'link')")
        assert result.exit_status == 1
        async with raises(FileNotFoundError):
            await folder.read("link")


@check("workspaces")
async def a_file_in_a_workspace_has_a_size(subject: Subject) -> None:
    async with subject.sandbox.workspace(64) as folder:
        limits = SHORT.model_copy(update={"disk_mb": 2})
        code = "f = open('big', 'wb')\nfor _ in range(8): f.write(b'x' * (1 << 20)); f.flush()"
        assert (await subject.sandbox.run_code(code, limits=limits, workspace=folder)).limit == "disk_mb"


@check("workspaces")
async def runs_in_one_workspace_at_the_same_time(subject: Subject) -> None:
    async with subject.sandbox.workspace(8) as folder:
        code = "import os, sys\nopen(f'{input()}.txt', 'w').write('x')"
        results = await asyncio.gather(*(run_in(subject, folder, code, f"{n}\n") for n in range(8)))
        assert all(result.ok for result in results), results
        assert [await folder.read(f"{n}.txt") for n in range(8)] == [b"x"] * 8


@check("workspaces")
async def a_workspace_of_something_else_is_refused(subject: Subject) -> None:
    async with raises(TypeError, "sandbox.workspace"):
        await subject.sandbox.run_code("1", workspace=object())  # type: ignore[arg-type]


@check("workspaces")
async def a_folder_tree_too_deep_to_recurse_is_removed(subject: Subject) -> None:
    """Removing what code left must not end what serves the jails."""
    code = "import os\nfor n in range(1900):\n os.mkdir('d')\n os.chdir('d')\nopen('x', 'w').close()"
    async with subject.sandbox.workspace(8) as folder:
        assert (await run_in(subject, folder, code)).ok
        assert (await subject.code(code)).ok
    assert (await subject.code("print(1)")).ok
