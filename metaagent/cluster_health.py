"""What `metaagent doctor` says of a cluster: of this node by looking at it, of all by way of a Ray that runs here.

It imports no Ray and starts none. What nodes are asked, and how, is in `metaagent.cluster_probe`, which runs in a
process of its own.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from metaagent.cluster_probe import Probed
from metaagent.terminal import Item, State

AREA = "Cluster"
RAY = "2.60"
"""The version that this project is tested with."""
PORTS = {6379: ("of the head", "--port"), 8265: ("of the dashboard", "--dashboard-port")}
PORTS |= {52365: ("of the node's agent", "--dashboard-agent-listen-port")}
"""What Ray listens at unless told otherwise -> whose it is, and the option of `ray start` that sets another."""
LEAST_SHARED_MEMORY = 1 << 30
"""Below it vLLM's processes do not fit."""
STORE_SHARE, STORE_ENOUGH = 0.3, 10 * 10**9
"""Ray keeps its objects in /dev/shm, 30 % of the memory; where less is free, and less than 10 GB, on the disk."""
OPEN_FILES = 8192
"""What Ray recommends at least. It raises the soft limit itself, as far as the hard one allows."""
PROBE_S = 240.0
SHARE = "name a folder that all nodes share (NFS, Lustre), mounted at the same path on each"


def node_items(ask: Callable[[list[str]], tuple[int, str]]) -> Iterator[Item]:
    """This node alone. `ask` gives exit status and output of a command."""
    addresses = ray_addresses()
    yield _ray()
    yield _head(addresses)
    yield _token()
    yield _ports(bool(addresses))
    yield _shared_memory()
    yield _open_files()
    yield _gpus(ask)
    yield _allocator()


def other_items(shared: Path | None) -> Iterator[Item]:
    """The nodes of the Ray that runs here, together."""
    addresses = ray_addresses()
    installed = importlib.util.find_spec("ray") is not None
    if not installed or not addresses:
        why = f"not tried: {'no Ray runs here' if installed else 'Ray is not installed'}"
        yield _item("nodes", "gap", why, "start one (docs/cluster.md), then `metaagent doctor --cluster` again")
        if shared is not None:
            yield _seen_here(shared)
        return
    if shared is not None and (here := _seen_here(shared)).state != "ok":
        yield here
        shared = None
    found = _probed(addresses[0], shared)
    if isinstance(found, str):
        yield _item("nodes", "broken", found, "see `ray status`, with the token of this Ray (docs/cluster.md)")
        return
    yield _nodes(found)
    if shared is not None:
        yield _seen(shared, found)
    yield _nccl(found)


def _item(name: str, state: State, detail: str, fix: str = "") -> Item:
    return Item(area=AREA, name=name, state=state, detail=detail, fix=fix)


# This node


def _ray() -> Item:
    if importlib.util.find_spec("ray") is None:
        return _item("ray", "broken", "Ray is not installed", 'pip install "metaagent[cluster]"')
    version = importlib.metadata.version("ray")
    if version.startswith(f"{RAY}."):
        return _item("ray", "ok", f"Ray {version}")
    detail = f"Ray {version}, where {RAY} is what was tested; all nodes need the same one"
    return _item("ray", "gap", detail, f'pip install "ray[default]=={RAY}.0"')


