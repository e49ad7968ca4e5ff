# ruff: noqa: E501  (hostile one-liners)
"""Code that wants processes, signals, others' memory, privileges or rich kernel interfaces: all must be blocked."""

from __future__ import annotations

from sandbox.conformance.attacks.attack import Attack, attempts

PROCESSES = {
    "fork and clone": """
attempt("fork", os.fork)
attempt("vfork", lambda: syscall(58))
attempt("clone", lambda: syscall(56, 17, 0, 0, 0, 0))
attempt("clone3", lambda: syscall(435, struct.pack("8Q", 0, 0, 0, 0, 17, 0, 0, 0), 64))
attempt("pty", lambda: __import__("pty").fork())
""",
    "exec and its relatives": """
import subprocess
command = [sys.executable, "-c", "import time; time.sleep(60)", "@MARK@"]
attempt("exec", lambda: os.execv(sys.executable, command))
attempt("spawn", lambda: os.posix_spawn(sys.executable, command, {}))
attempt("subprocess", lambda: subprocess.Popen(command))
attempt("system", lambda: 1 / (os.system("sleep 60 @MARK@") == 0))
attempt("popen", lambda: os.popen("sleep 60 @MARK@").read() or 1 / 0)
attempt("memfd", lambda: os.memfd_create("x"))
attempt("execveat", lambda: syscall(322, 0, b"", 0, 0, 0x1000))
""",
    "a second process": """
import subprocess
attempt("start", lambda: subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "@MARK@"]))
""",
    "multiprocessing": """
import multiprocessing
attempt("fork", lambda: multiprocessing.get_context("fork").Process(target=print).start())
attempt("spawn", lambda: multiprocessing.get_context("spawn").Process(target=print).start())
attempt("forkserver", lambda: multiprocessing.get_context("forkserver").Process(target=print).start())
""",
}
DAEMONS = {
    "a double fork": """
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
attempt("double fork", daemon)
""",
    "a session of its own": """
attempt("setsid", os.setsid)
attempt("setpgid", lambda: os.setpgid(0, 0))
import threading
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
""",
    "one that outlives its starter": """
import subprocess
attempt("nohup", lambda: subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "@MARK@"],
                                          start_new_session=True, stdin=subprocess.DEVNULL))
""",
}
SIGNALS = {
    "to the bystander": """
for number in (signal.SIGUSR1, signal.SIGKILL, signal.SIGSTOP):
    attempt(number, lambda: os.kill(BYSTANDER, number))
attempt("pidfd", lambda: os.pidfd_open(BYSTANDER))
""",
    "to the parent, the host and everybody": """
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
    "through the ownership of a descriptor": """
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
}
PTRACE = {
    "attach, seize, be traced": """
for pid in (HOST, BYSTANDER, os.getppid()):
    for request in (16, 0x4206, 0):
        attempt((pid, request), lambda: syscall(101, request, pid, 0, 0))
""",
    "its relatives": """
for pid in (HOST, BYSTANDER):
    attempt(("kcmp", pid), lambda: syscall(312, pid, os.getpid(), 0, 0, 0))
attempt("any tracer", lambda: syscall(157, 0x59616d61, -1, 0, 0, 0))
attempt("getfd", lambda: syscall(438, 0, 0, 0))
""",
}
PROCESS_VM = {
    name: f"""
secret = buffer(100)
for pid in (BYSTANDER, HOST, os.getppid()):
    ours = (ctypes.c_void_p * 2)(ctypes.addressof(secret), 100)
    theirs = (ctypes.c_void_p * 2)(@ADDRESS@, 100)
    here, there = ctypes.addressof(ours), ctypes.addressof(theirs)
    attempt(({name!r}, pid), lambda: (syscall({number}, pid, here, 1, there, 1, 0), secret.raw))
"""
    for name, number in (("process_vm_readv", 310), ("process_vm_writev", 311))
} | {"process_madvise": 'attempt("madvise", lambda: syscall(440, 0, 0, 0, 0, 0))'}
MEM_FILES = {
    "its own": 'attempt("mem", lambda: open("/proc/self/mem", "r+b"))\nattempt("maps", lambda: open("/proc/self/maps").read())',
    "others'": """
for pid in (BYSTANDER, HOST, os.getppid(), 1):
    for name in ("mem", "maps", "fd/0", "ns/mnt", "status", "auxv", "pagemap"):
        attempt((name, pid), lambda: open(f"/proc/{pid}/{name}", "rb").read(10))
""",
}
SHARED_MEMORY = {
    "posix": """
from multiprocessing import shared_memory
attempt("segment", lambda: shared_memory.SharedMemory("x", create=True, size=100))
attempt("queue", lambda: syscall(240, b"queue", 0o102, 0o666, 0))
attempt("memfd", lambda: syscall(319, b"x", 0))
""",
    "sysv": """
attempt("segment", lambda: syscall(29, 1234, 4096, 0o1666))
attempt("semaphore", lambda: syscall(64, 1234, 1, 0o1666))
attempt("message queue", lambda: syscall(68, 1234, 0o1666))
""",
}
NAMESPACES = {
    "unshare, clone, setns": """
for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x02000000, 0x10020000, 0x80):
    attempt(("unshare", hex(flag)), lambda: syscall(272, flag))
    attempt(("clone", hex(flag)), lambda: syscall(56, flag | 17, 0, 0, 0, 0))
attempt("setns", lambda: syscall(308, 0, 0))
""",
    "sockets of a new one": """
attempt("user and net", lambda: (syscall(272, 0x50000000), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("user map", lambda: open("/proc/self/uid_map", "w").write("0 0 1"))
""",
}
MOUNTS = {
    "mount": """
attempt("mount", lambda: syscall(165, b"none", b".", b"tmpfs", 0, 0))
attempt("bind", lambda: syscall(165, b"/", b".", 0, 4096, 0))
attempt("proc", lambda: syscall(165, b"proc", b".", b"proc", 0, 0))
attempt("remount writable", lambda: syscall(165, b"none", b"/", 0, 32, 0))
attempt("propagation", lambda: syscall(165, b"none", b"/", 0, 0x100000 | 16384, 0))
""",
    "another root": """
attempt("umount of proc", lambda: syscall(166, b"/proc", 2))
attempt("pivot_root", lambda: syscall(155, b".", b"."))
attempt("umount", lambda: syscall(166, b"/", 2))
attempt("chroot", lambda: os.chroot("."))
""",
    "by descriptors": """
attempt("open_tree", lambda: syscall(428, -100, b"/", 1))
attempt("fsopen", lambda: syscall(430, b"tmpfs", 0))
attempt("fspick", lambda: syscall(433, -100, b"/", 0))
attempt("mount_setattr", lambda: syscall(442, -100, b"/", 0, struct.pack("4Q", 0, 1, 0, 0), 32))
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 200)
attempt("handle", lambda: syscall(303, -100, b"/", handle, buffer(8), 0))
""",
}
PRIVILEGES = {
    "users and capabilities": """
attempt("setuid", lambda: os.setuid(0))
attempt("setresuid", lambda: os.setresuid(0, 0, 0))
attempt("setgroups", lambda: os.setgroups([0]))
attempt("capset", lambda: syscall(126, struct.pack("Ii", 0x20080522, 0), b"\\xff" * 24))
for option in (1, 3, 4, 8, 22, 23, 24, 28, 36, 38, 40, 47, 59):
    attempt(("prctl", option), lambda: syscall(157, option, 1, 0, 0, 0))
attempt("seccomp", lambda: syscall(317, 1, 0, 0))
attempt("landlock", lambda: syscall(446, 0, 0))
""",
    "the machine": """
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
}
IO_URING = {
    "set up": 'attempt("setup", lambda: syscall(425, 8, buffer(120)))',
    "enter and register": 'attempt("enter", lambda: syscall(426, 0, 1, 1, 1, 0, 0))\n'
    'attempt("register", lambda: syscall(427, 0, 0, 0, 0))\nattempt("aio", lambda: syscall(206, 8, buffer(8)))',
}
SURFACE = {
    "rich interfaces": """
attempt("bpf", lambda: syscall(321, 0, buffer(120), 120))
attempt("perf", lambda: syscall(298, buffer(120), 0, -1, -1, 0))
attempt("userfaultfd", lambda: syscall(323, 0))
attempt("fanotify", lambda: syscall(300, 0, 0))
attempt("inotify", lambda: syscall(294, 0))
attempt("timer", lambda: syscall(222, 0, 0, buffer(8)))
attempt("splice", lambda: syscall(275, 0, 0, 1, 0, 100, 0))
attempt("modify stdio terminal", lambda: __import__("fcntl").ioctl(0, 0x5412, b"x"))  # TIOCSTI
attempt("file flags", lambda: __import__("fcntl").ioctl(os.open(os.__file__, 0), 0x40086602, struct.pack("l", 16)))
""",
}
LIMITS = {
    "rlimits": """
import resource
for name in ("AS", "CPU", "FSIZE", "NOFILE", "NPROC", "CORE", "MEMLOCK"):
    limit = getattr(resource, "RLIMIT_" + name)
    attempt(name, lambda: resource.setrlimit(limit, (resource.RLIM_INFINITY,) * 2))
    attempt(name, lambda: resource.prlimit(0, limit, (1 << 40, 1 << 40)))
    attempt(name, lambda: resource.prlimit(HOST, limit, (1, 1)))
""",
    "scheduling": """
attempt("affinity", lambda: os.sched_setaffinity(0, {0}))
attempt("affinity of the host", lambda: os.sched_setaffinity(HOST, {0}))
attempt("scheduler", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, HOST, 19))
attempt("nice", lambda: os.nice(-5))
attempt("locked memory", lambda: syscall(151, 3))
attempt("signals of the clock", lambda: signal.signal(signal.SIGKILL, signal.SIG_IGN))
""",
}
DESCRIPTORS = {
    "what is open": """
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
""",
}
RAW_WRITES = {
    "an answer on every descriptor": """
