"""Child processes that end with this one."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """What a new child calls (`preexec_fn`): the kernel sends it the signal when this process dies,
    even by SIGKILL. (When the thread that started it ends, to be exact: start it from the main
    one.)"""
    parent = os.getpid()

    def in_child() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return in_child
