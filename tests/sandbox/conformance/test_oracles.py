"""The oracles of the corpus notice: attacks made without a jail, or in a weakened one, do not count as contained."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench import Bench
from grader import passed_tests

from engine.session import Run
from sandbox import CodeResult, ProcessSandbox
from sandbox.conformance.attacks import ATTACKS, ESCAPED, Attack
from sandbox.conformance.backends import BACKENDS
from sandbox.conformance.contain import SIX, contain, judge_channel, judge_code, judge_program, judge_unguarded
from sandbox.conformance.outside import Outside
from sandbox.conformance.scripted import Scripted, workflow_of
from sandbox.conformance.subject import Subject
from sandbox.host.zygote_client import ZygoteClient
from sandbox.jail.walls import Kind, Mode


@pytest.fixture
def watched() -> Iterator[Outside]:
    outside = Outside()
    yield outside
    outside.close()


def connect(family: int, address: object) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.connect(address)  # type: ignore[arg-type]


def send_datagram(outside: Outside) -> None:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pair[0].sendto(b"hello", str(outside.folder / "datagrams"))
    for sock in pair:
        sock.close()


def signal_this_process(outside: Outside) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.01)


def stop(outside: Outside) -> None:
    outside.bystander.send_signal(signal.SIGSTOP)
    time.sleep(0.05)


def kill(outside: Outside) -> None:
    outside.bystander.kill()
    outside.bystander.wait(5)


DEEDS: dict[str, Callable[[Outside], object]] = {
    "chmod": lambda outside: outside.canary.chmod(0o600),
    "utime": lambda outside: os.utime(outside.victim, (0, 0)),
    "write": lambda outside: outside.victim.write_text("changed"),
    "create": lambda outside: (outside.folder / "new").touch(),
    "delete": lambda outside: outside.victim.unlink(),
    "link": lambda outside: os.link(outside.canary, outside.folder / "link"),
    "tcp": lambda outside: connect(socket.AF_INET, outside.tcp.getsockname()),
    "unix": lambda outside: connect(socket.AF_UNIX, outside.unix.getsockname()),
    "abstract": lambda outside: connect(socket.AF_UNIX, outside.abstract.getsockname()),
    "datagram": send_datagram,
    "signal": signal_this_process,
    "stop": stop,
    "kill": kill,
}


@pytest.mark.parametrize("name", DEEDS)
def test_a_deed_is_noticed_once(watched: Outside, name: str) -> None:
    assert watched.noticed("nothing yet") == []
    DEEDS[name](watched)
    assert len(watched.noticed("done")) == 1
    assert watched.noticed("and then nothing more") == []


def test_a_leaked_secret_is_noticed(watched: Outside) -> None:
    for place in (watched.canary.read_text(), os.environ[watched.variable]):
        assert watched.noticed(f"look: {place}") == ["the secret came out"]


def test_the_bystanders_memory_holds_the_secret(watched: Outside) -> None:
    with open(f"/proc/{watched.bystander.pid}/mem", "rb") as memory:
        memory.seek(watched.address)
        assert watched.secret.encode() in memory.read(200)


def test_a_started_process_is_noticed_and_ended(watched: Outside) -> None:
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", watched.mark])
    deadline = time.monotonic() + 10
    while started.pid not in watched.started_processes():
        assert time.monotonic() < deadline
    assert any("process was started" in text for text in watched.noticed())
    assert started.wait(5) == -signal.SIGKILL


# The attacks of the corpus, where nothing holds them


@pytest.mark.thorough
@pytest.mark.parametrize(
    "attack",
    [attack for attack in ATTACKS if attack.control and attack.kind in ("code", "unguarded")],
    ids=lambda attack: attack.id,
)
def test_code_without_a_jail_is_not_contained(watched: Outside, tmp_path: Path, attack: Attack) -> None:
    with (tmp_path / "said").open("w+") as said:  # a pipe would be held open by what it starts
        done = subprocess.run(
            [sys.executable, "-u", "-c", watched.fill_in(attack.source)],
            stdout=said,
            stderr=said,
            timeout=60,
            cwd=tmp_path,
        )
        said.seek(0)
        text = said.read()
    if "ENOSYS" in text and ESCAPED not in text:
        pytest.skip(f"this kernel has no such thing: {text}")
    result = CodeResult(exit_status=done.returncode, stdout=text, stderr="", duration_s=0)
    assert judge_code(attack, result) + watched.noticed(text)


EVERY_PROGRAM = """
import contextlib, io, json, sys
got = {}
for name, source in json.load(sys.stdin).items():
    kept = []
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            names = {"keep": lambda *loot: kept.append(loot), "__name__": "__main__", "question": "q"}
            exec(compile(source, "x", "exec"), names)
        except BaseException as error:
            got[name] = repr(error)
    if kept or "ESCAPED" in said.getvalue():
        got[name] = "ESCAPED"
