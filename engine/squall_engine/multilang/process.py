"""One child process and its three pipes on the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

_READ_BYTES = 65_536
# When a child has ended, what it left in its pipes is read: as much as a pipe may hold (1 MiB, when
# somebody enlarged it), but not what a grandchild goes on to write.
_LAST_READS = 32
_LINE_BYTES_MAX = 8_192
_LINES_KEPT = 20


class ChildProcess:
    """A running child. It leads a process group of its own in the worker's session: Ctrl-C in a
    terminal does not reach it, the supervisor finds it when the worker was killed, and what it
    started itself is ended with it.

    All callbacks come from the event loop; after `on_exit` there are none. `close` ends them, too.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        dies_with_us: bool,
        on_output: Callable[[bytes], None],
        on_writable: Callable[[], None],
        on_error_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        """Starts it. Raises OSError when that fails. With `dies_with_us` the kernel kills it when
        the thread that runs the loop ends, however it does. `on_exit(status)` is as
        `subprocess.Popen.returncode`; everything that the child wrote was handed over before."""
        self._loop = asyncio.get_running_loop()
        self._on_output = on_output
        self._on_writable = on_writable
        self._on_error_line = on_error_line
        self._on_exit = on_exit
        self._process = subprocess.Popen(
            _bound(argv, cwd, env) if dies_with_us else list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            process_group=0,
        )
        self.pid = self._process.pid
        try:
            self._pidfd: int | None = os.pidfd_open(self.pid)
        except OSError:  # no descriptor is left: its exit would never be noticed
            with self._process:  # closes its pipes
                self._kill_group()
            raise
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._stdin: int | None = stdin.fileno()
        self._stdout: int | None = stdout.fileno()
        self._stderr: int | None = stderr.fileno()
        self._error_rest = b""
        self.error_lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._writing = False  # waiting until stdin takes more
        for fd in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(fd, False)
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        self._has_come = poll.poll
        self._loop.add_reader(self._stdout, self._read_output)
        self._loop.add_reader(self._stderr, self._read_errors)
        self._loop.add_reader(self._pidfd, self._ended)

    @property
    def is_full(self) -> bool:
        """Whether `on_writable` is due before stdin takes more."""
        return self._writing

    def write(self, data: bytes | memoryview) -> int:
        """Write what the pipe takes; the number of bytes. When it takes less than all,
        `on_writable` is called once it takes more. A child that has closed its stdin takes
        nothing: its end, or its silence, will be noticed."""
        if self._stdin is None:
            return 0
        try:
            n = os.write(self._stdin, data)
        except BlockingIOError:
            n = 0
        except OSError:  # EPIPE
            self._close_stdin()
            return 0
        if n < len(data) and not self._writing:
            self._writing = True
            self._loop.add_writer(self._stdin, self._can_write)
        return n

    def _can_write(self) -> None:
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            self._writing = False
            self._on_writable()

    def _read_output(self) -> None:
        if not self._read(self._stdout, self._on_output):
            self._close_stdout()

    def read_within(self, secs: float) -> bytes:
        """What it writes within so many seconds, without going back to the loop; empty when there
        is nothing, or when it has closed its stdout. What is returned does not go to `on_output`.

        Looks again and again, and lets others have the core in between: the child may be waiting
        for this very one. (To sleep until there is something takes more CPU: a timer is set for
        each timeout.)"""
        if self._stdout is None:
            return b""
        has_come = self._has_come
        if not has_come(0):
            until = perf_counter() + secs
            while True:
                os.sched_yield()
                if has_come(0):
                    break
                if perf_counter() >= until:
                    return b""
        try:
            return os.read(self._stdout, _READ_BYTES)
        except BlockingIOError:
            return b""

    def _read_errors(self) -> None:
        if not self._read(self._stderr, self._take_errors):
            self._close_stderr()

    def _read(self, fd: int | None, take: Callable[[bytes], None]) -> bool:
        """False at the end of the pipe, and when there is nothing to read."""
        if fd is None:
            return False
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            take(data)
        return bool(data)

    def _take_errors(self, data: bytes) -> None:
        *lines, rest = (self._error_rest + data).split(b"\n")
        if len(rest) > _LINE_BYTES_MAX:
            lines.append(rest)
            rest = b""
        self._error_rest = rest
        for line in lines:
            self._take_error_line(line)

    def _take_error_line(self, line: bytes) -> None:
        text = line[:_LINE_BYTES_MAX].decode(errors="replace").rstrip()
        if text:
            self.error_lines.append(text)
            self._on_error_line(text)

    def _ended(self) -> None:
        """The process is a zombie: its number is still its own."""
        self._read_last(lambda: self._stdout, self._on_output)
        if self._pidfd is None:
            return  # closed by what `on_output` did
        self._read_last(lambda: self._stderr, self._take_errors)
        if self._error_rest:
            self._take_error_line(self._error_rest)
        self._kill_group()
        status = self._process.wait()
        self._release()
        self._on_exit(status)

    def _read_last(self, fd: Callable[[], int | None], take: Callable[[bytes], None]) -> None:
        for _ in range(_LAST_READS):
            now = fd()
            if now is None:
                return
            try:
                data = os.read(now, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            take(data)

    def terminate(self) -> None:
        """Ask it to end: SIGTERM, and no more input."""
        if self._pidfd is not None:
            # Not Popen.send_signal, which may collect the zombie and so free its number.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        self._close_stdin()

    def kill(self) -> None:
        """SIGKILL to it and to what it started."""
        if self._pidfd is not None:
            self._kill_group()

    def close(self) -> None:
        """Kill it and wait for its end (which takes no time). No callback comes any more."""
        if self._pidfd is not None:
            self._kill_group()
            self._process.wait()
            self._release()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)  # one that has left the group

    def _release(self) -> None:
        self._close_stdin()
        self._close_stdout()
        self._close_stderr()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            if self._writing:
                self._loop.remove_writer(self._stdin)
            self._stdin = None
            assert self._process.stdin is not None
            self._process.stdin.close()

    def _close_stdout(self) -> None:
        if self._stdout is not None:
            self._loop.remove_reader(self._stdout)
            self._stdout = None
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _close_stderr(self) -> None:
        if self._stderr is not None:
            self._loop.remove_reader(self._stderr)
            self._stderr = None
            assert self._process.stderr is not None
            self._process.stderr.close()


def _bound(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> list[str]:
    """The command, started by util-linux's setpriv, which asks the kernel for the signal and then
    becomes it: a function of ours between fork and exec would not be safe beside threads. Without
    setpriv, and where the command is not found (which is then said as ever), nothing is asked."""
    setpriv = shutil.which("setpriv")
    command = str(cwd / argv[0]) if os.sep in argv[0] else argv[0]
    if setpriv is None or shutil.which(command, path=env.get("PATH")) is None:
        return list(argv)
    return [setpriv, "--pdeathsig", "KILL", *argv]