def ray_addresses() -> list[str]:
    """HOST:PORT of the Rays that run on this node, found as `cluster.address=auto` does: in the command lines of their
    raylets. What RAY_ADDRESS names goes first, as Ray has it."""
    found = [os.environ["RAY_ADDRESS"]] if os.environ.get("RAY_ADDRESS", "auto") != "auto" else []
    for process in Path("/proc").iterdir():
        try:
            words = (
                (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if process.name.isdecimal()
                else []
            )
        except OSError:
            continue  # it has ended
        if words and Path(words[0]).name == "raylet":
            found += [word.partition("=")[2] for word in words if word.startswith("--gcs-address=")]
    return list(dict.fromkeys(filter(None, found)))


def _head(addresses: Sequence[str]) -> Item:
    if not addresses:
        fix = "`ray start --head` (docs/cluster.md); with cluster.address=local a run starts one for itself"
        return _item("head", "gap", "no Ray runs here, so that cluster.address=auto finds none", fix)
    if len(addresses) > 1:
        fix = "say which: cluster.address=HOST:PORT, or RAY_ADDRESS"
        return _item("head", "gap", f"several Rays run here: {', '.join(addresses)}", fix)
    host, _, port = addresses[0].rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except (OSError, ValueError, OverflowError) as error:
        detail = f"a Ray runs here whose head {addresses[0]} does not answer: {error}"
        return _item("head", "broken", detail, "see that the head runs, and that no firewall is between")
    return _item("head", "ok", f"{addresses[0]}, which cluster.address=auto finds")


def _token() -> Item:
    mode, path = os.environ.get("RAY_AUTH_MODE", ""), Path("~/.ray/auth_token").expanduser()
    make = "`ray get-auth-token --generate`, copy ~/.ray/auth_token to all nodes, export RAY_AUTH_MODE=token"
    if mode == "disabled":
        detail = "RAY_AUTH_MODE=disabled: whoever reaches Ray's ports runs code here"
        return _item("token", "gap", detail, make)
    if token := os.environ.get("RAY_AUTH_TOKEN", ""):
        return _item("token", "ok", f"in RAY_AUTH_TOKEN, {_digest(token)}")
    try:
        token = path.read_text(encoding="utf-8").strip()
        # Ray writes it so that others may read it, as far as they come to it.
        is_open = path.stat().st_mode & 0o044 and all(each.stat().st_mode & 0o011 for each in path.parents)
    except OSError:
        detail = "no ~/.ray/auth_token: a Ray that is started now lets everybody in who reaches its ports"
        return _item("token", "gap", detail, make)
    except UnicodeDecodeError:
        token, is_open = "", False
    if not token:
        return _item("token", "broken", "~/.ray/auth_token holds no token", f"remove it, then {make}")
    if is_open:
        return _item("token", "gap", "others may read ~/.ray/auth_token", "chmod 600 ~/.ray/auth_token")
    detail = f"~/.ray/auth_token, {_digest(token)}"
    if mode != "token":
        fix = "export RAY_AUTH_MODE=token, which `ray start --address`, `ray status` and `ray job` need"
        return _item("token", "gap", f"{detail}; RAY_AUTH_MODE is not set", fix)
    return _item("token", "ok", detail)


def _digest(token: str) -> str:
    """What tells two tokens apart and gives none away."""
    return f"sha256 {hashlib.sha256(token.encode()).hexdigest()[:8]}...: compare it between nodes"


def _ports(runs_here: bool) -> Item:
    taken = [port for port in PORTS if not _is_free(port)]
    if not taken:
        return _item("ports", "ok", f"{', '.join(map(str, PORTS))} are free")
    shown = ", ".join(f"{port} ({PORTS[port][0]})" for port in taken)
    if runs_here:
        return _item("ports", "ok", f"taken: {shown}; a Ray runs here")
    options = " ".join(f"{PORTS[port][1]} PORT" for port in taken)
    return _item("ports", "broken", f"taken by something else: {shown}", f"end it, or `ray start --head {options}`")


def _is_free(port: int) -> bool:
    with socket.socket() as probing:
        probing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what has just been closed is free
        try:
            probing.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def _shared_memory() -> Item:
    fix = "in Docker `--shm-size=16g`; else `mount -o remount,size=16g /dev/shm`"
    try:
        size = shutil.disk_usage("/dev/shm")
    except OSError as error:
        return _item("shared memory", "broken", f"/dev/shm: {error.strerror}", fix)
    detail = f"/dev/shm has {size.free / 2**30:.1f} of {size.total / 2**30:.1f} GiB free"
    if size.free < LEAST_SHARED_MEMORY:
        return _item("shared memory", "broken", f"{detail}, and vLLM's processes need one", fix)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    wanted = min(STORE_SHARE * memory, STORE_ENOUGH)
    if size.free < wanted:
        detail += f"; below {wanted / 2**30:.1f} Ray keeps its objects on the disk"
        return _item("shared memory", "gap", detail, fix)
    return _item("shared memory", "ok", detail)


def _open_files() -> Item:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = [("unlimited" if each == resource.RLIM_INFINITY else str(each)) for each in (soft, hard)]
    detail = shown[0] if soft == hard else f"{shown[0]}, which Ray raises up to {shown[1]}"
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES:
        fix = "`ulimit -Hn 65536` as root before `ray start`; in Docker `--ulimit nofile=65536`"
        return _item("open files", "broken", f"{detail}; Ray needs {OPEN_FILES}", fix)
    return _item("open files", "ok", detail)


def _gpus(ask: Callable[[list[str]], tuple[int, str]]) -> Item:
    fix = "cluster.gpus_per_node=0 computes on CPUs"
    if (path := shutil.which("nvidia-smi")) is None:
        return _item("GPUs", "gap", "no nvidia-smi", fix)
    status, output = ask([path, "--query-gpu=name,uuid", "--format=csv,noheader"])
    names = [line.rpartition(",")[0].strip() for line in output.splitlines() if "GPU-" in line]
    if status or not names:
        return _item("GPUs", "gap", f"nvidia-smi names none: {(output.splitlines() or ['no answer'])[-1]}", fix)
    kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    return _item("GPUs", "ok", kinds if hidden is None else f"{kinds}; CUDA_VISIBLE_DEVICES={hidden}")


def _allocator() -> Item:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if "expandable_segments:true" in os.environ.get(name, "").replace(" ", "").lower():
            detail = f"{name} has expandable_segments: such memory cannot be shared over CUDA IPC"
            return _item("allocator", "broken", detail, f"unset {name} before `ray start`")
    return _item("allocator", "ok", "PyTorch's own, whose memory CUDA IPC can share")


# All nodes


def _probed(address: str, shared: Path | None) -> Probed | str:
    """What the nodes say, or why they could not be asked."""
    words = [sys.executable, "-m", "metaagent.cluster_probe", address]
    words += [] if shared is None else ["--shared", str(shared)]
    environment = dict(os.environ)
    if Path("~/.ray/auth_token").expanduser().is_file():
        environment.setdefault("RAY_AUTH_MODE", "token")
    try:
        ended = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the Ray at {address} gave no answer within {PROBE_S:g} s"
    try:
        return Probed.model_validate_json((ended.stdout.splitlines() or [""])[-1])
    except ValidationError:
        said = [line for line in ended.stderr.splitlines() if line.strip()]
        return f"the Ray at {address} cannot be asked: {said[-1] if said else f'exit status {ended.returncode}'}"


def _nodes(found: Probed) -> Item:
    silent = [f"{node.address}: {node.silent}" for node in found.nodes if node.silent]
    if silent:
        return _item("nodes", "broken", "; ".join(silent), "see `ray status` and the node's log in /tmp/ray")
    counts = f"{len(found.nodes)} with {sum(node.gpus for node in found.nodes)} GPUs"
    first = found.nodes[0]
    unlike = [
        f"{node.address} has {name} {theirs or 'not at all'}, {first.address} {ours or 'not at all'}"
        for node in found.nodes[1:]
        for name, ours, theirs in _differences(
            first.versions | {"Python": first.python}, node.versions | {"Python": node.python}
        )
    ]
    if unlike:
        return _item("nodes", "broken", f"{counts}; {'; '.join(unlike)}", "install the same versions on all nodes")
    gpus = sorted({node.gpus for node in found.nodes})
    detail = f"{counts}, all with the same versions"
    if len(gpus) > 1:
        fix = f"cluster.gpus_per_node={gpus[0] or gpus[1]}, which nodes with fewer are not used for"
        return _item("nodes", "gap", f"{detail}; nodes have {' or '.join(map(str, gpus))} GPUs", fix)
    return _item("nodes", "ok", detail)


def _differences(one: dict[str, str], other: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in sorted(one.keys() | other.keys()):
        if one.get(name) != other.get(name):
            yield name, one.get(name, ""), other.get(name, "")


def _seen_here(shared: Path) -> Item:
    """By this process alone."""
    try:
        trial = shared / f".metaagent-doctor-{os.getpid()}"
        trial.write_text("", encoding="utf-8")
        trial.unlink()
    except OSError as error:
        return _item("shared folder", "broken", f"{shared}: {error.strerror}", SHARE)
    return _item("shared folder", "ok", f"{shared} can be written here; other nodes were not asked")


def _seen(shared: Path, found: Probed) -> Item:
    wrong = [f"{node.address}: {node.shared}" for node in found.nodes if node.shared and not node.silent]
    if wrong:
        return _item("shared folder", "broken", f"{shared} is not the same everywhere: {'; '.join(wrong)}", SHARE)
    answered = sum(not node.silent for node in found.nodes)
    return _item("shared folder", "ok", f"{shared} is seen and written by {answered} nodes")


def _nccl(found: Probed) -> Item:
    if found.nccl:
        return _item("NCCL", "ok", found.nccl)
    if found.nccl_failed:
        fix = "NCCL_DEBUG=INFO says more; NCCL_SOCKET_IFNAME names the network's interface"
        return _item("NCCL", "broken", found.nccl_failed, fix)
    fix = "none needed on one node; else start Ray on nodes with GPUs"
    return _item("NCCL", "gap", f"not tried: {found.nccl_left_out}", fix)
