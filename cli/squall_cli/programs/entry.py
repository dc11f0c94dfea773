"""Runs a user's entry point for `storm jar` and `storm local`, in a separate process.

The child (`python -m squall._entry`) imports the user's code from the package and runs it; its
`submit_topology` finds in the environment where the package is, and whether to submit the topology
to a cluster or to run it right there. This process imports no user code.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from squall_cli.options import Settings
from squall_cli.programs.dependencies import DependencyOptions, prepare_dependencies
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.parent import end_with_parent
from squall_common.packaging.package import build_package

_SAY_SECS = 12.0  # a call of Python that does not return has ended the child before
_KILL_SECS = 2.0


def run_entry(
    package: Path,
    entry: str,
    arguments: Sequence[str],
    *,
    settings: Settings,
    mode: str,
    dependencies: DependencyOptions | None = None,
    local_ttl_secs: float | None = None,
    local_workers: int | None = None,
    wait_secs: int | None = None,
    credentials: Path | None = None,
    program: str = "squall._entry",
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run an entry point of a package and return its exit status (128 + N when signal N ended it).

    A folder is packed first; a package that cannot be used raises PackageError before anything
    runs. `program` is the module that runs the entry point; `environment` is added to its own.
    SIGINT reaches the child from the terminal, and this process waits for it to finish.
    """
    conf = settings.load()
    with tempfile.TemporaryDirectory(prefix="squall-package-") as folder:
        archive = build_package(package, Path(folder))
        found = (
            {}
            if dependencies is None
            else prepare_dependencies(
                dependencies,
                package,
                archive,
                Path(folder),
                None if mode in ("local", "graph", "spark") else ClientOptions.read(conf),
            )
        )
        child_environment = {
            **os.environ,
            **found,
            **(environment or {}),
            "STORM_JAR": str(archive),
            "SQUALL_MODE": mode,
            "SQUALL_CLIENT_CONF": json.dumps(conf),
            "SQUALL_CLIENT_OVERRIDES": json.dumps(settings.parsed_overrides()),
        }
        if local_ttl_secs is not None:
            child_environment["SQUALL_LOCAL_TTL"] = str(local_ttl_secs)
        if local_workers is not None:
            child_environment["SQUALL_LOCAL_WORKERS"] = str(local_workers)
        if credentials is not None:  # the file, not what is in it
            child_environment["SQUALL_CREDENTIALS"] = str(credentials.absolute())
        if wait_secs is not None:
            child_environment["SQUALL_WAIT"] = str(wait_secs)
        argv = [sys.executable, "-P", "-m", program, entry, *arguments]
        sys.stdout.flush()
        sys.stderr.flush()
        # One left behind would go on submitting, or running a topology unwatched.
        child = subprocess.Popen(argv, env=child_environment, preexec_fn=end_with_parent())
        status = wait_for_child(child, ends_at_second=mode == "local")
    return 128 - status if status < 0 else status


def wait_for_child(child: subprocess.Popen[bytes], *, ends_at_second: bool = False) -> int:
    """Wait for the child whatever signals come: the terminal sends it SIGINT too, and SIGTERM is
    passed on, so that it is never left behind.

    With `ends_at_second`, a second SIGINT kills a child that has not ended soon after it, and some
    seconds after the first one that is said. A call in C that does not give the interpreter free
    leaves the child no way to react by itself."""
    interrupts = 0

    def interrupted(_number: int, _frame: object) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts <= 2:
            signal.setitimer(signal.ITIMER_REAL, _SAY_SECS if interrupts == 1 else _KILL_SECS)

    def time_is_up(_number: int, _frame: object) -> None:
        if interrupts == 1:
            print("note: it has not ended yet; Ctrl-C again ends it at once", file=sys.stderr)
        else:
            child.kill()

    def pass_on(number: int, _frame: object) -> None:
        child.send_signal(number)

    before_term = signal.signal(signal.SIGTERM, pass_on)
    before_int = signal.signal(signal.SIGINT, interrupted if ends_at_second else signal.SIG_IGN)
    before_alarm = signal.signal(signal.SIGALRM, time_is_up)
    try:
        return child.wait()
    finally:
        if interrupts:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before_alarm)
        signal.signal(signal.SIGTERM, before_term)
        signal.signal(signal.SIGINT, before_int)
