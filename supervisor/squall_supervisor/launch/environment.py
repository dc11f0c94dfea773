"""Decides what a worker inherits from its supervisor's environment.

A worker runs code that is not trusted: the supervisor's environment may hold secrets, and settings
of the supervisor's own Python. Only the variables named here are passed on, then the topology's
own.
"""

from __future__ import annotations

import importlib.util
import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

# Passed on from the supervisor's environment, besides every LC_ variable.
_KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH",
    "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "STORM_CONF_DIR", "STORM_HOME", "VIRTUAL_ENV",
    "SYSTEMROOT",
)  # fmt: skip

# Imported by workers, from the same folders as by the supervisor.
_PACKAGES = (
    "squall", "squall_common", "squall_engine", "squall_thrift", "squall_worker", "squall_drpc",
)  # fmt: skip


def worker_environment(
    own: Mapping[str, str],
    topology: Mapping[str, object],
    *,
    import_path: list[str],
    temporary_dir: Path,
    marks: Mapping[str, str],
) -> dict[str, str]:
    """The environment of a worker. `topology` is `topology.environment`: it may add and override
    variables, except that its PYTHONPATH comes after the one that squall needs. `marks` come last.
    """
    environment = {
        name: value for name, value in own.items() if name in _KEPT or name.startswith("LC_")
    }
    environment["TMPDIR"] = str(temporary_dir)
    # A line that user code prints is in worker.log.out at once, even if the worker is killed.
    environment["PYTHONUNBUFFERED"] = "1"
    path = list(import_path)
    for name, value in topology.items():
        text = str(value)
        if not name or "=" in name or "\0" in name or "\0" in text:
            continue  # an environment cannot hold it
        if name == "PYTHONPATH":
            path += [part for part in text.split(os.pathsep) if part]
        else:
            environment[name] = text
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path))
    environment.update(marks)
    return environment


def import_path(own: Mapping[str, str] = os.environ) -> list[str]:
    """Folders for a worker's PYTHONPATH, with which it imports the same squall as this process: our
    own PYTHONPATH, made absolute, and the folders of our packages. Site folders are left out: the
    interpreter adds them by itself, and in PYTHONPATH they would come before the standard library.
    """
    folders = [
        os.path.abspath(part) for part in own.get("PYTHONPATH", "").split(os.pathsep) if part
    ]
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            folders.append(os.path.dirname(os.path.dirname(os.path.abspath(spec.origin))))
    by_itself = {os.path.realpath(p) for p in [*site.getsitepackages(), site.getusersitepackages()]}
    by_itself.add(os.path.realpath(os.path.dirname(os.__file__)))
    return [f for f in dict.fromkeys(folders) if os.path.realpath(f) not in by_itself]


def worker_interpreter() -> list[str]:
    """The command that starts Python as this process runs it. `-P`: nothing is imported from the
    worker's folder, in which it is started."""
    return [sys.executable, "-P"]
