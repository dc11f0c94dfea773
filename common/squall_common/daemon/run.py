"""The steps that all daemons share: read the configuration that they were started with, keep a log,
and run on one uvloop loop until they are asked to stop.

A daemon is `python -m PACKAGE` with the merged configuration in a JSON file, which the environment
variable SQUALL_DAEMON_CONF names. Once it answers, it says where in one JSON line on stdout.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from squall_common.daemon import fast_json
from squall_common.daemon.logs import set_up_logging
from squall_common.daemon.loop.watched_loop import WatchedLoop
from squall_common.daemon.output.printing import hold_standard_streams
from squall_common.errors import ConfigError

# The longest time that the loop waits for the interpreter while another thread runs (Python's
# default: 0.005).
_SWITCH_SECS = 0.001
# Memory blocks of this size or more come from the system, and go back to it when they are freed.
# glibc would otherwise raise its bound to the largest block that was ever freed, and keep what lies
# between others: a server that once had 600 frames of 1 MB would keep their room for good.
_MMAP_THRESHOLD_BYTES = 262_144
_M_MMAP_THRESHOLD = -3  # <malloc.h>

CONF_VARIABLE = "SQUALL_DAEMON_CONF"


def begin_daemon() -> None:
    """The first thing that a daemon does: what it writes is for its user only (configuration,
    packages and logs hold secrets), and no file gets the number of a closed standard stream."""
    hold_standard_streams()
    os.umask(0o077)


def read_daemon_conf(env: Mapping[str, str], command: str) -> dict[str, Any]:
    """The merged configuration of the file that `env` names. Raises ConfigError, whose hint for
    someone who started the daemon by hand is to use `command`."""
    path = env.get(CONF_VARIABLE)
    if not path:
        raise ConfigError(f"{CONF_VARIABLE} is not set", hint=f"Start it with `{command}`.")
    try:
        conf = fast_json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from error
    if not isinstance(conf, dict):
        raise ConfigError(f"{path} holds no configuration: it is not a JSON object")
    return conf


def set_up_daemon_log(name: str, *, level: str, folder: str | None, form: str = "text") -> None:
    """Log to `name`.log in a folder, or to stderr without one, from a level on; `form` is text or
    json."""
    file = None if folder is None else Path(folder) / f"{name}.log"
    number = logging.getLevelNamesMapping()[level]
    set_up_logging(file, level=number, as_json=form == "json")


def run_daemon(main: Coroutine[Any, Any, int]) -> int:
    """Run a daemon's main coroutine on uvloop; returns its exit status."""
    sys.setswitchinterval(_SWITCH_SECS)
    _give_memory_back()
    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        return runner.run(main)


def watch_loop() -> None:
    """The daemon has started: from now on say when something holds the loop (`watched_loop`).

    Modules and what else the start has made stay to the end. The garbage collector no longer looks
    at them, which took 20 ms of every full collection, on whichever thread was running.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, WatchedLoop):  # tests run parts of daemons on other loops
        gc.collect()
        gc.freeze()
        loop.watch()


def _give_memory_back() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


def stop_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
