"""The system-call filters: what the BPF programs decide, and what the kernel then says inside a jail."""

import errno
import json
import re
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jails import Jail

from sandbox.containers.profile import seccomp_profile
from sandbox.jail import seccomp

ALLOW, EPERM, ENOSYS, PRETEND = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x50000
AGAIN = 0x50000 | errno.EAGAIN
X32_BIT = 0x40000000
FILTERS = {
    "program": seccomp.program_filter(),
    "code in j": seccomp.code_filter(own_files=True),
    "code in j0": seccomp.code_filter(own_files=False),
}
NEVER = {
    "execve": 59, "execveat": 322, "fork": 57, "vfork": 58, "kill": 62, "tkill": 200, "tgkill": 234,
    "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424,
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "process_madvise": 440, "kcmp": 312,
    "socket": 41, "connect": 42, "accept": 43, "accept4": 288, "bind": 49, "listen": 50, "sendmsg": 46, "recvmsg": 47,
    "sendmmsg": 307, "recvmmsg": 299, "setsockopt": 54,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "io_setup": 206,
    "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "mount_setattr": 442,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "setrlimit": 160, "setuid": 105, "setgid": 106, "setreuid": 113, "setresuid": 117, "setgroups": 116, "capset": 126,
    "seccomp": 317, "landlock_create_ruleset": 444, "landlock_restrict_self": 446, "keyctl": 250, "add_key": 248,
    "request_key": 249, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "init_module": 175,
    "finit_module": 313, "delete_module": 176, "kexec_load": 246, "reboot": 169, "swapon": 167, "swapoff": 168,
    "acct": 163, "quotactl": 179, "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "sethostname": 170,
    "setdomainname": 171, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "syslog": 103, "vhangup": 153,
    "sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setattr": 314, "setpriority": 141, "ioprio_set": 251,
    "personality": 135, "mknod": 133, "mknodat": 259, "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266,
    "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "setxattr": 188, "fsetxattr": 190, "lsetxattr": 189,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "fanotify_init": 300, "inotify_init1": 294,
    "memfd_create": 319, "memfd_secret": 447, "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "mq_open": 240,
    "mbind": 237, "set_mempolicy": 238, "migrate_pages": 256, "move_pages": 279, "remap_file_pages": 216,
    "pkey_mprotect": 329, "mlockall": 151, "timer_create": 222, "signalfd4": 289, "tee": 276, "splice": 275,
    "vmsplice": 278, "lookup_dcookie": 212, "setpgid": 109, "setsid": 112, "setitimer_past": 500, "uselib": 134,
    "chmod_by_flags": 452, "openat2": 437, "cachestat": 451, "waitid": 247, "wait4": 61,
}  # fmt: skip
"""Refused to code and to programs alike."""


