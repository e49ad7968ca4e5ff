"""The image's two recipes hold the same: what the Dockerfile copies and links, and what the offline recipe packs.

Whether an image serves runs is for test_containers_engine.py.
"""

import io
import os
import py_compile
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from sandbox.image import rootfs
from sandbox.image.content import CODE_EXTRA, DEVICES, JAIL_ROOT, PACKAGES

DOCKERFILE = (Path(rootfs.__file__).parent / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def packed() -> dict[str, tarfile.TarInfo]:
    target = io.BytesIO()
    rootfs.write_rootfs(target)
    target.seek(0)
    with tarfile.open(fileobj=target) as tar:
        return {member.name.strip("/"): member for member in tar}


def test_the_dockerfile_copies_our_packages() -> None:
    copied = set(re.findall(r"^COPY (\w+) /opt/metaagent/\1$", DOCKERFILE, re.MULTILINE))
    assert set(PACKAGES) <= copied
    assert copied - set(PACKAGES) == {"metaagent"}, "which pip needs in order to install, and removes again"


@pytest.mark.thorough
def test_both_recipes_link_the_root_into_the_jails(packed: dict[str, tarfile.TarInfo]) -> None:
    [names] = re.findall(r"for name in ([\w ]+); do ln -s jail/\$name", DOCKERFILE)
    for name in {"lib64", "opt", "scratch", "bin"}:
        assert name in names.split()
        assert packed[name].issym()
        assert packed[name].linkname.strip("/") == f"{JAIL_ROOT.strip('/')}/{name}"
    [devices] = re.findall(r"for name in ([\w ]+); do : >/top/jail/dev/\$name", DOCKERFILE)
    assert {f"/dev/{name}" for name in devices.split()} == set(DEVICES)


@pytest.mark.thorough
def test_the_offline_recipe_packs_the_packages_and_what_they_need_and_no_more(
    packed: dict[str, tarfile.TarInfo],
) -> None:
    for package in PACKAGES:
        assert f"jail/opt/metaagent/{package}/__init__.py" in packed
    for module in ("RestrictedPython", "pydantic", "greenlet"):
        assert any(f"/site-packages/{module}/" in name for name in packed), module
    assert [name for name in packed if re.search("/(pytest|ruff|metaagent/metaagent)/", name)] == []
    assert {member.uid for member in packed.values()} | {member.gid for member in packed.values()} == {0}


@pytest.mark.thorough
def test_both_recipes_install_what_code_computes_with(
    packed: dict[str, tarfile.TarInfo], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"'/opt/metaagent[{CODE_EXTRA}]'" in DOCKERFILE
    assert any("/site-packages/sympy/" in name for name in packed)
    needs = {"metaagent": ["sympy; extra == 'code'", "not-installed; extra == 'code'", "rich; extra == 'docs'"]}
    monkeypatch.setattr(rootfs.importlib.metadata, "requires", lambda name: needs.get(name, []))
    found = {name.split("/")[-2] for name, _ in rootfs._dependencies(f"metaagent[{CODE_EXTRA}]")}
    assert "sympy" in found
    assert "rich" not in found


@pytest.mark.thorough
def test_both_recipes_hold_bytecode_that_is_not_compared_with_its_source(tmp_path: Path) -> None:
    assert "compileall -q -j 0 --invalidation-mode unchecked-hash /usr/local/lib /opt/metaagent" in DOCKERFILE
    module = tmp_path / "answer.py"
    module.write_text("value = 42\n")
    cached = Path(py_compile.compile(str(module), doraise=True) or "")
    assert rootfs._bytecode(module)[16:] == cached.read_bytes()[16:], "what is cached need not be compiled"
    module.write_text("value = 41\n")
    os.utime(module, (1, 1))  # what is cached is of another time
    (tmp_path / "no.py").write_text("this is no Python\n")
    target = io.BytesIO()
    rootfs.write_rootfs(target, [module, tmp_path / "no.py"])
    target.seek(0)
    caches = f"{JAIL_ROOT[1:]}/opt/metaagent/__pycache__"
    with tarfile.open(fileobj=target) as tar:
        names = tar.getnames()
        file = tar.extractfile(f"{caches}/{cached.name}")
        assert file is not None
        packed = file.read()
    assert not any(name.startswith(f"{caches}/no.") for name in names)
    ours = caches.replace("__pycache__", "sandbox/jail/__pycache__")
    assert f"{ours}/zygote.{sys.implementation.cache_tag}.pyc" in names
    # The interpreter takes it although the source says something else by now, and compiles what it must not compare.
    module.write_text("value = 0\n")
    cached.write_bytes(packed)
    said = subprocess.run(
        [sys.executable, "-c", "import answer; print(answer.value, answer.__cached__)"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert said.split() == ["41", str(cached)]


@pytest.mark.thorough
def test_the_same_content_gives_the_same_bytes() -> None:
    first, second = io.BytesIO(), io.BytesIO()
    rootfs.write_rootfs(first)
    rootfs.write_rootfs(second)
    assert first.getvalue() == second.getvalue()
