"""Conversations with a running jailed process, and workspaces that several runs share."""

import asyncio
import os
import stat

import pytest
from jails import SHORT, Jail, jailed_processes, until

ECHO = "import sys\nfor line in sys.stdin:\n    print('got', line.strip(), flush=True)\nprint('over')"


def talk(jail: Jail, code, conversation, **limits):
    """Start `code` and hold the conversation `conversation(process)` with it."""

    async def hold():
        process = await jail.sandbox.start_code(code, limits=SHORT.model_copy(update=limits))
        try:
            return await conversation(process)
        finally:
            await process.kill()

    return jail.run(hold())


def test_an_echo_process_answers_line_by_line(jail):
    async def conversation(process):
        for n in range(5):
            await process.write(f"{n}\n".encode())
            assert await process.readline() == f"got {n}\n".encode()
        await process.close_stdin()
        assert await process.readline() == b"over\n"
        assert await process.readline() == b""
        assert await process.readline() == b"", "the end stays the end"
        return await process.wait()

    result = talk(jail, ECHO, conversation)
    assert result.ok
    assert result.stdout.splitlines() == [*(f"got {n}" for n in range(5)), "over"]


def test_a_last_line_without_newline_is_a_line(jail):
    async def conversation(process):
        return [await process.readline() for _ in range(3)]

    assert talk(jail, "print('a'); print('b', end='')", conversation) == [b"a\n", b"b", b""]


def test_killing_ends_the_process_and_the_lines(jail):
    async def conversation(process):
        await process.write(b"x\n")
        assert await process.readline() == b"got x\n"
        reading = asyncio.create_task(process.readline())
        await asyncio.sleep(0)
        await process.kill()
        assert await reading == b""
        await until(lambda: not jailed_processes(jail.sandbox))
        return await process.wait()

    result = talk(jail, ECHO, conversation)
    assert (result.signal, result.exit_status, result.limit) == (9, None, None)


def test_a_process_that_ends_early_ends_the_lines(jail):
    async def conversation(process):
        assert await process.readline() == b"bye\n"
        assert await process.readline() == b""
        return await process.wait()

    assert talk(jail, "print('bye'); raise SystemExit(4)", conversation).exit_status == 4


def test_writing_to_a_dead_process_is_swallowed(jail):
    async def conversation(process):
        await process.wait()
        for _ in range(10):
            await process.write(b"anybody there?\n" * 10_000)
        await process.close_stdin()
        await process.close_stdin()
        await process.kill()
        return await process.wait()

    assert talk(jail, "print('gone')", conversation).stdout == "gone\n"


def test_writing_to_a_process_that_closed_its_stdin_is_swallowed(jail):
    async def conversation(process):
        assert await process.readline() == b"closed\n"
        for _ in range(10):
            await process.write(b"x" * 100_000)
        await process.close_stdin()
        return await process.wait()

    code = "import os, sys, time\nos.close(0)\nprint('closed', flush=True)\ntime.sleep(0.2)"
    assert talk(jail, code, conversation).ok


def test_a_writer_waits_while_the_process_does_not_read(jail):
    async def conversation(process):
        writing = asyncio.create_task(process.write(b"x" * 1_000_000 + b"\n"))
        await asyncio.sleep(0.1)
        assert not writing.done(), "a megabyte does not fit into a pipe"
        await process.write(b"")
        assert await process.readline() == b"1000000\n"
        await writing
        return await process.wait()

    code = "import sys, time; time.sleep(0.3); print(len(sys.stdin.readline()) - 1)"
    assert talk(jail, code, conversation).ok


def test_the_wall_limit_ends_a_conversation(jail):
    async def conversation(process):
        assert await process.readline() == b""
        return await process.wait()

    result = talk(jail, "import time; time.sleep(60)", conversation, wall_s=0.3)
    assert result.limit == "wall_s"


def test_a_line_is_never_longer_than_the_output_limit(jail):
    async def conversation(process):
        line = await process.readline()
        assert await process.readline() == b""
        return line, await process.wait()

    line, result = talk(jail, "import os\nwhile True: os.write(1, b'x' * 1000)", conversation, output_bytes=5000)
    assert line == b"x" * 5000
    assert result.limit == "output_bytes"


