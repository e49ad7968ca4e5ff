"""`metaagent doctor`: what works on this machine, what does not, and how to mend it.

It looks, and it tries: forbidden actions in a real jail, and a small program from start to answer. It imports no
heavy package, installs nothing and changes nothing.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from engine import parse_engine
from engine.replay import ReplayEngine, ReplayEntry
from metaagent import cluster_health, docker_health
from metaagent.commands.options import AsJson
from metaagent.terminal import Diagnosis, ExitCode, Item, State, print_diagnosis, print_json, stdout
from sandbox import ProcessSandbox
from sandbox.strength import summary
from workflow.failures import EngineFailed, SandboxUnavailable
from workflow.limits import CodeLimits, Limits

PROBE_SECONDS = 10.0
COMMAND_SECONDS = 5.0
SECRET_VARIABLE = "METAAGENT_DOCTOR_SECRET"

CODE_MODULES = ("numpy", "scipy", "sympy")
TRY_CODE_MODULES = f"""\
for name in {CODE_MODULES}:
    try:
        print(name, __import__(name).__version__)
    except ImportError:
        pass
"""
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "local": ("to run models in this process", ("torch", "transformers", "safetensors")),
    "vllm": ("to serve models on this machine", ("vllm",)),
    "train": ("for metaagent train and sft", ("torch", "transformers", "safetensors", "peft")),
    "code": ("for what agents compute with in code jails", CODE_MODULES),
    "docker": ("for jails in containers", ("docker", "packaging")),
}
"""Name of an extra -> what it is for, and the modules that it brings."""

NAMESPACES_FIX = (
    "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu also "
    "kernel.apparmor_restrict_unprivileged_userns=0; in Docker a seccomp profile that allows them)"
)
TINY_PROGRAM = """\
from workflow import AgentNode, Workflow
workflow = Workflow(name="tiny").add_node(AgentNode(name="Tiny", system_prompt="Answer.", max_turns=1))
"""


async def diagnose(cluster: bool = False, shared: Path | None = None) -> Diagnosis:
    """A cluster is looked at where Ray is installed; its other nodes are asked only for `cluster`."""
    items = [_python(), *_packages(), *_extras(), *await _jail(), *_engines(), *_docker(), _gpu()]
    ok = all(item.state != "broken" for item in items)
    if cluster or _is_there("ray"):
        items += cluster_health.node_items(_ask)
    if cluster:
        items += cluster_health.other_items(shared)
    return Diagnosis(ok=ok, items=items)


def in_the_way(diagnosis: Diagnosis) -> int:
    """How many things are in the way of a cluster, which is not the main job."""
    return sum(item.area == cluster_health.AREA and item.state == "broken" for item in diagnosis.items)


def exit_code(diagnosis: Diagnosis, cluster: bool = False) -> ExitCode:
    return ExitCode.OK if diagnosis.ok and not (cluster and in_the_way(diagnosis)) else ExitCode.BAD


def _python() -> Item:
    version = ".".join(map(str, sys.version_info[:3]))
    detail = f"{version} at {sys.executable}"
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Item(area="Python", name="version", state="ok", detail=detail)
    fix = "make an environment with Python 3.11, 3.12 or 3.13"
    return Item(area="Python", name="version", state="broken", detail=detail, fix=fix)


def _packages() -> list[Item]:
    needed = ("RestrictedPython", "greenlet", "pydantic", "math_verify", "openai", "rich", "typer")
    missing = [name for name in needed if not _is_there(name)]
    if missing:
        detail = f"not installed: {', '.join(missing)}"
        return [Item(area="Python", name="packages", state="broken", detail=detail, fix="pip install metaagent")]
    return [Item(area="Python", name="packages", state="ok", detail=", ".join(map(_with_version, needed)))]


def _extras() -> list[Item]:
    try:
        declared = importlib.metadata.metadata("metaagent").get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        declared = []
    items = []
    for name, (purpose, modules) in EXTRAS.items():
        missing = [module for module in modules if not _is_there(module)]
        if missing:
            install = f'"metaagent[{name}]"' if name in declared else " ".join(missing)
            detail = f"not installed: {', '.join(missing)} ({purpose})"
            fix = f"pip install {install}"
            items.append(Item(area="Extras", name=name, state="gap", detail=detail, fix=fix))
        else:
            detail = ", ".join(map(_with_version, modules))
            items.append(Item(area="Extras", name=name, state="ok", detail=detail))
    return items


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _with_version(module: str) -> str:
    try:
        return f"{module} {importlib.metadata.version(module.replace('_', '-'))}"
    except importlib.metadata.PackageNotFoundError:
        return module


@dataclass(frozen=True)
class Probe:
    """A forbidden action, and the text in its output that gives away that it succeeded."""

    name: str
    code: str
    telltale: str


async def _jail() -> list[Item]:
    try:
        async with ProcessSandbox() as sandbox, _Bait() as bait:
            strength = await sandbox.strength()
            weak = strength.mode == "j0"
            detail = f"{strength.backend}/{strength.mode}" + (f": {strength.reason}" if strength.reason else "")
            state: State = "gap" if weak else "ok"
            fix = f"works, by landlock and seccomp alone; for the stronger mode j {NAMESPACES_FIX}" if weak else ""
            items = [Item(area="Jail", name="strength", state=state, detail=detail, fix=fix)]
            walls = f"{strength.backend}/{strength.mode}: {summary(f'{strength.backend}/{strength.mode}')}"
            items.append(Item(area="Jail", name="walls", state="ok", detail=f"{walls} (docs/sandbox.md)"))
            other = "process/j" if weak else "process/j0"
            detail = f"{other}: {summary(other)} (docs/sandbox.md)"
            items.append(Item(area="Jail", name="other mode", state="ok", detail=detail))
            items += [await _try(sandbox, probe, bait) for probe in bait.probes()]
            items.append(await _run_tiny(sandbox))
            items.append(await _code_modules(sandbox))
            return items
    except SandboxUnavailable as error:
        fix = error.fix or NAMESPACES_FIX
        return [Item(area="Jail", name="strength", state="broken", detail=str(error), fix=fix)]


class _Bait:
    """Things outside the jail that a contained action cannot reach: a file, a folder, a server, a variable."""

    async def __aenter__(self) -> _Bait:
        self.secret = secrets.token_hex(8)
        self._folder = tempfile.TemporaryDirectory(prefix="metaagent-doctor-")
        self.folder = Path(self._folder.name)
        self.folder.chmod(0o777)
        (self.folder / "secret").write_text(self.secret)
        self._server = socket.create_server(("127.0.0.1", 0))
        os.environ[SECRET_VARIABLE] = self.secret
        return self

    async def __aexit__(self, *exception: object) -> None:
        del os.environ[SECRET_VARIABLE]
        self._server.close()
        self._folder.cleanup()

    @property
    def written(self) -> Path:
        return self.folder / "written"

    def probes(self) -> list[Probe]:
        port = self._server.getsockname()[1]
        return [
            Probe("read a file", f"print(open({str(self.folder / 'secret')!r}).read())", self.secret),
            Probe("read passwd", "print(open('/etc/passwd').read())", "root:"),
            Probe("write a file", f"open({str(self.written)!r}, 'w').write('x'); print('written')", "written"),
            Probe(
                "open a socket",
                f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('connected')",
                "connected",
            ),
            Probe("fork", "import os; os.fork(); print('forked')", "forked"),
            Probe(
                "environment",
                "import glob, os; print(dict(os.environ))\n"
                "for path in glob.glob('/proc/*/environ'): print(open(path).read())",
                self.secret,
            ),
        ]


async def _try(sandbox: ProcessSandbox, probe: Probe, bait: _Bait) -> Item:
    """Run a forbidden action in a code jail. Contained is what failed; what succeeded shows its telltale."""
    name = probe.name
    result = await sandbox.run_code(probe.code, limits=CodeLimits(wall_s=PROBE_SECONDS))
    if probe.telltale in result.stdout or bait.written.exists():
        fix = "do not run programs here; report it with the output of `metaagent doctor --json`"
        return Item(area="Jail", name=name, state="broken", detail="NOT contained: it succeeded", fix=fix)
    if result.signal is not None:
        how = f"killed by signal {result.signal}"
    elif result.limit is not None:
        how = f"stopped by the limit {result.limit}"
    elif result.exit_status:
        how = result.stderr.strip().rpartition("\n")[2].partition(":")[0] or f"exit status {result.exit_status}"
    else:
        how = "it found nothing"
    return Item(area="Jail", name=name, state="ok", detail=f"contained ({how})")


async def _run_tiny(sandbox: ProcessSandbox) -> Item:
    """The main job in small: a program in the jail, an agent's reply, an answer that is traced to the agent."""
    reply = r"\boxed{42}"
    engine = ReplayEngine([ReplayEntry(agent="Tiny", reply=reply)])
    run = await sandbox.run_program(TINY_PROGRAM, "?", engine=engine, limits=Limits(wall_s=PROBE_SECONDS))
    if run.answer == reply and run.answer_from == "Tiny":
        detail = f"a program ran from start to answer in {run.duration_s * 1000:.0f} ms"
        return Item(area="Jail", name="run", state="ok", detail=detail)
    detail = f"a program did not come to its answer: {run.failure.message if run.failure else run.answer!r}"
    return Item(area="Jail", name="run", state="broken", detail=detail, fix="see the message")


