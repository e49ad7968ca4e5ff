"""Hostile code in a code jail: unrestricted Python, so the jail alone stands between it and the machine.

One entry or more for each family of attack on modules, resources, channel and kernel. Attacks report what they could
not do as `blocked` and what they could as `ESCAPED`; `Outside` watches from the other side, whatever they report.
"""

import asyncio
import os
from collections.abc import Callable

import pytest
from jails import SHORT, Jail, jailed_processes, until
from outside import Outside

from sandbox import CodeResult

PRELUDE = """
import ctypes, errno, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, action):
    try:
        result = action()
    except BaseException as error:
        print("blocked", what, type(error).__name__, errno.errorcode.get(getattr(error, "errno", 0) or 0, ""))
    else:
        print("ESCAPED", what, repr(result)[:300])
def syscall(number, *args):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result
def buffer(size=64):
    return ctypes.create_string_buffer(size)
HOST, BYSTANDER = @HOST@, @BYSTANDER@
"""

# What is tried, line by line: every one must be blocked.
BLOCKED = {
    "files: the canary by every path": """
fds = [os.open(".", os.O_RDONLY)]
for path in ("@CANARY@", "../" * 30 + "@CANARY@", "/proc/self/root@CANARY@", "/proc/1/root@CANARY@",
             "/proc/@HOST@/root@CANARY@", "/proc/@HOST@/cwd", "/proc/self/cwd/../../../../@CANARY@",
             "/dev/fd/3", "/proc/self/fd/3", "@FOLDER@", "/"):
    attempt(path, lambda: open(path).read())
    attempt(path, lambda: os.open(path[1:], os.O_RDONLY, dir_fd=fds[0]))
attempt("openat2", lambda: syscall(437, -100, b"@CANARY@", struct.pack("QQQ", 0, 0, 0), 24))
attempt("chroot back", lambda: os.chroot("@FOLDER@"))
attempt("handle", lambda: syscall(303, -100, b"@CANARY@", buffer(200), buffer(8), 0))
attempt("sendfile", lambda: os.sendfile(1, os.open("@CANARY@", os.O_RDONLY), 0, 100))
import importlib.machinery
attempt("import", lambda: importlib.machinery.SourceFileLoader("c", "@CANARY@").get_code("c"))
""",
    "files: changing what is outside": """
attempt("write", lambda: open("@VICTIM@", "w"))
attempt("append", lambda: open("@VICTIM@", "a"))
attempt("truncate", lambda: os.truncate("@VICTIM@", 0))
attempt("truncating read", lambda: os.open("@VICTIM@", os.O_RDONLY | os.O_TRUNC))
attempt("create", lambda: open("@FOLDER@/new", "x"))
attempt("unlink", lambda: os.unlink("@VICTIM@"))
attempt("rename", lambda: os.rename("@VICTIM@", "@FOLDER@/other"))
attempt("rename in", lambda: os.rename("@VICTIM@", "victim"))
open("mine", "w").close()
attempt("rename out", lambda: os.rename("mine", "@FOLDER@/mine"))
attempt("exchange", lambda: syscall(316, -100, b"mine", -100, b"@VICTIM@", 2))
attempt("link", lambda: os.link("@VICTIM@", "victim"))
attempt("link out", lambda: os.link("mine", "@FOLDER@/mine"))
attempt("mkdir", lambda: os.mkdir("@FOLDER@/d"))
attempt("chown", lambda: os.chown("@VICTIM@", 12345, 12345))
attempt("setxattr", lambda: os.setxattr("@VICTIM@", "user.x", b"1"))
attempt("mknod", lambda: os.mknod("@FOLDER@/n"))
attempt("lease", lambda: __import__("fcntl").fcntl(os.open(os.__file__, os.O_RDONLY), 1024, 0))
""",
    "files: poisoning the Python of later runs": """
import json, site, sysconfig
for folder in {os.path.dirname(os.__file__), *site.getsitepackages(), sysconfig.get_path("stdlib"), sys.prefix}:
    attempt(folder, lambda: open(folder + "/poison_of_a_test.py", "x"))
    attempt(folder, lambda: os.mkdir(folder + "/poison_of_a_test"))
attempt("json", lambda: open(json.__file__, "a"))
attempt("rename", lambda: os.rename(json.__file__, json.__file__))
attempt("cache", lambda: open(os.path.dirname(json.__file__) + "/__pycache__/poison_of_a_test.pyc", "x"))
attempt("mmap", lambda: __import__("mmap").mmap(os.open(json.__file__, os.O_RDWR), 100))
""",
    "files: links, pipes and devices": """
attempt("symlink", lambda: os.symlink("@CANARY@", "link"))
attempt("symlink of a folder", lambda: os.symlink("/", "root"))
attempt("fifo", lambda: os.mkfifo("fifo"))
attempt("unix socket", lambda: socket.socketpair()[0].bind("sock"))
attempt("device", lambda: os.mknod("device", 0o660 | 0o060000, os.makedev(8, 0)))
for device in ("/dev/mem", "/dev/kmem", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/tty", "/dev/ptmx",
               "/dev/shm/x", "/dev/kmsg", "/dev/net/tun"):
    attempt(device, lambda: open(device, "r+b", 0))
""",
    "environment: the secret of the host": """
for path in ("/proc/self/environ", "/proc/1/environ", "/proc/@HOST@/environ", "/proc/@HOST@/cmdline"):
    attempt(path, lambda: open(path).read())
print(dict(os.environ), sys.orig_argv)
libc.environ
pointer, found = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ"), []
for n in range(100):
    if not pointer[n]:
        break
    found.append(pointer[n])
print(found)
""",
    "network: sockets of every family": """
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK,
               38, 31, 44):  # crypto, bluetooth, XDP
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        attempt((family, kind), lambda: socket.socket(family, kind))
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", @PORT@), 2))
attempt("vsock to the machine's host", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 1024)))
attempt("name lookup", lambda: socket.getaddrinfo("localhost.example", 80))
attempt("url", lambda: __import__("urllib.request").request.urlopen("http://127.0.0.1:@PORT@/", timeout=2))
""",
    "network: what a socket pair can reach": """
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
attempt("datagram to a path", lambda: a.sendto(b"x", "@DATAGRAMS@"))
attempt("datagram to a name", lambda: a.sendto(b"x", "\\0@ABSTRACT@"))
attempt("sendmsg", lambda: a.sendmsg([b"x"], [], 0, "@DATAGRAMS@"))
attempt("connect", lambda: a.connect("@DATAGRAMS@"))
attempt("connect a stream", lambda: socket.socketpair()[0].connect("@STREAM@"))
attempt("connect by name", lambda: socket.socketpair()[0].connect("\\0@ABSTRACT@"))
attempt("bind", lambda: a.bind("\\0taken"))
attempt("descriptors", lambda: socket.send_fds(a, [b"x"], [0]))
attempt("filter", lambda: a.setsockopt(socket.SOL_SOCKET, 26, b"x" * 16))
attempt("other families", lambda: socket.socketpair(socket.AF_VSOCK))
""",
    "processes: fork, exec and relatives": """
import multiprocessing, subprocess
attempt("fork", os.fork)
attempt("vfork", lambda: syscall(58))
attempt("clone", lambda: syscall(56, 17, 0, 0, 0, 0))
attempt("clone into namespaces", lambda: syscall(56, 0x10000000 | 17, 0, 0, 0, 0))
attempt("clone3", lambda: syscall(435, struct.pack("8Q", 0, 0, 0, 0, 17, 0, 0, 0), 64))
attempt("exec", lambda: os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", "@MARK@"]))
attempt("spawn", lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", "1", "@MARK@"], {}))
attempt("subprocess", lambda: subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "@MARK@"]))
attempt("system", lambda: 1 / (os.system("sleep 60 @MARK@") == 0))
attempt("popen", lambda: os.popen("sleep 60 @MARK@").read() or 1 / 0)
attempt("pty", lambda: __import__("pty").fork())
attempt("memfd", lambda: os.memfd_create("x"))
attempt("execveat", lambda: syscall(322, 0, b"", 0, 0, 0x1000))
attempt("multiprocessing", lambda: multiprocessing.Process(target=print).start())
attempt("forkserver", lambda: multiprocessing.get_context("forkserver").Process(target=print).start())
""",
    "processes: a daemon left alive": """
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
attempt("double fork", daemon)
attempt("setsid", os.setsid)
attempt("setpgid", lambda: os.setpgid(0, 0))
import threading
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
""",
    "signals: to the parent, the host and everybody": """
for number in (signal.SIGUSR1, signal.SIGKILL, signal.SIGSTOP):
    attempt("bystander", lambda: os.kill(BYSTANDER, number))
for pid in (HOST, os.getppid(), BYSTANDER, -1, 0, 1, -HOST):
    # Signal 0 only asks whether one may: success would be bad enough, and harms nobody here.
    for number in (signal.SIGUSR1, 0) if pid == HOST else (0,):
        attempt(("kill", pid), lambda: os.kill(pid, number))
        attempt(("tkill", pid), lambda: syscall(200, pid, number))
        attempt(("tgkill", pid), lambda: syscall(234, pid, pid, number))
        attempt(("queue", pid), lambda: syscall(129, pid, number, buffer(128)))
        attempt(("pgrp", pid), lambda: os.killpg(abs(pid), 0))
    attempt(("pidfd", pid), lambda: os.pidfd_open(pid))
""",
    "signals: through the ownership of a descriptor": """
import fcntl
for pid in (HOST, BYSTANDER, os.getppid(), -HOST):
    r, w = os.pipe()
    attempt("owner", lambda: fcntl.fcntl(r, fcntl.F_SETOWN, pid))
    attempt("owner_ex", lambda: fcntl.fcntl(r, 15, struct.pack("ii", 1, pid)))
    attempt("signal", lambda: fcntl.fcntl(r, fcntl.F_SETSIG, signal.SIGUSR1))
    fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(w, b"x")
    a, b = socket.socketpair()
    attempt("ioctl", lambda: fcntl.ioctl(a, 0x8901, struct.pack("i", pid)))  # FIOSETOWN
    attempt("notify", lambda: fcntl.fcntl(os.open(".", os.O_RDONLY), 1026, 1))
""",
    "memory: of the host and of a bystander": """
for pid in (HOST, BYSTANDER, os.getppid()):
    for request in (16, 0x4206, 0):  # attach, seize, traceme
        attempt(("ptrace", pid), lambda: syscall(101, request, pid, 0, 0))
    secret, far = buffer(100), ctypes.c_void_p(@ADDRESS@)
    ours = (ctypes.c_void_p * 2)(ctypes.addressof(secret), 100)
    theirs = (ctypes.c_void_p * 2)(@ADDRESS@, 100)
    here, there = ctypes.addressof(ours), ctypes.addressof(theirs)
    attempt(("readv", pid), lambda: (syscall(310, pid, here, 1, there, 1, 0), secret.raw))
    attempt(("writev", pid), lambda: syscall(311, pid, here, 1, there, 1, 0))
    for name in ("mem", "maps", "root@CANARY@", "fd/0", "ns/mnt", "status", "auxv"):
        attempt((name, pid), lambda: open(f"/proc/{pid}/{name}", "rb").read(10))
    attempt(("kcmp", pid), lambda: syscall(312, pid, os.getpid(), 0, 0, 0))
attempt("own memory by file", lambda: open("/proc/self/mem", "r+b"))
attempt("madvise", lambda: syscall(440, 0, 0, 0, 0, 0))
attempt("getfd", lambda: syscall(438, 0, 0, 0))
""",
    "memory: shared between processes": """
from multiprocessing import shared_memory
attempt("posix", lambda: shared_memory.SharedMemory("x", create=True, size=100))
attempt("sysv", lambda: syscall(29, 1234, 4096, 0o1666))
attempt("semaphore", lambda: syscall(64, 1234, 1, 0o1666))
attempt("message queue", lambda: syscall(68, 1234, 0o1666))
attempt("posix queue", lambda: syscall(240, b"queue", 0o102, 0o666, 0))
attempt("memfd", lambda: syscall(319, b"x", 0))
""",
    "kernel: namespaces and mounts": """
for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x02000000, 0x10020000, 0x80):
    attempt(("unshare", hex(flag)), lambda: syscall(272, flag))
attempt("setns", lambda: syscall(308, 0, 0))
attempt("mount", lambda: syscall(165, b"none", b".", b"tmpfs", 0, 0))
attempt("bind", lambda: syscall(165, b"/", b".", 0, 4096, 0))
attempt("remount writable", lambda: syscall(165, b"none", b"/", 0, 32, 0))
attempt("umount", lambda: syscall(166, b"/", 2))
attempt("pivot_root", lambda: syscall(155, b".", b"."))
attempt("chroot", lambda: os.chroot("."))
attempt("open_tree", lambda: syscall(428, -100, b"/", 1))
attempt("fsopen", lambda: syscall(430, b"tmpfs", 0))
attempt("move_mount", lambda: syscall(429, 0, b"", -100, b"/", 4))
""",
    "kernel: privileges": """
attempt("setuid", lambda: os.setuid(0))
attempt("setresuid", lambda: os.setresuid(0, 0, 0))
attempt("setgroups", lambda: os.setgroups([0]))
attempt("capset", lambda: syscall(126, struct.pack("Ii", 0x20080522, 0), b"\\xff" * 24))
for option in (1, 3, 4, 8, 22, 23, 24, 28, 36, 38, 40, 47, 59, 0x59616d61):
    attempt(("prctl", option), lambda: syscall(157, option, 1, 0, 0, 0))
attempt("seccomp", lambda: syscall(317, 1, 0, 0))
attempt("landlock", lambda: syscall(446, 0, 0))
attempt("keyctl", lambda: syscall(250, 0, -3, 1))
attempt("add_key", lambda: syscall(248, b"user", b"x", b"y", 1, -3))
attempt("personality", lambda: syscall(135, 0x0040000))
attempt("iopl", lambda: syscall(172, 3))
attempt("ldt", lambda: syscall(154, 1, buffer(16), 16))
attempt("hostname", lambda: socket.sethostname(socket.gethostname()))
attempt("clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()))
attempt("module", lambda: syscall(175, b"x", 1, b""))
attempt("kexec", lambda: syscall(246, 0, 0, 0, 0))
attempt("syslog", lambda: syscall(103, 3, buffer(1000), 1000))
""",
    "kernel: rich interfaces": """
attempt("io_uring", lambda: syscall(425, 8, buffer(120)))
attempt("bpf", lambda: syscall(321, 0, buffer(120), 120))
attempt("perf", lambda: syscall(298, buffer(120), 0, -1, -1, 0))
attempt("userfaultfd", lambda: syscall(323, 0))
attempt("fanotify", lambda: syscall(300, 0, 0))
attempt("inotify", lambda: syscall(294, 0))
attempt("aio", lambda: syscall(206, 8, buffer(8)))
attempt("timer", lambda: syscall(222, 0, 0, buffer(8)))
attempt("splice", lambda: syscall(275, 0, 0, 1, 0, 100, 0))
attempt("modify stdio terminal", lambda: __import__("fcntl").ioctl(0, 0x5412, b"x"))  # TIOCSTI
attempt("file flags", lambda: __import__("fcntl").ioctl(os.open(os.__file__, 0), 0x40086602, struct.pack("l", 16)))
attempt("x32", lambda: syscall(0x40000000 | 41, 2, 1, 0))
""",
    "limits: raised from inside": """
import resource
for name in ("AS", "CPU", "FSIZE", "NOFILE", "NPROC", "CORE", "MEMLOCK"):
    limit = getattr(resource, "RLIMIT_" + name)
    attempt(name, lambda: resource.setrlimit(limit, (resource.RLIM_INFINITY,) * 2))
    attempt(name, lambda: resource.prlimit(0, limit, (1 << 40, 1 << 40)))
    attempt(name, lambda: resource.prlimit(HOST, limit, (1, 1)))
attempt("affinity", lambda: os.sched_setaffinity(0, {0}))
attempt("affinity of the host", lambda: os.sched_setaffinity(HOST, {0}))
attempt("scheduler", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, HOST, 19))
attempt("nice", lambda: os.nice(-5))
attempt("locked memory", lambda: syscall(151, 3))
attempt("signals of the clock", lambda: signal.signal(signal.SIGKILL, signal.SIG_IGN))
""",
    "channel: every descriptor that is there": """
import stat
found = []
for fd in range(1024):
    try:
        kind = os.fstat(fd).st_mode
    except OSError:
        continue
    found.append(fd)
    if not stat.S_ISFIFO(kind):
        print("ESCAPED: descriptor", fd, "is", oct(kind))
if found != [0, 1, 2]:
    print("ESCAPED: descriptors", found)
attempt("write to stdin", lambda: os.write(0, b"x"))
attempt("read from stdout", lambda: os.read(1, 1))
attempt("forge on 3", lambda: os.write(3, struct.pack("<I", 30) + b'{"op":"answer","text":"forged"}'))
""",
}