def test_many_conversations_at_once(jail):
    async def one(n):
        process = await jail.sandbox.start_code(ECHO, limits=SHORT)
        lines = []
        for turn in range(10):
            await process.write(f"{n}.{turn}\n".encode())
            lines.append(await process.readline())
        await process.close_stdin()
        assert (await process.wait()).ok
        return lines

    async def all_of_them():
        return await asyncio.gather(*map(one, range(20)))

    for n, lines in enumerate(jail.run(all_of_them())):
        assert lines == [f"got {n}.{turn}\n".encode() for turn in range(10)]


# Workspaces


def with_workspace(jail: Jail, work, disk_mb: int = 8):
    async def inside():
        async with jail.sandbox.workspace(disk_mb) as folder:
            return await work(folder)

    return jail.run(inside())


def test_files_persist_from_run_to_run_and_to_the_host(jail):
    async def work(folder):
        async def run(code):
            result = await jail.sandbox.run_code(code, limits=SHORT, workspace=folder)
            assert result.ok, result.stderr
            return result.stdout

        folder.write("in.txt", b"from the host")
        assert await run("print(open('in.txt').read())") == "from the host\n"
        await run("open('state', 'w').write('1'); open('in.txt', 'w').write('changed')")
        assert folder.read("in.txt") == b"changed"
        # Another run may change what an earlier one made, folders included.
        await run("f = open('state', 'a'); f.write('2'); import os; os.makedirs('d/e'); open('d/e/x', 'w').write('y')")
        assert folder.read("state") == b"12", "a file left open is written at the end"
        await run("import os, shutil; open('d/e/x', 'a').write('z'); os.rename('d/e/x', 'x'); shutil.rmtree('d')")
        assert folder.read("x") == b"yz"
        folder.write("x", b"host again")
        assert await run("print(open('x').read()); import os; os.remove('x'); print(sorted(os.listdir('.')))") == (
            "host again\n['in.txt', 'state']\n"
        )
        with pytest.raises(FileNotFoundError):
            folder.read("x")
        # A module that one run wrote is found by the next.
        await run("open('helper.py', 'w').write('VALUE = 6 * 7')")
        assert await run("import helper; print(helper.VALUE)") == "42\n"

    with_workspace(jail, work)


def test_workspaces_and_scratch_are_isolated_from_other_runs(jail):
    async def work(folder):
        await jail.sandbox.run_code("open('mine', 'w').write('secret of this run')", limits=SHORT, workspace=folder)
        look = "import os\nprint(os.listdir('.'))\n"
        look += "for root in ('..', '../..', '../../workspaces', '/workspaces', '/'):\n"
        look += " try:\n  for name in os.listdir(root):\n   print(root, name, os.listdir(f'{root}/{name}'))\n"
        look += " except OSError: pass\n"
        alone = await jail.sandbox.run_code(look + "open('left', 'w').write('x')", limits=SHORT)
        assert alone.stdout.startswith("[]\n")
        assert "mine" not in alone.stdout
        again = await jail.sandbox.run_code(look, limits=SHORT)
        assert again.stdout.startswith("[]\n"), "scratch is fresh for each run"
        async with jail.sandbox.workspace() as other:
            there = await jail.sandbox.run_code(look, limits=SHORT, workspace=other)
            assert there.stdout.startswith("[]\n")
            assert "mine" not in there.stdout
            path = await jail.sandbox.run_code("import os; print(os.getcwd())", limits=SHORT, workspace=folder)
            steal = f"print(open({path.stdout.strip()!r} + '/mine').read())"
            stolen = await jail.sandbox.run_code(steal, limits=SHORT, workspace=other)
            assert "secret" not in stolen.stdout
            assert stolen.exit_status == 1
        assert folder.read("mine") == b"secret of this run"

    with_workspace(jail, work)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a/", "nul\x00"])
