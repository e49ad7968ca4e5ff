"""Folders of the process backend: size, owners, planted links, removal. More is in the conformance suite."""

import os
import stat

import pytest
from jails import SHORT, Jail, until

from sandbox.protocol import WorkspaceError

# Workspaces


def with_workspace(jail: Jail, work, disk_mb: int = 8):
    async def inside():
        async with jail.sandbox.workspace(disk_mb) as folder:
            return await work(folder)

    return jail.run(inside())


def test_reading_refuses_links_folders_and_pipes(jail, tmp_path):
    (tmp_path / "canary").write_text("outside")

    async def work(folder):
        # Code cannot make links or pipes itself (see the hostile corpus), so the test plants them.
        await jail.sandbox.run_code("import os; os.mkdir('folder')", limits=SHORT, workspace=folder)
        os.symlink(tmp_path / "canary", "link", dir_fd=folder._fd)
        os.mkfifo("pipe", dir_fd=folder._fd)
        with pytest.raises(WorkspaceError, match="code has left a link of this name"):
            await folder.read("link")
        with pytest.raises(WorkspaceError, match="code has left a link of this name"):
            await folder.write("link", b"x")
        for name in ("folder", "pipe"):
            with pytest.raises(OSError, match="not a regular file"):
                await folder.read(name)
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
        assert len(await folder.read("2")) == 1 << 20
        with pytest.raises(WorkspaceError, match=r"the workspace is full; raise CodeLimits\.disk_mb"):
            await folder.write("host", b"x" * (4 << 20))

    with_workspace(jail, work, disk_mb=4)


def test_files_of_a_workspace_belong_to_no_user_of_the_host(jail):
    if os.geteuid() != 0 or jail.mode == "j0":
        pytest.skip("only root can give runs users of their own")

    async def work(folder):
        await jail.sandbox.run_code("open('f', 'w').write('x')", limits=SHORT, workspace=folder)
        status = os.stat("f", dir_fd=folder._fd)
        assert status.st_uid >= 0x6D610000
        assert stat.S_ISREG(status.st_mode)

    with_workspace(jail, work)


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
        root = jail.sandbox._zygotes["code"]._folder

        async def gone():
            await until(lambda: not os.listdir(f"{root}/workspaces") and not os.listdir(f"{root}/scratch"))

        jail.run(gone())


def test_all_files_together_cannot_grow_past_the_disk_limit(jail):
    if jail.mode == "j0":
        pytest.skip("mode j0 limits single files only")
    code = "for n in range(8):\n with open(str(n), 'wb') as f: f.write(b'x' * (1 << 20))"
    result = jail.code(code, disk_mb=4)
    assert "No space left on device" in result.stderr
    result = jail.code("for n in range(10_000): open(str(n), 'w').close()")
    assert "No space left on device" in result.stderr, "the number of files is limited too"


HOME = """
import ctypes, os, tempfile
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
for name in ("HOME", "TMPDIR"):
    assert os.environ[name] == getenv(name.encode()).decode() == os.getcwd(), name
assert tempfile.gettempdir() == os.path.expanduser("~") == os.getcwd()
os.environ["HOME"] = "/elsewhere"
del os.environ["TMPDIR"]
assert (getenv(b"HOME"), getenv(b"TMPDIR")) == (b"/elsewhere", None)
print(os.getcwd())
"""


def test_home_is_where_the_run_works_for_python_and_for_c_and_for_the_next_run(jail):
    """The name of a folder may be shorter than the one before it, which stands in the same place."""

    async def work(folder):
        seen = [await jail.sandbox.run_code(HOME, limits=SHORT) for _ in range(2)]
        seen.append(await jail.sandbox.run_code(HOME, limits=SHORT, workspace=folder))
        seen.append(await jail.sandbox.run_code(HOME, limits=SHORT))
        assert [result.stderr for result in seen] == [""] * 4
        assert jail.mode == "j" or len({result.stdout for result in seen}) == 4

    with_workspace(jail, work)
