"""The last step before a worker: a process that confines itself, then becomes the worker.

    python -I -S launch_step.py STATUS_FD LAUNCH_FILE        the request, JSON, on stdin

A supervisor has threads, so no Python may run between its fork and an exec. It starts this file
instead, alone in a fresh interpreter that reads neither its environment nor a site folder. In this
order it enters the worker's cgroups, sets its limits, gives up inherited capabilities and anything
that setuid programs could add, becomes the worker's user, opens the files that the worker prints
to, and executes the worker, whose environment comes with the request: no code of the worker or its
user runs before all of that holds. A failure is reported on STATUS_FD, which the exec closes. This
file imports nothing of ours: it must start fast, whatever the import path is.
"""

import json
import os
import resource
import sys
from typing import Any, NoReturn

# How much of what a worker prints is kept, and as much again in a file with the suffix ".1".
PRINTED_BYTES_MAX = 10 * 1024 * 1024
_REQUEST_BYTES_MAX = 64 * 1024 * 1024

# linux/prctl.h
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_PR_SET_NO_NEW_PRIVS = 38


def main() -> NoReturn:
    status = int(sys.argv[1])
    os.set_inheritable(status, False)
    step = "read the request"
    try:
        request: dict[str, Any] = json.loads(os.read(0, _REQUEST_BYTES_MAX))
        for procs in request["cgroups"]:
            step = f"enter the cgroup {os.path.dirname(procs)}"
            _write(procs, b"0")
        for name, value in request["limits"].items():
            step = f"set {name} to {value}"
            resource.setrlimit(getattr(resource, name), (value, value))
        step = "give up capabilities"
        _drop_ambient()
        step = "give up what setuid programs would add"
        _no_new_privileges()
        if request["user"] is not None:
            uid, gid, groups = request["user"]
            step = f"become the user {uid}"
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            _check_powerless()
        os.umask(0o077)
        # From here on everything is done with the worker's own rights only.
        step = f"enter {request['cwd']}"
        os.chdir(request["cwd"])
        for fd, path in ((1, request["out"]), (2, request["err"])):
            step = f"open {path}"
            os.dup2(_open_printed(path), fd)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        step = f"execute {request['argv'][0]}"
        os.execve(request["argv"][0], request["argv"], request["env"])
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        why = os.strerror(number) if number else f"{type(error).__name__}: {error}"
        os.write(status, json.dumps([number, f"cannot {step}: {why}"]).encode())
    os._exit(1)


def _drop_ambient() -> None:
    """A supervisor that is not root can have ambient capabilities (capabilities(7)), such as the
    one that py-spy needs to trace other processes: a topology with it could become any user."""
    if _capabilities(b"CapAmb:"):
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def _no_new_privileges() -> None:
    """Prevent any program that the worker ever executes from gaining rights: neither by its owner
    (setuid, sudo) nor by its capabilities (ping). Children inherit it."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _prctl(option: int, value: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _check_powerless() -> None:
    """Becoming another user drops capabilities only for root. Nothing is imported from here on, not
    even a codec: this user may not be able to read the interpreter's library."""
    if _capabilities(b"CapPrm:"):
        raise ValueError("it would keep capabilities of the supervisor, which must run as root")


def _capabilities(kind: bytes) -> int:
    fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    lines = os.read(fd, 65536).splitlines()
    os.close(fd)
    return next(int(line.split()[1], 16) for line in lines if line.startswith(kind))


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _open_printed(path: str) -> int:
    """Open a file to append to. A link, or anything but a regular file, is refused."""
    try:
        if os.lstat(path).st_size > PRINTED_BYTES_MAX:
            os.replace(path, path + ".1")
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    os.set_blocking(fd, True)
    return fd


if __name__ == "__main__":
    main()