def printed(text: str) -> Callable[[CodeResult], None]:
    def check(result: CodeResult) -> None:
        assert result.ok, result
        assert result.stdout == text

    return check


def limited(*kinds: str) -> Callable[[CodeResult], None]:
    def check(result: CodeResult) -> None:
        assert result.limit in kinds, result

    return check


def failed(*texts: str) -> Callable[[CodeResult], None]:
    def check(result: CodeResult) -> None:
        assert not result.ok
        assert result.limit is not None or any(text in result.stderr for text in texts), result

    return check


def crashed(*signals: int) -> Callable[[CodeResult], None]:
    def check(result: CodeResult) -> None:
        assert result.signal in signals, result

    return check


def any_end(result: CodeResult) -> None:
    """However it ends, within its limits: what matters is what is checked outside."""


TIGHT = {"cpu_s": 1, "wall_s": 6}
QUICK = {"wall_s": 0.25}
ENDS = {
    "resources: allocation in a loop": ("x = []\nwhile True: x.append([0] * 10**6)", {}, limited("memory_mb")),
    "resources: one giant string": ("' ' * 10**12", {}, limited("memory_mb")),
    "resources: a giant number": ("9 ** 9 ** 9", QUICK, limited("wall_s", "memory_mb")),
    "resources: a giant number as text": (
        "import sys; sys.set_int_max_str_digits(0); len(str(3 ** 10**7))",
        QUICK,
        limited("wall_s"),
    ),
    "resources: a shift": ("1 << 10**13", TIGHT, failed("MemoryError", "OverflowError")),
    "resources: backtracking": ("import re; re.match(r'(a|aa)+$', 'a' * 60 + 'b')", QUICK, limited("wall_s")),
    "resources: a long expression to compile": (
        "eval('+'.join(['1'] * 200_000))",
        TIGHT,
        failed("RecursionError", "MemoryError", "too complex"),
    ),
    "resources: deep brackets to compile": (
        "eval('(' * 100_000 + ')' * 100_000)",
        TIGHT,
        failed("MemoryError", "SyntaxError", "too many"),
    ),
    "resources: a constant to fold": ("exec('x = ' + '-' * 200_000 + '1')", TIGHT, failed("Memory", "Recursion")),
    "resources: unbounded recursion": (
        "import sys; sys.setrecursionlimit(10**9)\ndef f(): return [f() for _ in (1,)]\nf()",
        {**QUICK, "memory_mb": 64},
        any_end,
    ),
    "resources: a cyclic repr": (
        "class A:\n def __repr__(self): return repr([self])\nrepr(A())",
        TIGHT,
        failed("RecursionError"),
    ),
    "resources: a zip bomb": (
        "import zlib\nbomb = zlib.compress(bytes(10**7), 9)\nx = []\nwhile True: x.append(zlib.decompress(bomb))",
        {"memory_mb": 64},
        limited("memory_mb"),
    ),
    "resources: a JSON bomb": ("import json; json.loads('[' * 10**6)", TIGHT, failed("RecursionError")),
    "resources: an XML bomb": (
        "import xml.dom.minidom as m\n"
        "e = ''.join(f'<!ENTITY e{n} \"' + f'&e{n-1};' * 10 + '\">' for n in range(1, 12))\n"
        "m.parseString('<!DOCTYPE x [<!ENTITY e0 \"ha\">' + e + ']><x>&e11;</x>')",
        TIGHT,
        failed("amplification", "MemoryError", "not well-formed"),
    ),
    "resources: a thread bomb": (
        "import threading, time\nthreading.stack_size(32768)\n"
        "while True:\n threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        {"wall_s": 0.8},
        any_end,
    ),
    "resources: a fork bomb": (
        "import os\nwhile True:\n try: os.fork()\n except OSError: pass",
        QUICK,
        limited("wall_s"),
    ),
    "resources: descriptors": (
        "import os\nfds = []\ntry:\n while True: fds.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError as e: print(e.errno == 24, len(fds) < 300)",
        {},
        printed("True True\n"),
    ),
    "resources: pipes and socket pairs full of data": (
        "import os, socket\nn = 0\ntry:\n while True:\n  a, b = socket.socketpair(); a.setblocking(False)\n"
        "  try:\n   while True: n += a.send(b'x' * 65536)\n  except BlockingIOError: pass\n"
        "  a.detach(); b.detach()\nexcept OSError as e: print(e.errno == 24, n < 64 << 20)",
        {},
        printed("True True\n"),
    ),
    "resources: the disk": (
        "n = 0\ntry:\n while True:\n  with open(str(n), 'wb') as f: f.write(bytes(1 << 20)); n += 1\n  assert n < 200\n"
        "except (OSError, AssertionError) as e: print(n < 66, type(e).__name__)",
        {},
        any_end,
    ),
    "resources: a sparse file": (
        "f = open('x', 'wb')\ntry: f.truncate(1 << 40); print('grown')\nexcept OSError as e: print('refused')",
        {},
        printed("refused\n"),
    ),
    "resources: a flood of output": ("while True: print('flood ' * 1000)", {}, limited("output_bytes")),
    "resources: a flood of errors": (
        "import os\nwhile True: os.write(2, b'flood ' * 1000)",
        {},
        limited("output_bytes"),
    ),
    "resources: sleeping with all signals ignored": (
        "import signal, time\n"
        "for n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN)\n except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: time.sleep(1000)",
        {"wall_s": 0.5},
        limited("wall_s"),
    ),
    "resources: burning with all signals ignored": (
        "import signal\n"
        "for n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN)\n except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        TIGHT,
        limited("cpu_s"),
    ),
    "resources: an exit that hangs": (
        "import atexit, time\natexit.register(time.sleep, 600)",
        {"wall_s": 0.5},
        limited("wall_s"),
    ),
    "resources: a finaliser that hangs": (
        "class A:\n def __del__(self):\n  while True: pass\na = A()",
        QUICK,
        limited("wall_s"),
    ),
    "memory: a null pointer": ("import ctypes; ctypes.string_at(0)", {}, crashed(11)),
    "memory: a smashed stack": (
        "import ctypes; ctypes.memset(ctypes.addressof(ctypes.create_string_buffer(8)) - 10**6, 65, 10**9)",
        {},
        crashed(11, 6, 7),
    ),
    "memory: marshalled nonsense as code": (
        "import types\nf = lambda: 0\nf.__code__ = f.__code__.replace(co_code=b'\\x64\\xff' * 50, co_consts=())\nf()",
        {},
        any_end,
    ),
    "memory: a pickle that runs code": (
        "import pickle, os\nclass E:\n def __reduce__(self): return os.kill, (@HOST@, 10)\n"
        "try: pickle.loads(pickle.dumps(E()))\nexcept OSError: print('refused')",
        {},
        printed("refused\n"),
    ),
    "channel: exit statuses with a meaning": (
        "import os; os.write(2, b'jail: OSError: no walls'); os._exit(120)",
        {},
        failed("no walls"),
    ),
    "channel: a claim to have run out of memory": (
        "import os; os.write(2, b'MemoryError'); os._exit(121)",
        {},
        limited("memory_mb"),
    ),
    "channel: streams closed and swapped": (
        "import os\nos.dup2(1, 0); os.close(1); os.close(2); os.dup2(0, 2)\nos.write(2, b'through\\n')\nos._exit(0)",
        {},
        any_end,
    ),
    "modules: the interpreter turned inside out": (
        "import sys, builtins, os, json\nsys.modules.clear(); builtins.__dict__.clear()",
        {},
        any_end,
    ),
    "modules: everything shared is changed": (
        "import json, os, gc\njson.dumps = lambda *a: 'poisoned'\nos.read = os.write\n"
        "for o in gc.get_objects():\n"
        " if type(o) is dict and 'OUT_OF_MEMORY' in o: o['OUT_OF_MEMORY'] = 0; o['_status_of'] = print\n"
        "print(json.dumps(1))",
        {},
        printed("poisoned\n"),
    ),
}