def test_names_that_are_not_plain_are_refused(jail, name):
    async def work(folder):
        with pytest.raises(ValueError, match=r"plain name|null"):
            folder.write(name, b"x")
        with pytest.raises(ValueError, match=r"plain name|null"):
            folder.read(name)

    with_workspace(jail, work)


def test_reading_refuses_links_folders_and_pipes(jail, tmp_path):
    (tmp_path / "canary").write_text("outside")

    async def work(folder):
        # Code cannot make links or pipes itself (see the hostile corpus), so the test plants them.
        await jail.sandbox.run_code("import os; os.mkdir('folder')", limits=SHORT, workspace=folder)
        os.symlink(tmp_path / "canary", "link", dir_fd=folder._fd)
        os.mkfifo("pipe", dir_fd=folder._fd)
        with pytest.raises(OSError, match="symbolic link"):
            folder.read("link")
        with pytest.raises(OSError, match="symbolic link"):
            folder.write("link", b"x")
        for name in ("folder", "pipe"):
            with pytest.raises(OSError, match="not a regular file"):
                folder.read(name)
        seen = await jail.sandbox.run_code("print(open('link').read())", limits=SHORT, workspace=folder)
        assert "outside" not in seen.stdout, "not even a link that somebody planted leads outside"

    with_workspace(jail, work)
    assert (tmp_path / "canary").read_text() == "outside"


def test_a_workspace_has_a_size(jail):
    if jail.mode == "j0":
        pytest.skip("mode j0 limits single files only")

    async def work(folder):
        fill = "for n in range(8):\n with open(str(n), 'wb') as f: f.write(b'x' * (1 << 20))"
        result = await jail.sandbox.run_code(fill, limits=SHORT, workspace=folder)
        assert "No space left on device" in result.stderr
        assert len(folder.read("2")) == 1 << 20
        with pytest.raises(OSError, match="No space left"):
            folder.write("host", b"x" * (4 << 20))

    with_workspace(jail, work, disk_mb=4)


def test_runs_in_one_workspace_at_the_same_time(jail):
    async def work(folder):
        code = "import os, sys\nopen(f'{input()}.txt', 'w').write('x')"
        results = await asyncio.gather(
            *(jail.sandbox.run_code(code, stdin=f"{n}\n", limits=SHORT, workspace=folder) for n in range(10))
        )
        assert all(result.ok for result in results)
        assert [folder.read(f"{n}.txt") for n in range(10)] == [b"x"] * 10

    with_workspace(jail, work)


def test_files_of_a_workspace_belong_to_no_user_of_the_host(jail):
    if os.geteuid() != 0 or jail.mode == "j0":
        pytest.skip("only root can give runs users of their own")

    async def work(folder):
        await jail.sandbox.run_code("open('f', 'w').write('x')", limits=SHORT, workspace=folder)
        status = os.stat("f", dir_fd=folder._fd)
        assert status.st_uid >= 0x6D610000
        assert stat.S_ISREG(status.st_mode)

    with_workspace(jail, work)


def test_a_workspace_of_something_else_is_refused(jail):
    async def attempt():
        with pytest.raises(TypeError, match=r"use sandbox\.workspace"):
            await jail.sandbox.run_code("1", workspace=object())  # type: ignore[arg-type]

    jail.run(attempt())


def test_a_folder_tree_too_deep_to_recurse_is_removed(jail):
    """Removing what code left must not end the zygote."""

    async def work(folder):
        code = "import os\nfor n in range(1900):\n os.mkdir('d')\n os.chdir('d')\nopen('x', 'w').close()"
        result = await jail.sandbox.run_code(code, limits=SHORT, workspace=folder)
        assert result.ok, result.stderr
        alone = await jail.sandbox.run_code(code, limits=SHORT)
        assert alone.ok, alone.stderr

    with_workspace(jail, work)
    assert jail.code("print(1)").ok
    if jail.mode == "j0":
        root = jail.sandbox._hatcheries["code"]._folder

        async def gone():
            await until(lambda: not os.listdir(f"{root}/workspaces") and not os.listdir(f"{root}/scratch"))

        jail.run(gone())
