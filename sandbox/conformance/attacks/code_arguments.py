# ruff: noqa: E501  (hostile one-liners)
"""Code that makes system calls with the arguments that they would have in earnest, and asks about what it shares with
others: processes, clocks, pages, caches. All of it must be blocked.
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import Attack, attempts

OTHERS = {
    "their clocks": """
for pid in (HOST, BYSTANDER):
    clock = ~pid << 3 | 2
    attempt(("time", pid), lambda: time.clock_gettime(clock))
    attempt(("resolution", pid), lambda: syscall(229, clock, buffer()))
    attempt(("sleep", pid), lambda: syscall(230, clock, 1, struct.pack("qq", 0, 1), 0))
""",
    "who there is, by clocks": """
def who():
    found = []
    for pid in range(1, 5000):
        try:
            time.clock_gettime(~pid << 3 | 2)
        except OSError:
            continue
        found.append(pid)
    return found or 1 / 0
attempt("a list", who)
""",
    "a clock of a thread": """
import threading
attempt("its own", lambda: time.clock_gettime(~threading.get_native_id() << 3 | 6))
attempt("the host's", lambda: time.clock_gettime(~HOST << 3 | 6))
attempt("until it has computed", lambda: syscall(230, ~HOST << 3 | 6, 1, struct.pack("qq", 0, 1), 0))
""",
    "how they are scheduled": """
for pid in (HOST, BYSTANDER):
    attempt(("policy", pid), lambda: os.sched_getscheduler(pid))
    attempt(("parameters", pid), lambda: os.sched_getparam(pid))
    attempt(("processors", pid), lambda: os.sched_getaffinity(pid))
    attempt(("attributes", pid), lambda: syscall(315, pid, buffer(), 56, 0))
    attempt(("interval", pid), lambda: os.sched_rr_get_interval(pid))
    attempt(("niceness", pid), lambda: os.getpriority(os.PRIO_PROCESS, pid))
    attempt(("niceness of its group", pid), lambda: os.getpriority(os.PRIO_PGRP, os.getpgid(pid)))
    attempt(("disk priority", pid), lambda: syscall(252, 1, pid))
""",
    "what they belong to": """
for pid in (HOST, BYSTANDER):
    attempt(("group", pid), lambda: os.getpgid(pid))
    attempt(("session", pid), lambda: os.getsid(pid))
    attempt(("limits", pid), lambda: syscall(302, pid, 7, 0, buffer()))
    attempt(("robust list", pid), lambda: syscall(274, pid, buffer(8), buffer(8)))
    attempt(("descriptor", pid), lambda: os.pidfd_open(pid))
""",
    "descriptors of processes": """
import select
fd = []
attempt("open", lambda: fd.append(os.pidfd_open(BYSTANDER)) or fd)
attempt("a thread's", lambda: syscall(434, BYSTANDER, 0x80))
attempt("its end", lambda: syscall(247, 3, fd[0], buffer(128), 0x5, 0))
attempt("signal", lambda: signal.pidfd_send_signal(fd[0], 0))
attempt("its descriptors", lambda: syscall(438, fd[0], 1, 0))
attempt("its namespaces", lambda: syscall(308, fd[0], 0x40000000))
attempt("its memory", lambda: syscall(448, fd[0], 0))
""",
}
SHARED_PAGES = {
    "a waker": """
page = ctypes.cast(libc.strlen, ctypes.c_void_p).value & -4096
attempt("wake", lambda: syscall(202, page, 1, 1, 0, 0, 0))
attempt("wake by bits", lambda: syscall(202, page, 10, 1, 0, 0, -1))
attempt("requeue", lambda: syscall(202, page, 3, 1, 1, page + 8, 0))
""",
    "a waiter": """
page = ctypes.cast(libc.strlen, ctypes.c_void_p).value & -4096
value = ctypes.c_uint.from_address(page).value
def wait(operation):
    start = time.monotonic()
    try:
        return syscall(202, page, operation, value, struct.pack("qq", 0, 50_000_000), 0, -1)  # woken by another
    except OSError:
        return time.monotonic() - start > 0.04 or 1 / 0
