"""The child process of `storm jar` and `storm local`: runs the entry point of a package.

    python -P -m squall._entry ENTRY ARGS...

ENTRY is a `module` (run as `python -m` would), a `module:function`, or the `path/of/module.py` in
the package. The parent passes everything else in environment variables:

    STORM_JAR                 the package, an archive
    SQUALL_MODE               cluster | local
    SQUALL_CLIENT_CONF        the client's configuration, JSON
    SQUALL_CLIENT_OVERRIDES   the options set by -c, JSON (optional): they override the topology's
                              conf
    SQUALL_LOCAL_TTL          in local mode, how many seconds the topologies run at most (optional);
                              they end once all of them have finished
    SQUALL_LOCAL_WORKERS      in local mode, how many worker processes run each topology (optional:
                              without it, this process runs them)
    SQUALL_WAIT               on a cluster, how many seconds to wait until they run (optional)
    SQUALL_ENVIRONMENT        the package's dependencies, installed (optional;
                              squall_common.packaging.dependencies)
    SQUALL_WHEELS             the same as wheels for the cluster, JSON (optional)
    SQUALL_CREDENTIALS        a properties file with credentials of its topologies (optional)

The exit status is 1 after an error, and in local mode if a message failed, otherwise that of the
entry point. An expected error prints one message; an exception in the user's code prints its
traceback, without Squall's frames.
"""

from __future__ import annotations

import difflib
import importlib
import json
import logging
import os
import runpy
import signal
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from squall._held_loop import HeldLoop
from squall._import_check import MODE_VARIABLE
from squall._submit import Session, set_session
from squall_common.config.load import default_conf
from squall_common.config.options.typed import ClientOptions, WorkerOptions
from squall_common.daemon.logs import set_up_logging
from squall_common.errors import PackageError, SquallError, missing_package
from squall_common.packaging.package import (
    code_paths,
    import_paths,
    modules_in,
    offer_to_children,
    unpack_package,
)
from squall_common.topology.signatures import signature_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from squall._workers import LocalWorkers
    from squall.local import LocalCluster
    from squall_common.topology.model import Topology

_EXIT_SECS = 15  # after a signal; topologies in local mode have their time to stop besides