def decide(program: bytes, number: int, args: tuple[int, ...] = (), arch: int = seccomp.AUDIT_ARCH_X86_64) -> int:
    """Interpret a filter as the kernel would."""
    args = (*args, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, arch, 0, *args)
    position, accumulator = 0, 0
    for _ in range(len(program) // 8):
        code, jump_true, jump_false, value = struct.unpack_from("<HBBI", program, 8 * position)
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            return value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            position += jump_true if holds else jump_false
    raise AssertionError("the filter ran off its end")


@pytest.mark.parametrize("kind", FILTERS)
def test_dangerous_calls_are_refused_whatever_their_arguments(kind):
    for number in NEVER.values():
        for args in ((), (0,) * 6, (2**64 - 1,) * 6, (1, 2, 3, 4, 5, 6)):
            assert decide(FILTERS[kind], number, args) == EPERM, number


@settings(deadline=None)
@given(number=st.integers(0, 2**32 - 1), args=st.tuples(*[st.integers(0, 2**64 - 1)] * 6))
def test_every_call_gets_a_decision_and_unknown_ones_are_refused(number, args):
    for program in FILTERS.values():
        decision = decide(program, number, args)
        assert decision in (ALLOW, EPERM, ENOSYS, PRETEND, AGAIN)
        if number > 446 or number & X32_BIT:
            assert decision == EPERM
        for other_arch in (0x40000003, 0xC00000B7, 0):
            assert decide(program, number, args, other_arch) == EPERM


def test_a_program_may_do_much_less_than_code():
    allowed = {
        kind: {number for number in range(500) if decide(program, number) == ALLOW} for kind, program in FILTERS.items()
    }
    assert allowed["program"] < allowed["code in j"]
    assert len(allowed["program"]) < 50
    opening = {"open": 2, "openat": 257, "creat": 85, "stat": 4, "dup": 32, "pipe": 22, "socketpair": 53, "ioctl": 16}
    assert not allowed["program"] & set(opening.values())


NAMES = {
    number: name
    for table in vars(seccomp).values()
    if isinstance(table, dict)
    for name, number in table.items()
    if isinstance(name, str) and isinstance(number, int)
}
SOME_ARGUMENTS = ((), (1,) * 6, (0x3D0F00,), (seccomp.PR_SET_NAME,), (0, 0x5401), (0, 128))
"""With one of them each call that is allowed under conditions is allowed."""


def test_a_container_refuses_nothing_that_a_jail_allows() -> None:
    """Its filter lies below theirs, and refuses with an error of its own."""
    singles = [
        "mmap",
        "mprotect",
        "futex",
        "flock",
        "socketpair",
        "getpriority",
        "prlimit64",
        "prctl",
        "clone",
        "fcntl",
    ]
    singles += ["ioctl", "sendto"]
    names = NAMES | {getattr(seccomp, f"_{name.upper()}"): name for name in singles}
    rules = json.loads(seccomp_profile())["syscalls"]
    allowed = {name for rule in rules if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    answered = {
        names[number]
        for program in FILTERS.values()
        for number in range(500)
        if {decide(program, number, args) for args in SOME_ARGUMENTS} & {ALLOW, PRETEND, AGAIN}
    }
    assert answered - allowed == set()
    assert len(answered) > 100
    assert {"socketpair", "clone", "prctl", "ioctl", "futex", "flock", "sendto", "prlimit64", "fcntl"} <= answered


def test_threads_yes_processes_and_namespaces_no():
    thread = 0x3D0F00  # what the C library's pthread_create asks for
    for kind in ("code in j", "code in j0"):
        assert decide(FILTERS[kind], 56, (thread,)) == ALLOW
        assert decide(FILTERS[kind], 56, (17,)) == EPERM
        assert decide(FILTERS[kind], 56, (0x4111,)) == EPERM  # vfork
        for bit in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
            assert decide(FILTERS[kind], 56, (thread | bit,)) == EPERM
        assert decide(FILTERS[kind], 435) == ENOSYS  # clone3: the C library falls back to clone
    assert decide(FILTERS["program"], 56, (thread,)) == EPERM


def test_arguments_are_looked_at():
    code, program = FILTERS["code in j0"], FILTERS["program"]
    allowed_control = {command for command in range(2000) if decide(code, 72, (3, command)) == ALLOW}
    assert not allowed_control & {8, 10, 15, 1024, 1025, 1026, 1033}  # owner, signal, owner_ex, leases, notify, seals
    assert {0, 1, 2, 3, 4, 1030} <= allowed_control
    for request in (0x5412, 0x5402, 0x4004667F, 0x40086602, 0xC0045878):  # TIOCSTI, TCSETS, FS_IOC_SETFLAGS, FIFREEZE
        assert decide(code, 16, (0, request)) == EPERM
    assert decide(code, 16, (0, 0x5421)) == ALLOW
    assert decide(code, 44, (3, 1, 5, 0, 0, 0)) == ALLOW  # sendto without an address
    assert decide(code, 44, (3, 1, 5, 0, 0x7FFF0000, 110)) == EPERM
    assert decide(code, 44, (3, 1, 5, 0, 1 << 32, 110)) == EPERM, "an address whose low half is zero"
    assert decide(code, 302, (0, 7, 0, 0x1000)) == ALLOW  # prlimit64 that reads
    assert decide(code, 302, (0, 7, 0x1000, 0)) == EPERM
    assert decide(code, 302, (0, 7, 1 << 32, 0)) == EPERM
    assert decide(code, 302, (1, 7, 0, 0x1000)) == EPERM, "of another process"
    for lock in (5, 6, 7, 36, 37, 38):
        assert decide(code, 72, (3, lock)) == PRETEND
    assert decide(code, 73, (3, 2)) == PRETEND
    for family in range(50):
        assert decide(code, 53, (family, 1, 0)) == (ALLOW if family == 1 else EPERM)
    for call, argument in ((143, 0), (145, 0), (204, 0), (140, 1)):
        assert decide(code, call, [0, 0, 0]) == ALLOW
        assert decide(code, call, [1234 if place == argument else 0 for place in range(3)]) == ENOSYS
    assert decide(program, 204, (0,)) == ALLOW
    assert decide(program, 204, (1,)) == ENOSYS
    for each in FILTERS.values():
        for call in (228, 229, 230):
            assert {decide(each, call, (clock,)) for clock in (0, 1, 2, 3, 7, 11)} == {ALLOW}
            for clock in (~1234 << 3 | 2, ~1 << 3 | 6, ~3 << 3 | 3):  # of a process, of a thread, of a descriptor
                assert decide(each, call, (clock % 2**64,)) == EPERM
                assert decide(each, call, (clock % 2**32,)) == EPERM
        for operation in range(16):
            assert decide(each, 202, (0x1000, operation | 128)) == ALLOW
            shared = decide(each, 202, (0x1000, operation))
            assert shared == (AGAIN if operation in (0, 9) else EPERM), "on a page that runs share"
        assert decide(each, 202, (0x1000, 9 | 256)) == AGAIN
    for option in range(80):
        assert decide(code, 157, (option,)) == (ALLOW if option == 15 else EPERM)
    for call in (9, 10):  # mmap and mprotect with PROT_EXEC
        assert decide(program, call, (0, 4096, 3)) == ALLOW
        assert decide(program, call, (0, 4096, 7)) == EPERM
        assert decide(code, call, (0, 4096, 5)) == ALLOW


def test_modes_and_times_of_files_cannot_be_set_where_files_are_the_hosts():
    for number in (90, 91, 268, 235, 280):
        assert decide(FILTERS["code in j"], number) == ALLOW
        assert decide(FILTERS["code in j0"], number) == PRETEND
        assert decide(FILTERS["program"], number) == EPERM


ATTEMPT = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
results = {}
for name, number in NUMBERS.items():
    for args in ((0,) * 6, (-1,) * 6):
        ctypes.set_errno(0)
        value = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, args))
        results.setdefault(name, []).append([value, errno.errorcode.get(ctypes.get_errno(), 0)])