for fd in range(3, 1024):
    try:
        os.write(fd, struct.pack("<I", 30) + b'{"op":"answer","text":"forged"}')
    except OSError:
        continue
    print("ESCAPED", fd)
attempt("descriptor 3", lambda: os.write(3, b"x"))
""",
    "the control socket guessed": """
for fd in range(3, 300):
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        continue
    print("ESCAPED", fd, sock)
attempt("descriptor 64", lambda: os.write(64, b'{"op": "ready"}'))
""",
}

ATTACKS: list[Attack] = [
    *attempts("processes", "code", PROCESSES, control=["a second process"]),
    *attempts("daemon", "code", DAEMONS, control=["one that outlives its starter"]),
    *attempts("signals", "code", SIGNALS, control=["to the bystander"]),
    *attempts("ptrace", "code", PTRACE),
    *attempts("process_vm", "code", PROCESS_VM, control=["process_vm_readv"]),
    *attempts("/proc/self/mem", "code", MEM_FILES, control=["its own"]),
    *attempts("shared memory", "code", SHARED_MEMORY),
    *attempts("user namespaces", "code", NAMESPACES),
    *attempts("mounts", "code", MOUNTS),
    *attempts("privileges", "code", PRIVILEGES),
    *attempts("io_uring", "code", IO_URING, control=["set up"]),
    *attempts("kernel surface", "code", SURFACE, control=["rich interfaces"]),
    Attack(
        "kernel surface",
        "another table of system calls",  # a filter may end the process for it
        "code",
        "import ctypes\nprint('ESCAPED' if ctypes.PyDLL(None).syscall(0x40000000 | 41, 2, 1, 0) >= 0 else 'blocked')\n",
        ends=("ok", "signal:31"),
    ),
    *attempts("limits raised", "code", LIMITS),
    *attempts("descriptors inherited", "code", DESCRIPTORS),
    *attempts("forged frame", "code", RAW_WRITES),
]