attempt("wait", lambda: wait(0))
attempt("vectors", lambda: syscall(449, struct.pack("QQII", value, page, 2, 0), 1, 0, struct.pack("qq", 0, 1), 1))
attempt("the newer call", lambda: syscall(454, page, -1, 1, 2))
""",
    "which pages are in memory": """
page = ctypes.cast(libc.strlen, ctypes.c_void_p).value & -4096
attempt("mincore", lambda: syscall(27, page, 4096, buffer(8)))
fd = os.open(os.__file__, os.O_RDONLY)
attempt("cachestat", lambda: syscall(451, fd, struct.pack("QQ", 0, 0), buffer(40), 0))
attempt("without waiting", lambda: os.preadv(fd, [bytearray(10)], 0, os.RWF_NOWAIT))
attempt("ahead", lambda: syscall(187, fd, 0, 4096))
attempt("where they are", lambda: syscall(279, 0, 1, struct.pack("Q", page), 0, buffer(8), 0))
""",
    "pages kept and merged": """
area = buffer(8192)
start = ctypes.addressof(area) + 4095 & -4096
attempt("locked", lambda: syscall(149, start, 4096))
attempt("locked on fault", lambda: syscall(325, start, 4096, 1))
attempt("secret", lambda: syscall(447, 0))
attempt("file in memory", lambda: os.memfd_create("x", 2))
attempt("huge file in memory", lambda: os.memfd_create("x", 4))
""",
}
KEYS = {
    "added and read": """
key = []
attempt("add", lambda: key.append(syscall(248, b"user", b"planted", b"secret", 6, -3)) or key)
attempt("add for the session", lambda: syscall(248, b"user", b"planted", b"secret", 6, -2))
attempt("read", lambda: syscall(250, 11, key[0], buffer(), 64, 0))
attempt("describe", lambda: syscall(250, 6, key[0], buffer(), 64, 0))
attempt("link to others'", lambda: syscall(250, 8, key[0], -4, 0, 0))
""",
    "rings": """
for ring in (-1, -2, -3, -4, -5):
    attempt(("made", ring), lambda: syscall(250, 0, ring, 1, 0, 0))
attempt("a session of its own", lambda: syscall(250, 1, b"planted", 0, 0, 0))
attempt("a persistent one", lambda: syscall(250, 22, -1, -3, 0, 0))
attempt("capabilities", lambda: syscall(250, 31, buffer(), 64, 0, 0))
attempt("security label", lambda: syscall(250, 17, -3, buffer(), 64, 0))
""",
    "requested of a helper": """
attempt("request", lambda: syscall(249, b"user", b"planted", 0, -3))
attempt("logon", lambda: syscall(248, b"logon", b"planted:x", b"secret", 6, -3))
attempt("big", lambda: syscall(248, b"big_key", b"planted", b"x" * 100, 100, -3))
attempt("ring", lambda: syscall(248, b"keyring", b"planted", 0, 0, -3))
""",
}
RICH = {
    "io_uring in every mode": """
for flags in (0, 1, 2, 1 << 4, 1 << 6, 1 << 8, 3 << 12, 1 << 14 | 1 << 15, 1 << 16):
    attempt(("setup", flags), lambda: syscall(425, 8, ctypes.create_string_buffer(struct.pack("IIII", 0, 0, flags, 0), 120)))
""",
    "io_uring without a ring": """
attempt("eventfd", lambda: syscall(427, -1, 4, buffer(8), 1))
attempt("a message", lambda: syscall(427, -1, 31, buffer(), 1))
attempt("enter", lambda: syscall(426, 0, 1, 0, 1, 0, 8))
attempt("old asynchronous", lambda: syscall(206, 8, buffer(8)))
""",
    "userfaultfd in every mode": """
for flags in (0, 1, 0o2000000, 0o4001):
    attempt(flags, lambda: syscall(323, flags))
attempt("device", lambda: os.open("/dev/userfaultfd", os.O_RDWR))
""",
    "ptrace of itself": """
attempt("traced by its parent", lambda: syscall(101, 0, 0, 0, 0))
attempt("a thread", lambda: syscall(101, 0x4206, os.getpid(), 0, 0))
attempt("a word", lambda: syscall(101, 1, os.getpid(), ctypes.addressof(buffer()), buffer()))
""",
    "counters of performance": """
