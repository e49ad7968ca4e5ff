"""The seccomp allowlist of a container, as Docker reads it: what the relay, the zygote and the jails' own filters need.

Wider than a jail's filter, which is laid over it, by what forks, executes and confines. `socket` is missing on purpose:
no namespace hides AF_VSOCK. So are io_uring, ptrace, process_vm_*, bpf, keyctl, mount and new namespaces.
"""

from __future__ import annotations

import errno
import json

from sandbox.jail import CLONE_NEW_ANY, CLONE_NEWUSER, NAMES

_START = (
    "execve wait4 waitid fork vfork kill tgkill prctl seccomp setrlimit prlimit64 fcntl ioctl sendto sendmsg recvmsg "
    "memfd_create pidfd_open landlock_create_ruleset landlock_add_rule landlock_restrict_self capget capset setuid "
    "setgid setgroups setresuid setresgid getresuid getresgid getgroups setsid getsid getpgid setpgid close_range "
    "openat2 symlink chown fchown futex_waitv sched_setaffinity tkill "
    "flock getpriority sched_getaffinity sched_getparam sched_getscheduler"
)
_AF_UNIX = 1


def seccomp_profile(*, may_change_root: bool = False) -> str:
    """`may_change_root`: what confines jails may give them a root of their own, as in gVisor, which has no landlock."""
    names = sorted(NAMES.union(_START.split()))
    namespaces = {"index": 0, "value": CLONE_NEW_ANY, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    user_namespace = {"index": 0, "value": CLONE_NEWUSER, "op": "SCMP_CMP_EQ"}
    of_unix = {"index": 0, "value": _AF_UNIX, "valueTwo": 0, "op": "SCMP_CMP_EQ"}
    change_root: list[dict[str, object]] = [
        {"names": ["unshare"], "action": "SCMP_ACT_ALLOW", "args": [user_namespace]},
        {"names": ["chroot"], "action": "SCMP_ACT_ALLOW"},
    ]
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": errno.EPERM,
            "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [
                {"names": names, "action": "SCMP_ACT_ALLOW"},
                {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [namespaces]},
                {"names": ["socketpair"], "action": "SCMP_ACT_ALLOW", "args": [of_unix]},
                # Its flags are out of a filter's sight; the C library falls back to clone.
                {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
                *(change_root if may_change_root else []),
            ],
        }
    )
