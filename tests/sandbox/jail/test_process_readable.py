"""What a jail may read of the machine: the standard library, shared libraries, packages of a list, no zone of time."""

import os
import sysconfig

import pytest
from jails import Jail, Scripted, run_in, why_not

from sandbox import ProcessSandbox
from sandbox.jail import readable
from sandbox.jail.zygote import START

LOOK = """
import os, sys, sysconfig
own, base = sysconfig.get_path("purelib"), sysconfig.get_path("stdlib") + "/site-packages"
found = {}
for folder in {own, base}:
    for name in PACKAGES:
        for path in (f"{folder}/{name}/__init__.py", f"{folder}/{name}.py", f"{folder}/README.txt"):
            try:
                found[path] = open(path).read(1)
            except OSError:
                pass
print(found)
"""


def test_code_reads_no_package_that_is_not_for_it(jail: Jail) -> None:
    names = ["pydantic", "pytest", "pip", "setuptools", "RestrictedPython", "_pytest", "hypothesis"]
    inside = [f"{folder}/{name}" for folder in readable.packages() for name in names]
    assert any(map(os.path.exists, inside)), "else nothing would be shown"
    assert jail.code(f"PACKAGES = {names}\n{LOOK}").stdout == "{}\n"


def test_code_reads_the_packages_that_are_for_it(jail: Jail) -> None:
    readable_to_code = readable.code_packages(readable.CODE_PACKAGES)
    if not readable_to_code:
        pytest.skip("none of them is installed")
    source = f"""
import os
for path in {readable_to_code!r}:
    if os.path.isdir(path):
        os.listdir(path)
    else:
        open(path, "rb").read(1)
print("all")
"""
    assert jail.code(source).stdout == "all\n"


def test_the_standard_library_is_whole(jail: Jail) -> None:
    source = """
import ctypes, decimal, email, json.tool, lzma, sqlite3, ssl, unittest, xml.dom, zoneinfo
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(3) as pool:
    print(list(pool.map(abs, [1, -2])))
print(len(os.listdir(os.path.dirname(os.__file__))) > 100)
"""
    assert jail.code("import os\n" + source).stdout == "[1, 2]\nTrue\n"


def test_parts_leave_out_packages_inside_the_standard_library() -> None:
    folder = os.path.realpath(sysconfig.get_path("stdlib"))
    assert os.path.join(folder, "json") in readable.parts()
    assert not any("-packages" in path for path in readable.parts())
    assert folder in readable.libraries()
    assert not {"/usr/lib", "/usr/local/lib"} & set(readable.libraries()) or not os.path.isdir(
        f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}"
    )


def test_the_machines_name_is_not_seen_in_a_namespace_of_its_own(jail: Jail) -> None:
    if jail.mode != "j":
        pytest.skip("mode j0 has no namespaces")
    assert jail.code("import os, socket; print(os.uname().nodename, socket.gethostname())").stdout == "jail jail\n"


def test_threading_that_was_loaded_before_any_run_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a `.pth` file loads it when the interpreter starts."""
    if why_not("j0"):
        pytest.skip(why_not("j0"))

    async def work(sandbox: ProcessSandbox):
        return await sandbox.run_code(
            "from concurrent.futures import ThreadPoolExecutor\nprint(list(ThreadPoolExecutor().map(abs, [-1])))"
        )

    monkeypatch.setattr("sandbox.host.zygote_process.START", "import threading; " + START)
    assert run_in("j0", work).stdout == "[1]\n"


def test_a_program_sees_no_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    if why_not("j0"):
        pytest.skip(why_not("j0"))
    source = """
import datetime, time
moment = datetime.datetime(2020, 1, 1)
print(moment.astimezone(datetime.timezone.utc).hour, moment.strftime("%s"), time.strftime("%Z"))
from workflow import AgentNode, Workflow
workflow = Workflow("w").add_node(AgentNode("a", "b"))
"""

    async def work(sandbox: ProcessSandbox):
        return await sandbox.run_program(source, "?", engine=Scripted())

    zone = "import os, time; os.environ['TZ'] = 'America/New_York'; time.tzset(); "
    monkeypatch.setattr("sandbox.host.zygote_process.START", zone + START)
    hour, seconds, _ = run_in("j0", work).output.split()
    assert (hour, seconds) == ("0", "1577836800")