def attributes(kind, config, flags=0):
    return ctypes.create_string_buffer(struct.pack("IIQQQQQ", kind, 112, config, 0, 0, 0, flags), 112)
for name, kind, config in (("clock", 1, 0), ("faults", 1, 2), ("cycles", 0, 0), ("trace point", 2, 1)):
    for pid in (0, BYSTANDER):
        attempt((name, pid), lambda: syscall(298, attributes(kind, config), pid, -1, -1, 0))
        attempt((name, pid, "of users"), lambda: syscall(298, attributes(kind, config, 1 << 5 | 1 << 6), pid, -1, -1, 8))
attempt("a processor", lambda: syscall(298, attributes(1, 0), -1, 0, -1, 0))
""",
    "bpf maps and programs": """
attempt("array", lambda: syscall(321, 0, ctypes.create_string_buffer(struct.pack("IIIII", 2, 4, 4, 1, 0), 120), 120))
attempt("hash", lambda: syscall(321, 0, ctypes.create_string_buffer(struct.pack("IIIII", 1, 4, 4, 1, 0), 120), 120))
code, license = ctypes.create_string_buffer(struct.pack("=BBhiBBhi", 0xb7, 0, 0, 0, 0x95, 0, 0, 0)), buffer()
load = struct.pack("=IIQQ", 1, 2, ctypes.addressof(code), ctypes.addressof(license))
attempt("filter", lambda: syscall(321, 5, ctypes.create_string_buffer(load, 120), 120))
attempt("next", lambda: syscall(321, 12, ctypes.create_string_buffer(struct.pack("II", 0, 0), 120), 120))
""",
    "options of a process": """
OPTIONS = ((1, 10), (2, buffer()), (3, 0), (4, 1), (7, 0), (8, 1), (16, buffer()), (21, 0), (23, 21), (25, buffer()), (27, 0),
           (29, 1), (30, 0), (33, 1, 1), (36, 1), (37, buffer()), (38, 1), (39, 0), (41, 1), (47, 4), (0x59616d61, HOST))
for option, *values in OPTIONS:
    attempt(option, lambda: syscall(157, option, *(values + [0] * 4)[:4]))
""",
    "terminals, files and devices by ioctl": """
import fcntl
a, b = socket.socketpair()
r, w = os.pipe()
file = os.open(os.__file__, os.O_RDONLY)
attempt("network interfaces", lambda: fcntl.ioctl(a, 0x8912, struct.pack("iQ", 0, 0)))
attempt("a name of one", lambda: fcntl.ioctl(a, 0x8910, struct.pack("16si12s", b"", 1, b"")))
attempt("asynchronous", lambda: fcntl.ioctl(r, 0x5452, struct.pack("i", 1)))
attempt("owner", lambda: fcntl.ioctl(a, 0x8901, struct.pack("i", os.getpid())))
attempt("group", lambda: fcntl.ioctl(a, 0x8902, struct.pack("i", -os.getpid())))
attempt("flags of a file", lambda: fcntl.ioctl(file, 0x80086601, buffer(8)))
attempt("extents of a file", lambda: fcntl.ioctl(file, 0xC020660B, struct.pack("QQIIII", 0, 1 << 30, 0, 0, 0, 0)))
attempt("block size", lambda: fcntl.ioctl(file, 2, struct.pack("i", 0)))
for request in (0x5412, 0x541C, 0x540E, 0x5441, 0x5422, 0x5410, 0x4B46):
    attempt(hex(request), lambda: fcntl.ioctl(0, request, buffer(8)))
""",
    "pairs of sockets of every family": """
for family in (*range(2, 46), 0):
    for kind in (1, 2, 3, 5):
        attempt((family, kind), lambda: syscall(53, family, kind, 0, buffer(8)))
""",
    "flags of clone": """
THREAD = 0x3D0F00 & ~0x10000  # what makes a thread, but for the flag that says so
for flag in (0, 0x4000, 0x2000, 0x8000, 0x1000, 0x80000000, 0x800000, 0x10000000, 0x20000000, 0x02000000):
    attempt(hex(flag), lambda: syscall(56, THREAD & ~0x800 & ~0x100 | flag | 0x100, 0, 0, 0, 0))
