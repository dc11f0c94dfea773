"""What a definition asks of the user's code: imports and calls, whose failures get the place in the
file that asked for them."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall._import_check import CHECK_MODE, MODE_VARIABLE, UnguardedSubmitError
from squall_common.errors import InvalidTopologyError, SquallError, describe
from squall_common.topology.import_paths import import_path
from squall_common.topology.signatures import signature_of
from squall_flux.recipe import Step
from squall_flux.storm_classes import STORM_CLASSES

_JAVA = ("org.apache.", "java.", "javax.", "com.", "backtype.")


def import_class(name: str, where: str) -> Any:
    """The class or function that a className names."""
    if name in STORM_CLASSES:
        return STORM_CLASSES[name]
    module, separator, attribute = name.partition(":")
    if not separator:
        module, _, attribute = name.rpartition(".")
    if not module or not attribute:
        raise InvalidTopologyError(f"{where}: {name!r} names no module; expected module:Name")
    try:
        with _no_submit():
            importlib.import_module(module)
            found = import_path(f"{module}:{attribute}")
    except UnguardedSubmitError:
        raise InvalidTopologyError(
            f"{where}: importing this module calls submit_topology",
            hint='put the call behind `if __name__ == "__main__":`',
        ) from None
    except (ImportError, SquallError, ValueError) as error:
        raise InvalidTopologyError(_import_problem(name, where, error)) from error
    except Exception as error:
        raise InvalidTopologyError(
            f"{where}: importing {name} raised {describe(error)}{_line_of(error)}"
        ) from error
    if not isinstance(found, (type, types.FunctionType)):
        raise InvalidTopologyError(
            f"{where}: {name} is a {type(found).__name__}; expected a class or a function"
        )
    if isinstance(found, type) and inspect.isabstract(found):
        raise InvalidTopologyError(f"{where}: {name} is an abstract class")
    return found


def _import_problem(name: str, where: str, error: Exception) -> str:
    module = name.partition(":")[0] if ":" in name else name.rpartition(".")[0]
    if isinstance(error, ImportError) and not f"{module}.".startswith(f"{error.name}."):
        return f"{where}: importing {name} raised {describe(error)}{_line_of(error)}"
    if name.startswith(_JAVA):
        last = name.rpartition(".")[2]
        near = [known for known in STORM_CLASSES if known.endswith(f".{last}")]
        expected = (
            f"did you mean {near[0]}?"
            if near
            else "expected a Python class such as jobs.words:Split"
        )
        return f"{where}: Squall has no Java class {name}; {expected}"
    if isinstance(error, SquallError):
        return f"{where}: {error.message}; expected module:Name of a class in the package"
    return (
        f"{where}: there is no module {module!r} in the package or its dependencies; "
        "expected module:Name of a class"
    )


@contextlib.contextmanager
def _no_submit() -> Iterator[None]:
    """Make submit_topology raise UnguardedSubmitError: modules are imported, not run."""
    before = os.environ.get(MODE_VARIABLE)
    os.environ[MODE_VARIABLE] = CHECK_MODE
    try:
        yield
    finally:
        if before is None:
            del os.environ[MODE_VARIABLE]
        else:
            os.environ[MODE_VARIABLE] = before


def check_arguments(step: Step) -> None:
    """Raise TypeError for arguments that a constructor or function of the user's does not take."""
    if step.factory is not None:
        return
    # Of a class, not its own signature: that may be the one of its metaclass.
    function = inspect.getattr_static(step.target, "__init__", step.target)
    if isinstance(step.target, types.FunctionType):
        signature_of(step.target).bind(*step.args, **step.kwargs)
    elif isinstance(function, types.FunctionType):
        signature_of(function).bind(None, *step.args, **step.kwargs)


@contextlib.contextmanager
def blame(where: str, what: str) -> Iterator[None]:
    """Turn what the user's code raises into an error with the place in the definition."""
    try:
        yield
    except InvalidTopologyError as error:
        raise InvalidTopologyError(f"{where}: {what}: {one_line(error)}") from error
    except Exception as error:
        raise InvalidTopologyError(
            f"{where}: {what} raised {describe(error)}{_line_of(error)}"
        ) from error


def _line_of(error: BaseException) -> str:
    """The line of the user's code that raised an error, if one did."""
    own = str(Path(__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((own, "<frozen"))
        and "squall_common" not in frame.filename
        and "importlib" not in frame.filename
        and "inspect.py" not in frame.filename
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def one_line(error: InvalidTopologyError) -> str:
    """An error with its hint, for a list."""
    return str(error).replace("\n", "; ")
