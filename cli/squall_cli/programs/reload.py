"""`storm local --reload`: runs a topology anew whenever its source changes.

Each run is a child process, so that it starts from fresh modules and takes nothing with it when it
is stopped. The files are looked at regularly: that needs no library, works on every file system,
and costs 2 % of a core at most, as the pause grows with the time that a look takes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import NoReturn

from squall_cli.output import print_error
from squall_common.daemon.parent import end_with_parent
from squall_common.errors import PackageError, SquallError
from squall_common.packaging.package import package_files

# Other files of a package may be what the topology itself writes.
_SUFFIXES = frozenset({".py", ".toml", ".yaml", ".yml"})
_RESOURCES = "resources"

_LOOK_SECS = 0.3
_LOOK_SHARE = 0.02
# Editors and `git checkout` change several files, and some in steps: wait until they have finished.
_CALM_SECS = 0.2
_STOP_SECS = 10.0
_NAMES_MAX = 3

Snapshot = Mapping[str, object]


def snapshot(package: Path, *others: Path) -> Snapshot:
    """The state of the files that make a run what it is, by name. A package that cannot be read
    (half of it is being written) has its error as a state."""
    found: dict[str, object] = {}
    try:
        files = dict(package_files(package)) if package.is_dir() else {package.name: package}
        for name, path in files.items():
            if package.is_dir() and not _makes_the_run(name):
                continue
            found[name] = _state(path)
        for path in others:
            found[str(path)] = _state(path)
    except (PackageError, OSError) as error:
        found[str(package)] = str(error)
    return found


def _makes_the_run(name: str) -> bool:
    path = Path(name)
    return path.suffix in _SUFFIXES or path.parts[0] == _RESOURCES


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """The names of the files that differ, sorted."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


def run_reloading(look: Callable[[], Snapshot], run: Callable[[], int]) -> int:
    """Call `run` in a child process, and again after each change of what `look` returns, until
    Ctrl-C. Returns the exit status: 0, as that is how it is meant to end."""
    before_term = signal.signal(signal.SIGTERM, _exit_on_signal)
    files = look()
    child = _Run(run)
    try:
        while True:
            files, names = _next_change(look, files, child)
            shown = ", ".join(names[:_NAMES_MAX]) + (", ..." if len(names) > _NAMES_MAX else "")
            _say(f"{shown} changed: running the topology again")
            child.stop()
            child = _Run(run)
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C: it is stopping
        child.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, before_term)


def _next_change(
    look: Callable[[], Snapshot], files: Snapshot, child: _Run
) -> tuple[Snapshot, list[str]]:
    """Wait for a change, and until it is complete. Returns the files then, and which changed."""
    ended = False
    pause_secs = _LOOK_SECS
    while True:
        time.sleep(pause_secs)
        if not ended and child.status() is not None:
            ended = True
            _say("waiting for a change of the source (Ctrl-C ends)")
        began = time.perf_counter()
        now = look()
        pause_secs = max(_LOOK_SECS, (time.perf_counter() - began) / _LOOK_SHARE)
        if now == files:
            continue
        while True:
            time.sleep(_CALM_SECS)
            later = look()
            if later == now:
                break
            now = later
        if names := changed(files, now):
            return now, names


class _Run:
    """One run, in a process group of its own: Ctrl-C reaches only the process that reloads."""

    def __init__(self, run: Callable[[], int]) -> None:
        self._status: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        with_parent = end_with_parent()
        self._pid = os.fork()
        if self._pid == 0:
            _in_child(with_parent, run)

    def status(self) -> int | None:
        """The exit status, or None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def stop(self) -> None:
        """End it and all that it has started: in order, and by force after some seconds."""
        deadline = time.monotonic() + _STOP_SECS
        if self.status() is None:
            os.kill(self._pid, signal.SIGTERM)
        while self.status() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        while self.status() is None:
            time.sleep(0.02)


def _in_child(with_parent: Callable[[], None], run: Callable[[], int]) -> NoReturn:
    status = 1
    try:
        os.setsid()
        with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        status = run()
    except SquallError as error:
        print_error(error)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _say(text: str) -> None:
    print(f"reload: {text}", file=sys.stderr, flush=True)