attempt("clone3 into a group", lambda: syscall(435, struct.pack("11Q", 0x200000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88))
""",
    "limits of others' time": """
attempt("timer of a process", lambda: syscall(222, ~HOST << 3 | 2, 0, buffer(8)))
attempt("timer of its own", lambda: syscall(222, 0, 0, buffer(8)))
attempt("timer as a file", lambda: syscall(283, 1, 0))
attempt("signals as a file", lambda: syscall(289, -1, struct.pack("Q", 1), 8, 0))
attempt("rate of the clock", lambda: syscall(159, buffer(208)))
""",
}
MACHINE_CODE = """\
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex(%r))
got = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
print("ESCAPED" if got >= 0 else "blocked", got)
"""
# push rbx; mov eax, NUMBER; mov ebx, 1; mov ecx, 1; xor edx, edx; int 0x80; pop rbx; ret
TABLE_32 = "53b8%sbb01000000b90100000031d2cd805bc3"
OTHER_TABLES = {
    "a socket pair's call of the 32-bit table": TABLE_32 % "67010000",  # socket(AF_UNIX, SOCK_STREAM, 0)
    "the parent, of the 32-bit table": TABLE_32 % "40000000",  # getppid
    "a process's group, of the 32-bit table": "53b884000000bb00000000cd805bc3",  # getpgid(0)
}
READING = {
    "settings beside an environment": """
import site
for folder in {sys.prefix, sys.base_prefix, sys.exec_prefix}:
    for name in ("pip.conf", "pyvenv.cfg", ".netrc", "bin/activate", "bin/pip", "share/x", "conda-meta/history"):
        attempt((folder, name), lambda: open(os.path.join(folder, name)).read(10))
for path in ("~/.netrc", "~/.pypirc", "~/.config/pip/pip.conf", "/etc/pip.conf", "/etc/hostname", "/etc/passwd"):
    attempt(path, lambda: open(os.path.expanduser(path)).read(10))
""",
    "the system's own": """
for path in ("/usr/lib/os-release", "/usr/lib/tmpfiles.d/tmp.conf", "/usr/lib/python3/dist-packages/six.py",
             "/usr/local/lib/x", "/usr/share/doc/base-files/README", "/usr/bin/env", "/boot", "/sys/kernel/notes",
             "/var/lib/dpkg/status", "/run/utmp", "/proc/version", "/proc/self/maps", "/proc/mounts"):
    attempt(path, lambda: open(path, "rb").read(10))
""",
}

ATTACKS: list[Attack] = [
    *attempts(
        "other processes asked about",
        "code",
        OTHERS,
        control=list(OTHERS),
    ),
    *attempts("shared pages", "code", SHARED_PAGES, control=list(SHARED_PAGES)),
    *attempts("keyrings", "code", KEYS, control=list(KEYS)),
    *attempts(
        "real arguments",
        "code",
        RICH,
        control=[
            name for name in RICH if name not in ("pairs of sockets of every family", "flags of clone")
        ],
    ),
    *(
        Attack(
            "real arguments",
            name,
            "code",
            MACHINE_CODE % code,
            ends=("ok", "signal:31", "signal:11"),  # a filter, or a kernel without that table, may end the process
            control=True,
        )
        for name, code in OTHER_TABLES.items()
    ),
    *attempts("files", "code", READING, control=list(READING)),
    *attempts(
        "other processes asked about",
        "unguarded",
        {
            "their clocks": OTHERS["their clocks"],
            "how they are scheduled": OTHERS["how they are scheduled"],
            "what they belong to": OTHERS["what they belong to"],
        },
        control=["their clocks", "how they are scheduled", "what they belong to"],
    ),
    *attempts(
        "shared pages",
        "unguarded",
        {name: SHARED_PAGES[name] for name in ("a waker", "a waiter")},
        control=["a waker", "a waiter"],
    ),
    *attempts("keyrings", "unguarded", {"added and read": KEYS["added and read"]}, control=["added and read"]),
    *attempts(
        "real arguments",
        "unguarded",
        {
            name: RICH[name]
            for name in ("io_uring in every mode", "userfaultfd in every mode", "ptrace of itself", "counters of performance")
        },
        control=["io_uring in every mode", "userfaultfd in every mode", "ptrace of itself", "counters of performance"],
    ),
]  # fmt: skip
