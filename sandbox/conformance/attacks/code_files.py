"""Code that wants files, names, the environment, or the network: all of it must be blocked."""

from __future__ import annotations

from sandbox.conformance.attacks.attack import Attack, attempts

FILES = {
    "the canary by every path": """
fds = [os.open(".", os.O_RDONLY)]
for path in ("@CANARY@", "../" * 30 + "@CANARY@", "/proc/self/cwd/../../../../@CANARY@", "/dev/fd/3",
             "/proc/self/fd/3", "@FOLDER@"):
    attempt(path, lambda: open(path).read())
    attempt(path, lambda: os.open(path[1:], os.O_RDONLY, dir_fd=fds[0]))
attempt("openat2", lambda: syscall(437, -100, b"@CANARY@", struct.pack("QQQ", 0, 0, 0), 24))
attempt("handle", lambda: syscall(303, -100, b"@CANARY@", buffer(200), buffer(8), 0))
attempt("sendfile", lambda: os.sendfile(1, os.open("@CANARY@", os.O_RDONLY), 0, 100))
import importlib.machinery
attempt("import", lambda: importlib.machinery.SourceFileLoader("c", "@CANARY@").get_code("c"))
""",
    "what is outside changed": """
attempt("write", lambda: open("@VICTIM@", "w"))
attempt("append", lambda: open("@VICTIM@", "a"))
attempt("truncate", lambda: os.truncate("@VICTIM@", 0))
attempt("truncating read", lambda: os.open("@VICTIM@", os.O_RDONLY | os.O_TRUNC))
attempt("create", lambda: open("@FOLDER@/new", "x"))
attempt("unlink", lambda: os.unlink("@VICTIM@"))
attempt("mkdir", lambda: os.mkdir("@FOLDER@/d"))
attempt("chown", lambda: os.chown("@VICTIM@", 12345, 12345))
attempt("setxattr", lambda: os.setxattr("@VICTIM@", "user.x", b"1"))
attempt("mknod", lambda: os.mknod("@FOLDER@/n"))
attempt("lease", lambda: __import__("fcntl").fcntl(os.open(os.__file__, os.O_RDONLY), 1024, 0))
""",
    "moved in and out": """
attempt("rename", lambda: os.rename("@VICTIM@", "@FOLDER@/other"))
attempt("rename in", lambda: os.rename("@VICTIM@", "victim"))
open("mine", "w").close()
attempt("rename out", lambda: os.rename("mine", "@FOLDER@/mine"))
attempt("exchange", lambda: syscall(316, -100, b"mine", -100, b"@VICTIM@", 2))
""",
    "the Python of later runs poisoned": """
import json, site, sysconfig
for folder in {os.path.dirname(os.__file__), *site.getsitepackages(), sysconfig.get_path("stdlib"), sys.prefix}:
    attempt(folder, lambda: open(folder + "/poison_of_a_test.py", "x"))
    attempt(folder, lambda: os.mkdir(folder + "/poison_of_a_test"))
attempt("json", lambda: open(json.__file__, "a"))
attempt("rename", lambda: os.rename(json.__file__, json.__file__))
attempt("cache", lambda: open(os.path.dirname(json.__file__) + "/__pycache__/poison_of_a_test.pyc", "x"))
attempt("mmap", lambda: __import__("mmap").mmap(os.open(json.__file__, os.O_RDWR), 100))
""",
    "devices": """
attempt("device", lambda: os.mknod("device", 0o660 | 0o060000, os.makedev(8, 0)))
for device in ("/dev/mem", "/dev/kmem", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse", "/dev/tty", "/dev/ptmx",
               "/dev/shm/x", "/dev/kmsg", "/dev/net/tun"):
    attempt(device, lambda: open(device, "r+b", 0))
""",
}
LINKS = {
    "to the canary and to folders": """
attempt("symlink", lambda: os.symlink("@CANARY@", "link"))
attempt("symlink of a folder", lambda: os.symlink("/", "root"))
attempt("symlinkat", lambda: syscall(266, b"@CANARY@", -100, b"link"))
""",
    "hard links": """
open("mine", "w").close()
attempt("link", lambda: os.link("@VICTIM@", "victim"))
attempt("link out", lambda: os.link("mine", "@FOLDER@/mine"))
""",
    "pipes and sockets as files": """
attempt("fifo", lambda: os.mkfifo("fifo"))
attempt("unix socket", lambda: socket.socketpair()[0].bind("sock"))
""",
}
ROOTS = {
    "by number and by self": """
for pid in ("self", "1", "@HOST@", "@BYSTANDER@", str(os.getppid()), "thread-self"):
    attempt(pid, lambda: open(f"/proc/{pid}/root@CANARY@").read())
    attempt(pid, lambda: open(f"/proc/{pid}/cwd/canary").read())
    attempt(pid, lambda: open(f"/proc/{pid}/fd/3").close())  # what it leads to may be somebody's pipe
""",
    "chroot back": """
attempt("chroot", lambda: os.chroot("@FOLDER@"))
attempt("here", lambda: os.chroot("."))
attempt("through a mount", lambda: syscall(165, b"/", b".", 0, 4096, 0))
""",
}
ENVIRONMENT = {
    "by proc": """
for path in ("/proc/self/environ", "/proc/1/environ", "/proc/@HOST@/environ", "/proc/@HOST@/cmdline"):
    attempt(path, lambda: open(path).read())
""",
    "in memory": """
print(dict(os.environ), sys.orig_argv)
pointer, found = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ"), []
for n in range(100):
    if not pointer[n]:
        break
    found.append(pointer[n])
print(found)
attempt("nothing else", lambda: open("/proc/@BYSTANDER@/environ").read())
""",
}
NETWORK = {
    "sockets of every family": """
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET,
               38, 31, 44):  # crypto, bluetooth, XDP
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        attempt((family, kind), lambda: socket.socket(family, kind))
""",
    "a listening socket": """
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", @PORT@), 2))
attempt("url", lambda: __import__("urllib.request").request.urlopen("http://127.0.0.1:@PORT@/", timeout=2))
attempt("path", lambda: socket.socket(socket.AF_UNIX).connect("@STREAM@"))
attempt("name", lambda: socket.socket(socket.AF_UNIX).connect("\\0@ABSTRACT@"))
""",
    "a name looked up": 'attempt("name", lambda: socket.getaddrinfo("localhost.example", 80))',
    "what a socket pair can reach": """
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
}
VSOCK = {
    "sockets": """
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    attempt(kind, lambda: socket.socket(socket.AF_VSOCK, kind))
    attempt(kind, lambda: syscall(41, 40, int(kind) | 0o2000000, 0))
""",
    "to the machine's host": """
for cid in (0, 1, 2, 3):
    attempt(cid, lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((cid, 1024)))
attempt("device", lambda: open("/dev/vsock", "rb"))
""",
}

ATTACKS: list[Attack] = [
    *attempts(
        "files", "code", FILES, control=["the canary by every path", "what is outside changed", "moved in and out"]
    ),
    *attempts("symlinks", "code", LINKS, control=LINKS),
    *attempts("/proc/1/root", "code", ROOTS, control=["by number and by self"]),
    *attempts("environment", "code", ENVIRONMENT, control=ENVIRONMENT),
    *attempts("network", "code", NETWORK, control=[name for name in NETWORK if name != "a name looked up"]),
    *attempts("vsock", "code", VSOCK),
    Attack(
        "files",
        "modes and times",
        "code",
        # Where walls cannot see such calls (landlock does not), they may pretend to work: what counts is the file.
        """\
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
before = os.stat(os.__file__)
attempt(lambda: os.fchmod(os.open(os.__file__, os.O_RDONLY), before.st_mode ^ 0o001))
attempt(lambda: os.utime(os.__file__, (0, 0)))
print("unchanged" if os.stat(os.__file__) == before else "ESCAPED")
""",
        ends=("ok",),
        says=("unchanged",),
    ),
]