async def _code_modules(sandbox: ProcessSandbox) -> Item:
    """Which packages code can import in its jail, by importing them there."""
    result = await sandbox.run_code(TRY_CODE_MODULES, limits=CodeLimits(wall_s=60, cpu_s=60))
    found = result.stdout.splitlines()
    missing = [name for name in CODE_MODULES if not any(line.startswith(f"{name} ") for line in found)]
    detail = ", ".join(found) or "the standard library alone"
    if not missing:
        return Item(area="Code", name="imports", state="ok", detail=detail)
    detail += f"; not {', '.join(missing)}"
    return Item(area="Code", name="imports", state="gap", detail=detail, fix='pip install "metaagent[code]"')


def _engines() -> list[Item]:
    items = []
    spec = os.environ.get("METAAGENT_ENGINE", "")
    if not spec:
        fix = "pass --engine openai:MODEL@URL, or set METAAGENT_ENGINE; without one, `design` uses the template bank"
        items.append(Item(area="Engines", name="default", state="gap", detail="none is set", fix=fix))
    else:
        shown = re.sub(r"//[^/@\s]*@", "//***@", spec)
        try:
            parse_engine(spec)
            items.append(Item(area="Engines", name="default", state="ok", detail=f"METAAGENT_ENGINE={shown}"))
        except (ValueError, EngineFailed) as error:
            message, _, fix = str(error).replace(spec, shown).partition(" Fix: ")
            fix = fix or "set METAAGENT_ENGINE to openai:MODEL@URL, or unset it"
            items.append(Item(area="Engines", name="default", state="broken", detail=message, fix=fix))
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    state: State = "ok" if key else "gap"
    detail = "OPENAI_API_KEY is set" if key else "OPENAI_API_KEY is not set"
    fix = "" if key else "set it to use OpenAI's own models; local servers need none"
    items.append(Item(area="Engines", name="openai", state=state, detail=detail, fix=fix))
    return items