json.dump(got, sys.stdout)
"""


def test_programs_without_policy_and_jail_are_not_contained(watched: Outside, tmp_path: Path) -> None:
    """Each program of the corpus that claims to be an attack gets what it wants in plain Python."""
    claims = [attack for attack in ATTACKS if attack.kind == "program" and attack.control]
    assert len(claims) > 100
    sources = {attack.id: watched.fill_in(attack.source) for attack in claims}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EVERY_PROGRAM],
        input=json.dumps(sources), capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert {attack.id: got.get(attack.id) for attack in claims if got.get(attack.id) != ESCAPED} == {}


NAIVE_GRADER = """
import builtins, json, operator, sys
question = "assert square(3) == 9"  # as files of tests are read

def verdict(passed):
    print(json.dumps({"test": "pass" if passed else "fail", "detail": ""}))

def compare(function, argument, expected):
    got = function(argument)
    return got == expected

def asserted(names):
    try:
        exec("assert square(3) == 9", names)
    except AssertionError:
        return False
    return True

def called(names):
    return compare(names["square"], 3, 9)

def mapped(names):
    return builtins.all(map(operator.eq, [names["square"](3)], [9]))

def as_json(names):
    return json.dumps(names["square"](3)) == json.dumps(9)

names = {"__name__": "solution"}
exec(sys.argv[1], names)
verdict({"asserted": asserted, "called": called, "mapped": mapped, "as_json": as_json}[sys.argv[2]](names))
"""
STALLS = {"a flood instead of an answer", "memory instead of an answer", "sleep instead of an answer"}
"""They want to break the grader, not to pass."""
GUESSES = {"a nonce guessed", "asserts switched off", "stdin read ahead"}
"""No grader this simple falls for them."""


@pytest.mark.parametrize(
    "attack",
    [
        each
        for each in ATTACKS
        if each.kind == "grade" and each.name not in STALLS | GUESSES and each.family != "hostile text"
    ],
    ids=lambda a: a.id,
)
def test_a_grader_in_the_process_of_the_solution_passes_wrong_ones(tmp_path: Path, attack: Attack) -> None:
    """Each wrong solution of the corpus passes a test where a grader shares its process and believes what it prints."""
    (tmp_path / "tests.py").write_text("assert square(3) == 9\n")
    fell_for_it = []
    for way in ("asserted", "called", "mapped", "as_json"):
        done = subprocess.run(
            [sys.executable, "-c", NAIVE_GRADER, attack.source, way],
            capture_output=True, text=True, timeout=60, cwd=tmp_path,
        )  # fmt: skip
        said = [line for line in done.stdout.splitlines() if '"test": ' in line]
        fell_for_it.append('"pass"' in said[0] if said else done.returncode == 0)
    assert any(fell_for_it), (done.stdout, done.stderr)


class _WithoutSeccomp(ProcessSandbox):
    """Its code runs in mode j0 with no filter for system calls."""

    async def _start(self, kind: Kind, mode: Mode, preload: tuple[str, ...]) -> ZygoteClient:
        return await super()._start(kind, mode, ("no_seccomp",) if kind == "code" else preload)


def test_code_in_a_jail_without_seccomp_is_not_contained(
    any_mode: Mode, watched: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real jail less one wall: what that wall alone keeps in gets out, and is noticed from outside."""
    (tmp_path / "no_seccomp.py").write_text(
        "from sandbox.jail import seccomp\nseccomp.install = lambda program: ('nothing', len, ((),))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    names = {"network: a listening socket", "network: what a socket pair can reach", "processes: fork and clone",
             "shared memory: posix"}  # fmt: skip
    attacks = [attack for attack in ATTACKS if attack.kind == "code" and f"{attack.family}: {attack.name}" in names]
    assert len(attacks) == len(names)

    async def attempt() -> list[str]:
        async with _WithoutSeccomp(mode="j0") as sandbox:
            verdicts = await contain(Subject(BACKENDS[-1], sandbox), attacks, watched)
        reached = next(verdict for verdict in verdicts if verdict.attack.name == "a listening socket")
        assert any("somebody connected" in escape for escape in reached.escapes)
        return [verdict.attack.id for verdict in verdicts if verdict.contained]

    assert asyncio.run(attempt()) == []