ARCHIVE_VARIABLE = "STORM_JAR"
CONF_VARIABLE = "SQUALL_CLIENT_CONF"
OVERRIDES_VARIABLE = "SQUALL_CLIENT_OVERRIDES"
LOCAL_TTL_VARIABLE = "SQUALL_LOCAL_TTL"
LOCAL_WORKERS_VARIABLE = "SQUALL_LOCAL_WORKERS"
WAIT_VARIABLE = "SQUALL_WAIT"
ENVIRONMENT_VARIABLE = "SQUALL_ENVIRONMENT"
WHEELS_VARIABLE = "SQUALL_WHEELS"
CREDENTIALS_VARIABLE = "SQUALL_CREDENTIALS"


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A module of the package, and the function in it to call (None: run it as `__main__`)."""

    module: str
    function: str | None
    file: Path


def find_entry(entry: str, code: Path) -> EntryPoint:
    """The entry point `entry` of an unpacked package. Raises PackageError, which says what was not
    found and suggests a similar name."""
    name, colon, function = entry.partition(":")
    if colon and not function.isidentifier():
        raise PackageError(
            f"entry point {entry!r}: {function!r} is not a function name",
            hint="an entry point is module, module:function or path/of/module.py",
        )
    module = _module_of(entry, name)
    file = _file_of(module, code)
    if file is None:
        known = [one for one in modules_in(code) if colon or _runs(one, code)]
        last = module.rpartition(".")[2]
        near = difflib.get_close_matches(module, known, n=1) or [
            m for m in known if m.rpartition(".")[2] == last
        ]
        raise PackageError(
            f"the package has no module {module!r}",
            hint=f"did you mean {near[0]!r}?"
            if near
            else "it has: " + (", ".join(known[:20]) or "no Python module at its top level"),
        )
    if file.name == "__init__.py" and not colon:
        main = file.with_name("__main__.py")
        if not _runs(module, code):
            raise PackageError(
                f"{module!r} is a package without __main__.py",
                hint=f"name one of its modules, or a function: {module}:main",
            )
        file = main
    loaded = sys.modules.get(module.partition(".")[0])
    if loaded is not None and not (getattr(loaded, "__file__", None) or "").startswith(str(code)):
        raise PackageError(
            f"module {module!r} of the package has the same name as a module that Python or squall "
            "uses: workers would import that one instead",
            hint="rename it",
        )
    return EntryPoint(module, function or None, file)


def _module_of(entry: str, name: str) -> str:
    if not name.endswith(".py") and "/" not in name:
        if not name or any(not part for part in name.split(".")):
            raise PackageError(
                f"{entry!r} is not an entry point",
                hint="an entry point is module, module:function or path/of/module.py",
            )
        return name
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise PackageError(
            f"entry point {entry!r} lies outside the package",
            hint="give its path within the package, such as jobs/wordcount.py",
        )
    parts = path.with_suffix("").parts if name.endswith(".py") else path.parts
    if any("." in part for part in parts):
        raise PackageError(f"entry point {entry!r}: a module's name cannot contain a dot")
    return ".".join(parts)


def _file_of(module: str, code: Path) -> Path | None:
    for root in code_paths(code):
        path = Path(root, *module.split("."))
        for file in (path / "__init__.py", path.with_name(path.name + ".py"), path / "__main__.py"):
            if file.is_file():
                return file
    return None


def _runs(module: str, code: Path) -> bool:
    """Whether a module can be run as it is: it is a file, or a package with `__main__.py`."""
    file = _file_of(module, code)
    if file is None or file.name != "__init__.py":
        return file is not None
    return file.with_name("__main__.py").exists()


def run_entry(entry: EntryPoint, arguments: Sequence[str], code: Path) -> None:
    """Run an entry point in this process. Its imports must be on sys.path already."""
    sys.argv = [str(entry.file), *arguments]
    if entry.function is None:
        runpy.run_module(entry.module, run_name="__main__", alter_sys=True)
        return
    function = getattr(importlib.import_module(entry.module), entry.function, None)
    if not callable(function):
        raise PackageError(f"module {entry.module!r} has no function {entry.function!r}")
    # main() reads sys.argv; main(argv) gets the arguments that follow the entry point.
    parameters = signature_of(function).parameters.values()
    required = [
        p
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    status = function(list(arguments)) if len(required) == 1 else function()
    if isinstance(status, int) and not isinstance(status, bool) and status != 0:
        raise SystemExit(status)


def main(
    argv: Sequence[str],
    env: Mapping[str, str] = os.environ,
    runner: Callable[[Session, str, Mapping[str, Any], Topology], None] | None = None,
    mode: str = "spark",
    program: Callable[[Session, Sequence[str]], None] | None = None,
) -> int:
    """Run the entry point that `argv` names, and return the exit status. If SQUALL_MODE is `mode`,
    `runner` is called for each topology it submits, with the session, name, configuration and
    topology. `program` is called with the session and `argv` instead of an entry point of the
    package."""
    if not argv:
        print("error: usage: python -m squall._entry ENTRY ARGS...", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit_on_signal)  # so that the temporary folder is removed
    with tempfile.TemporaryDirectory(prefix="squall-entry-") as folder:
        try:
            return _run(argv, Path(folder), env, runner, mode, program)
        except SquallError as error:
            print_error(error)
            return 1
        except KeyboardInterrupt:
            return 128 + signal.SIGINT


_exit_status: int | None = None  # after a signal


def ended_by_signal() -> int | None:
    """The exit status that a signal to end has asked for, if one has come."""
    return _exit_status


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    global _exit_status
    _exit_status = 128 + number
    # What is cleaned up on the way out may wait for something that never comes, as PySpark does for
    # the answer to a call that was interrupted. Then the kernel ends this process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_EXIT_SECS)
    raise SystemExit(_exit_status)


def _allow_time_to_stop(session: Session, cluster: LocalCluster | LocalWorkers) -> None:
    """After a signal: let the topologies take as long to stop as workers may. (One that was being
    submitted when the signal came may run, too.)"""
    if signal.alarm(0):
        secs = WorkerOptions.read(session.conf).supervisor_worker_shutdown_sleep_secs
        signal.setitimer(signal.ITIMER_REAL, _EXIT_SECS + secs * len(cluster.names()))


def _run(
    argv: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    runner: Callable[[Session, str, Mapping[str, Any], Topology], None] | None,
    runner_mode: str,
    program: Callable[[Session, Sequence[str]], None] | None,
) -> int:
    session = _session(folder, env, runner_mode if runner is not None else "local")
    if runner is not None:
        session.runner = partial(runner, session)
    if program is None:
        entry = find_entry(argv[0], session.code)
        call = partial(run_entry, entry, argv[1:], session.code)
    else:
        call = partial(program, session, argv)
    set_session(session)
    sys.path[:0] = import_paths(session.code, session.environment)
    if session.environment is not None:
        offer_to_children(session.environment)
    if session.mode == "local":
        level = ClientOptions.read(session.conf).storm_log_level
        set_up_logging(level=logging.getLevelNamesMapping()[level])
    failed = 0
    cut_short: list[str] = []
    given = env.get(LOCAL_TTL_VARIABLE)
    ttl_secs = float(given) if given else None
    held = HeldLoop(partial(_loop_of, session), folder)
    if ttl_secs is not None:  # even a submit waits for a loop that is held
        held.allow(ttl_secs)
    try:
        status = _call(call)
        if status == 0 and session.local_cluster is not None:
            if ttl_secs is not None:
                held.allow(ttl_secs)
            if session.local_cluster.wait(ttl_secs, until_finished=True):
                for name in session.local_cluster.names():
                    print(
                        f"{name} has finished: all input is read, and nothing is in flight",
                        file=sys.stderr,
                    )
        elif status == 0 and not session.submitted:
            print(f"note: {argv[0]} ended without submitting a topology", file=sys.stderr)
        elif status == 0 and session.mode == "cluster" and env.get(WAIT_VARIABLE):
            _wait_running(session, float(env[WAIT_VARIABLE]))
    finally:
        set_session(None)
        if session.local_cluster is not None:
            held.end()
            failed = _print_counts(session.local_cluster)
            _allow_time_to_stop(session, session.local_cluster)
            session.local_cluster.shutdown()
            cut_short = getattr(session.local_cluster, "cut_short", [])
    if status == 0 and cut_short:
        raise SquallError(
            f"{', '.join(cut_short)} ended without a last checkpoint: what came after the one "
            "before is not in its sinks",
            hint="the errors above say why; the next start goes on from the one before",
        )
    if status == 0 and failed:
        raise SquallError(
            f"{failed} message{'s' if failed > 1 else ''} failed, and no replay succeeded",
            hint="the errors above say why; a message that timed out has none",
        )
    return status


def _loop_of(session: Session) -> tuple[threading.Thread, AbstractEventLoop] | None:
    """The loop of the topologies, with its thread. (Worker processes are ended by others.)"""
    if session.local_cluster is None or session.local_workers is not None:
        return None
    cluster = cast("LocalCluster", session.local_cluster)
    thread, loop = cluster._thread, cluster._loop
    return None if thread is None or loop is None else (thread, loop)


def _wait_running(session: Session, limit_secs: float) -> None:
    from squall_common.client.waiting import wait_running

    wait_running(ClientOptions.read(session.conf), session.submitted, limit_secs)
    for name in session.submitted:
        print(f"every task of topology {name!r} is running", file=sys.stderr)


def _print_counts(cluster: LocalCluster | LocalWorkers) -> int:
    """Print the counts of each component, and its last errors. Returns how many messages of spouts
    failed for good."""
    failed_of_all = 0
    for name in cluster.names():
        totals, failed, errors = _findings(cluster, name)
        for component, counts in sorted(totals.items()):
            shown = ", ".join(f"{what} {count}" for what, count in counts.items())
            print(f"{name}: {component}: {shown}", file=sys.stderr)
        failed_of_all += failed
        for (component, error), count in list(errors.items())[-3:]:
            times = f" ({count} times)" if count > 1 else ""
            print(_printable(f"{name}: {component}: last errors: {error}{times}"), file=sys.stderr)
    return failed_of_all


def _findings(
    cluster: LocalCluster | LocalWorkers, name: str
) -> tuple[dict[str, dict[str, int]], int, Counter[tuple[str, str]]]:
    """A topology's counts by component, its failed messages, and how often each of its errors, a
    component and a line, was reported."""
    from squall.local import LocalCluster

    errors: Counter[tuple[str, str]] = Counter()
    if isinstance(cluster, LocalCluster):
        for one in cluster.errors(name):
            errors[one.component, f"{type(one.error).__name__}: {one.error}"] += 1
        return cluster.totals(name), cluster.failed_messages(name), errors
    totals, failed = cluster.counts(name)
    for reported in cluster.errors(name):
        errors[reported.component, reported.headline] += reported.count
    return totals, failed, errors


def _session(folder: Path, env: Mapping[str, str], other: str) -> Session:
    archive, mode = env.get(ARCHIVE_VARIABLE), env.get(MODE_VARIABLE, "cluster")
    if not archive:
        raise SquallError(f"{ARCHIVE_VARIABLE} does not name a package", hint="use `storm jar`")
    if mode not in ("cluster", other):
        raise SquallError(f"{MODE_VARIABLE} is {mode!r}; expected cluster or {other}")
    given = env.get(CONF_VARIABLE)
    environment = env.get(ENVIRONMENT_VARIABLE)
    workers = env.get(LOCAL_WORKERS_VARIABLE)
    conf: dict[str, Any] = json.loads(given) if given else default_conf()
    return Session(
        mode=cast(Any, mode),
        archive=Path(archive).absolute(),
        code=unpack_package(Path(archive), folder),
        conf=conf,
        overrides=json.loads(env.get(OVERRIDES_VARIABLE) or "{}"),
        environment=Path(environment) if environment else None,
        local_workers=int(workers) if workers else None,
        credentials=_credentials(env.get(CREDENTIALS_VARIABLE)),
        wheels=tuple(Path(path) for path in json.loads(env.get(WHEELS_VARIABLE) or "[]")),
    )


def _credentials(path: str | None) -> Mapping[str, str]:
    if not path:
        return {}
    from squall_common.config.properties import read_credentials

    return read_credentials(Path(path))


def _call(code: Callable[[], None]) -> int:
    """Run the user's code and return its exit status. Prints the traceback of its exceptions."""
    try:
        code()
    except (SquallError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        print_user_error(error)
        return 1
    return 0


def print_error(error: SquallError) -> None:
    """Print an expected failure: what happened, and what to do about it."""
    print(f"error: {_printable(error.message)}", file=sys.stderr)
    if error.hint is not None:
        print(f"hint: {_printable(error.hint)}", file=sys.stderr)


def _printable(text: str) -> str:
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def print_user_error(error: BaseException) -> None:
    """Print the traceback of the user's code, without Squall's frames that led to it."""
    shown = traceback.TracebackException.from_exception(error)
    stack = shown.stack
    while stack and _is_ours(stack[0].filename):
        del stack[0]
    print("".join(shown.format()), end="", file=sys.stderr)
    missing = missing_package(error)
    if missing is not None:
        print(f"hint: {_printable(missing)}", file=sys.stderr)


def _is_ours(filename: str) -> bool:
    return (
        filename == __file__
        or filename.startswith("<frozen ")
        or (os.path.basename(filename) == "runpy.py" or f"{os.sep}importlib{os.sep}" in filename)
    )


def exit_process(status: int, mode: str | None) -> None:
    """End the process. In local mode, do so even if a component left a thread that keeps
    running."""
    if mode == "local" and any(
        thread is not threading.main_thread() and not thread.daemon
        for thread in threading.enumerate()
    ):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    # The module that users' code can import, not a second copy of it named `__main__`.
    from squall import _entry as _entry

    _entry.exit_process(_entry.main(sys.argv[1:]), os.environ.get(MODE_VARIABLE))