def _docker() -> list[Item]:
    return [*docker_health.docker_items(COMMAND_SECONDS), docker_health.leftover_item(COMMAND_SECONDS)]


def _gpu() -> Item:
    path = shutil.which("nvidia-smi")
    fix = "none needed to design and run; models on this machine are faster with one"
    if path is None:
        return Item(area="GPU", name="nvidia", state="gap", detail="no nvidia-smi", fix=fix)
    status, output = _ask([path, "--query-gpu=name,memory.total", "--format=csv,noheader"])
    gpus = [line.strip() for line in output.splitlines() if line.strip()]
    if status == 0 and gpus:
        return Item(area="GPU", name="nvidia", state="ok", detail="; ".join(gpus))
    detail = f"nvidia-smi found no GPU: {gpus[-1] if gpus else 'no answer'}"
    return Item(area="GPU", name="nvidia", state="gap", detail=detail, fix="see what nvidia-smi says")


def _ask(arguments: list[str]) -> tuple[int, str]:
    """Exit status and output of a command. One that cannot start or hangs, or whose children do, counts as failed."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        return 127, str(error)
    with process:
        try:
            output, _ = process.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return 124, f"no answer within {COMMAND_SECONDS:g} s"
    return process.returncode, output.decode(errors="replace")


def main(
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what killed processes left: containers, temporary folders.")
    ] = False,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Look at what training on a cluster needs, and ask all nodes of a Ray here."),
    ] = False,
    shared: Annotated[
        Path | None, typer.Option(metavar="DIR", help="See whether all nodes share this folder; implies --cluster.")
    ] = None,
    as_json: AsJson = False,
) -> ExitCode:
    """See what works on this machine, and how to mend the rest.

    Looks at Python, extras, engines, Docker, GPU and, where Ray is installed, at what a cluster needs; tries forbidden
    actions in a real jail.
    """
    if clean:
        cleaned = docker_health.clean(COMMAND_SECONDS)
        if as_json:
            print_json(cleaned)
        else:
            docker_health.print_cleaned(stdout(), cleaned)
        return docker_health.cleaned_exit_code(cleaned)
    cluster = cluster or shared is not None
    diagnosis = asyncio.run(diagnose(cluster, shared))
    if as_json:
        print_json(diagnosis)
    else:
        print_diagnosis(stdout(), diagnosis)
        if cluster and (count := in_the_way(diagnosis)):
            stdout().print(f"In the way of a cluster: {count}; see what is BROKEN there.", style="bold red")
    return exit_code(diagnosis, cluster)