# Judges


FINE = CodeResult(exit_status=0, stdout="", stderr="", duration_s=0.1)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
def test_an_attack_that_says_that_it_escaped_is_believed(bare_run: Run, attack: Attack) -> None:
    said = FINE.model_copy(update={"stdout": f"blocked\n{ESCAPED}\n"})
    run = bare_run.model_copy(update={"output": f"blocked\n{ESCAPED}\n"})
    match attack.kind:
        case "code":
            assert judge_code(attack, said)
            assert judge_code(attack, FINE.model_copy(update={"duration_s": 1e4}))
            if attack.ends and "ok" not in attack.ends:
                assert judge_code(attack, FINE), "it ended as if nothing had stopped it"
        case "program":
            if "answer" not in attack.ends:
                assert judge_program(attack, run)
                assert judge_program(attack, bare_run), "it ended as if nothing had stopped it"
        case "unguarded":
            assert judge_unguarded(attack, run)
            assert judge_program(attack, bare_run), "the policy did not refuse it"
        case "channel":
            forged = bare_run.model_copy(update={"answer": "\\boxed{7}", "answer_from": "a"})
            assert judge_channel(attack, forged)


@pytest.fixture(scope="session")
def bare_run(any_mode: Mode) -> Run:
    """An honest run."""

    async def honest() -> Run:
        async with ProcessSandbox(mode=any_mode) as sandbox:
            return await sandbox.run_program(workflow_of(), "6 * 7?", engine=Scripted(SIX))

    return asyncio.run(honest())


class _Changed:
    """A sandbox whose next program finds a shared value changed, and whose next code finds a file."""

    def __init__(self, sandbox: ProcessSandbox) -> None:
        self._sandbox = sandbox

    async def run_program(self, source: str, *args: object, **options: object) -> Run:
        changed = source.replace("math.pi", "math.e")
        return await self._sandbox.run_program(changed, *args, **options)  # type: ignore[arg-type]

    async def run_code(self, code: str, **options: object) -> CodeResult:
        left = textwrap.dedent("open('left', 'w').close()\n") + code
        return await self._sandbox.run_code(left, **options)  # type: ignore[arg-type]


def test_what_an_attack_changed_for_the_next_run_is_noticed(any_mode: Mode, watched: Outside) -> None:
    attacks = [
        next(attack for attack in ATTACKS if attack.kind == "program" and attack.name == "question.x = 1"),
        next(attack for attack in ATTACKS if attack.kind == "code" and attack.name == "sockets of every family"),
    ]

    async def attempt() -> list[tuple[str, ...]]:
        async with ProcessSandbox(mode=any_mode) as sandbox:
            subject = Subject(BACKENDS[-1], _Changed(sandbox))  # type: ignore[arg-type]
            return [verdict.escapes for verdict in await contain(subject, attacks, watched)]

    program, code = asyncio.run(attempt())
    assert any("the next program differs" in text for text in program)
    assert any("the next run of code differs" in text for text in code)


def test_a_right_solution_passes_its_tests_and_so_would_a_forged_one(bench: Bench, watched: Outside) -> None:
    right = replace(
        next(attack for attack in ATTACKS if attack.kind == "grade"), source="def square(x): return x * x\n"
    )
    [verdict] = bench.run(contain(bench.subject, [right], watched, passed_tests))
    assert verdict.escapes == ("it passed 5 tests",)