def still_works(jail: Jail) -> None:
    """The next run is as if nothing had happened."""
    probe = (
        "import json, os, threading\n"
        "t = threading.Thread(target=lambda: open('probe', 'w').write('x')); t.start(); t.join()\n"
        "print(json.dumps([6 * 7, os.listdir('.'), hasattr(json, 'poison')]))"
    )
    result = jail.code(probe)
    assert (result.ok, result.stdout) == (True, '[42, ["probe"], false]\n'), result

    async def gone() -> None:
        await until(lambda: not jailed_processes(jail.sandbox))

    jail.run(gone())


@pytest.mark.parametrize("name", BLOCKED)
def test_what_is_tried_is_blocked(jail: Jail, outside: Outside, name: str) -> None:
    result = jail.code(outside.fill_in(PRELUDE + BLOCKED[name]), output_bytes=1 << 20)
    assert "ESCAPED" not in result.stdout
    assert "blocked" in result.stdout
    assert result.ok, "each attempt fails by itself"
    outside.check(result.stdout, result.stderr)
    still_works(jail)


@pytest.fixture(scope="module")
def used_up(jail: Jail, outside: Outside) -> dict[str, CodeResult]:
    return jail.run_all(
        {
            name: jail.sandbox.run_code(outside.fill_in(source), limits=SHORT.model_copy(update=limits))
            for name, (source, limits, _) in ENDS.items()
        }
    )