import json
print(json.dumps(results))
"""


def test_the_kernel_refuses_them_in_a_code_jail(jail: Jail):
    result = jail.code(f"NUMBERS = {NEVER | {'clone3': 435}}\n{ATTEMPT}")
    assert result.ok, result
    results = json.loads(result.stdout)
    assert results.pop("clone3") == [[-1, "ENOSYS"]] * 2
    assert results == {name: [[-1, "EPERM"]] * 2 for name in NEVER}


def test_the_kernel_refuses_them_in_a_program_jail(escaped):
    more = {"open": 2, "openat": 257, "socketpair": 53, "pipe": 22, "ioctl": 16, "fcntl": 72, "clone": 56, "dup": 32}
    run = escaped.program(f"NUMBERS = {NEVER | more}\n{ATTEMPT}\nanswer = 'tried'\nWorkflow('w')")
    results = json.loads(re.sub(r"\n.*", "", run.output))
    assert results == {name: [[-1, "EPERM"]] * 2 for name in NEVER | more}


def test_32_bit_calls_are_refused(jail: Jail):
    """int 0x80 would reach another table of calls."""
    code = """
import ctypes, mmap
code = bytes.fromhex("b814000000cd80c3")  # mov eax, 20 (getpid of i386); int 0x80; ret
try:
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
except OSError as error:
    print(-error.errno)
else:
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
"""
    result = jail.code(code)
    assert result.signal in (11, 31) or int(result.stdout) < 0
