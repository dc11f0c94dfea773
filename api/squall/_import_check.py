"""Checks in a fresh interpreter whether a worker could import a topology's components.

    python -P -m squall._import_check          the question on stdin, the answer on stdout, both
                                               JSON

Imports that worked in the client's own process prove nothing: there the entry point ran as
`__main__`, modules were found on that process's path, and a `submit_topology` without
`if __name__ == "__main__"` ran once, as intended. A worker that imports such a module would submit
the topology again.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.errors import InvalidTopologyError, PackageError, SquallError, missing_package
from squall_common.packaging.package import import_paths
from squall_common.topology.arguments import TAGGED, decode_arguments
from squall_common.topology.import_paths import import_path
from squall_common.topology.model import PythonObject, Topology

MODE_VARIABLE = "SQUALL_MODE"
CHECK_MODE = "import-check"
_TIMEOUT_SECS = 60.0


class UnguardedSubmitError(BaseException):
    """Importing a module called `submit_topology`. Not an Exception, so that an `except Exception`
    around the call cannot hide it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One object that workers will import, and where the topology uses it."""

    where: str  # "bolt 'split'"
    object: PythonObject


def recorded_in(topology: Topology) -> list[Recorded]:
    """Everything in a topology that workers import, except Squall's own classes."""
    found = [
        Recorded("worker hook", hook)
        for hook in topology.worker_hooks
        if isinstance(hook, PythonObject)
    ]
    for component in topology.components.values():
        where = f"{component.kind.value} {component.id!r}"
        if isinstance(component.object, PythonObject):
            found.append(Recorded(where, component.object))
        found.extend(
            Recorded(f"{where}, grouping on {str(source)!r}", grouping.custom)
            for source, grouping in component.inputs.items()
            if grouping.custom is not None
        )
    return [r for r in found if not _is_ours(r.object)]


def _is_ours(recorded: PythonObject) -> bool:
    """Whether an object needs no check: its class is Squall's, and its arguments name no code."""
    ours = recorded.class_path.startswith(("squall.", "squall_common."))
    return ours and TAGGED not in recorded.arguments


class ImportCheck:
    """A check that runs beside the caller: `start`, then `wait_result`, or `cancel`."""

    def __init__(
        self, code: Path | None, recorded: Sequence[Recorded], environment: Path | None = None
    ) -> None:
        """`code` is the unpacked package; `environment` has its dependencies installed."""
        self._question = json.dumps(
            {
                "paths": [] if code is None else import_paths(code, environment),
                "recorded": [
                    [r.where, r.object.class_path, base64.b64encode(r.object.arguments).decode()]
                    for r in recorded
                ],
            }
        ).encode()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the interpreter."""
        environment = {**os.environ, MODE_VARIABLE: CHECK_MODE}
        if environment.get("PYTHONPATH"):  # it runs in another folder
            paths = environment["PYTHONPATH"].split(os.pathsep)
            environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "squall._import_check"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=tempfile.gettempdir(),  # a worker runs elsewhere too
            env=environment,
        )

    def wait_result(self) -> None:
        """Wait for the answer. Raises InvalidTopologyError or PackageError, which says what a
        worker could not import, and why."""
        assert self._process is not None, "start() first"
        try:
            answer, _ = self._process.communicate(self._question, _TIMEOUT_SECS)
        except subprocess.TimeoutExpired:
            raise PackageError(
                f"importing the topology's modules took more than {_TIMEOUT_SECS:.0f} s",
                hint='put the code that a program runs behind `if __name__ == "__main__":`',
            ) from None
        finally:
            self.cancel()
        try:
            problems = json.loads(answer)
        except ValueError:
            status = self._process.returncode
            raise PackageError(
                f"importing the topology's modules ended the interpreter (status {status})"
            ) from None
        if problems:
            raise InvalidTopologyError.listing(problems)

    def cancel(self) -> None:
        """End the interpreter, if it still runs."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()


def _problem(where: str, class_path: str, arguments: bytes) -> str | None:
    """Why a worker could not make this object, or None."""
    module = class_path.partition(":")[0]
    try:
        importlib.import_module(module)
        found = import_path(class_path)
        if not isinstance(found, type):
            return f"{where}: {class_path} is not a class"
        decode_arguments(arguments)
    except UnguardedSubmitError:
        return (
            f"importing module {module!r} calls submit_topology, and every worker imports it: "
            'put the call behind `if __name__ == "__main__":`'
        )
    except SystemExit as error:
        return (
            f"importing module {module!r} ends the interpreter (exit status {error.code!r}): "
            'put the code that a program runs behind `if __name__ == "__main__":`'
        )
    except ModuleNotFoundError as error:
        if error.name == module.partition(".")[0]:
            return (
                f"{where}: a worker could not import {class_path}: "
                f"there is no module {module!r} in the package"
            )
        return f"{where}: a worker could not import module {module!r}: {_reason(error)}"
    except SquallError as error:
        return f"{where}: " + str(error).replace("\n", "; ")
    except BaseException as error:
        return f"{where}: a worker could not import module {module!r}: {_reason(error)}"
    return None


def _reason(error: BaseException) -> str:
    """An error on one line, with the line of the user's code that raised it."""
    text = " ".join(f"{type(error).__name__}: {missing_package(error) or error}".split())
    own = os.path.dirname(__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((own, "<frozen")) and "importlib" not in frame.filename
    ]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text


def main() -> int:
    """Read the question, try the imports, write the answer."""
    # Output that the modules print must not mix with the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    question: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    sys.path[:0] = question["paths"]
    problems = []
    for where, class_path, arguments in question["recorded"]:
        problem = _problem(where, class_path, base64.b64decode(arguments))
        if problem is not None and problem not in problems:
            problems.append(problem)
    with answer:
        answer.write(json.dumps(problems).encode())
    return 0


if __name__ == "__main__":
    # Not this `__main__`, but the module that users' code sees: UnguardedSubmitError is one class.
    from squall import _import_check

    status = _import_check.main()
    # A thread that an imported module left running must not keep this interpreter alive.
    os._exit(status)