@pytest.mark.parametrize("name", ENDS)
def test_what_is_used_up_is_limited(jail: Jail, outside: Outside, used_up: dict[str, CodeResult], name: str) -> None:
    result = used_up[name]
    ENDS[name][-1](result)
    outside.check(result.stdout, result.stderr)
    still_works(jail)


THREADS = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
started, stacks = 0, []
while started < 6000:
    stacks.append(mmap.mmap(-1, 16384))
    top = ctypes.addressof(ctypes.c_char.from_buffer(stacks[-1])) + 16384 - 64
    sleep = ctypes.cast(libc.sleep, ctypes.c_void_p)
    if libc.clone(sleep, ctypes.c_void_p(top), 0x50F00, ctypes.c_void_p(600)) < 0:
        break
    started += 1
os.write(1, f"{started}".encode())
os._exit(0)
"""


def test_threads_without_the_c_library_are_counted_too(jail: Jail) -> None:
    if jail.mode == "j0":
        pytest.skip("mode j0 counts threads only where runs have users of their own")
    assert 10 < int(jail.code(THREADS).stdout) <= 4096
    still_works(jail)


def test_modes_and_times_outside_cannot_be_set(jail: Jail, outside: Outside) -> None:
    """In mode j0 these calls do nothing and say nothing (landlock does not know them); what counts is the file."""
    code = """
