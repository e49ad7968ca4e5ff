"""The bare mechanism: fork from a warm zygote, put up every wall, run `print(1)`, wait. One after the other.

What `benchmarks.sandbox` holds the sandbox against: the same jails without a host, its messages, clocks and streams.
Prints a JSON list of seconds per run. The folder must be empty, and is the caller's to remove.

    python -m benchmarks.bare_jail j0 200 FOLDER
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import time

from sandbox.jail import Mode, Walls, Zygote, enter_namespaces, fewer_fork_hooks, run_code

LIMITS = {"cpu_s": 30, "memory_mb": 512, "disk_mb": 64}
WARM_UPS = 10


def main(mode: Mode, count: int, folder: str) -> list[float]:
    host, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with fewer_fork_hooks():
        run_code.warm()
    if mode == "j":
        os.environ["METAAGENT_IDS"] = json.dumps([os.geteuid(), os.getegid()])
        host.send(json.dumps({"mapped": False}).encode())
        enter_namespaces(control, "code", [])
    else:
        os.mkdir(f"{folder}/scratch")
    walls = Walls(mode, "code", own_users=False, root="/jail", work=folder, extra=[], base_mb=64)
    zygote = Zygote(control, "code", mode, folder, run_code.run, False, walls, "", contained=False, modules=[])
    gc.collect()
    gc.freeze()
    return [one(zygote, number) for number in range(1, WARM_UPS + count + 1)][WARM_UPS:]


def one(zygote: Zygote, number: int) -> float:
    started = time.perf_counter()
    source = os.memfd_create("source")
    os.pwrite(source, b"print(1)", 0)
    read, write = os.pipe()
    zygote.spawn({"id": number, "limits": LIMITS, "workspace": None}, [source, read, write, write])
    os.close(write)
    printed = os.read(read, 1000)
    os.close(read)
    os.close(source)
    if printed != b"1\n":
        raise SystemExit(f"the jail said {printed!r} instead of 1")
    zygote.running.clear()
    os.wait()
    if zygote.mode == "j0":
        os.rmdir(zygote.scratch_path(number))
    return time.perf_counter() - started


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("j", "j0"):
        raise SystemExit("usage: python -m benchmarks.bare_jail j|j0 COUNT FOLDER")
    stdout, null = os.dup(1), os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):  # what is tried before the first run prints too
        os.dup2(null, fd)
    os.write(stdout, json.dumps(main("j" if sys.argv[1] == "j" else "j0", int(sys.argv[2]), sys.argv[3])).encode())
    os._exit(0)