import os
def attempt(change):
    try:
        change()
    except OSError:
        pass
for path in ("@VICTIM@", "@CANARY@", "@FOLDER@"):
    attempt(lambda: os.chmod(path, 0o777))
    attempt(lambda: os.chmod(path, 0))
    attempt(lambda: os.utime(path, (0, 0)))
attempt(lambda: os.fchmod(os.open(os.__file__, os.O_RDONLY), os.stat(os.__file__).st_mode ^ 0o001))
print(oct(os.stat(os.__file__).st_mode), os.stat(os.__file__).st_mtime)
"""
    result = jail.code(outside.fill_in(code))
    outside.check(result.stdout, result.stderr)
    status = os.stat(os.__file__)
    assert result.stdout == f"{oct(status.st_mode)} {status.st_mtime}\n", "unchanged before and after"
    still_works(jail)


def test_many_attackers_at_once_do_not_disturb_a_bystander_run(jail: Jail, outside: Outside) -> None:
    bombs = [
        "while True: pass",
        "x = []\nwhile True: x.append(' ' * 10**6)",
        "import os\nwhile True: os.write(1, b'x' * 65536)",
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "import os\nwhile True:\n try: os.fork()\n except OSError: pass",
    ]
    limits = SHORT.model_copy(update={"wall_s": 0.8, "cpu_s": 1, "memory_mb": 64})

    async def storm() -> tuple[list[CodeResult], list[CodeResult]]:
        attackers = asyncio.gather(*(jail.sandbox.run_code(bombs[n % 5], limits=limits) for n in range(20)))
        await asyncio.sleep(0.2)
        innocents = [await jail.sandbox.run_code("print(6 * 7)", limits=SHORT) for _ in range(3)]
        return innocents, await attackers

    innocents, attackers = jail.run(storm())
    assert [result.stdout for result in innocents] == ["42\n"] * 3
    assert not any(result.ok for result in attackers)
    outside.check()
    still_works(jail)
