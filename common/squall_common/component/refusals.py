"""A reason why a topology cannot run: what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from squall_common.errors import InvalidTopologyError, SquallError
from squall_common.topology.model import Component, PythonObject


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason why a topology cannot run. `what` is a sentence that names the component or the
    option; `remedy` says what to do."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"

    def error(self) -> SquallError:
        """This reason alone."""
        return SquallError(self.what, hint=self.remedy)


def refuse(refusals: Iterable[Refusal]) -> None:
    """Raise InvalidTopologyError that lists the refusals, if there are any."""
    problems = [str(one) for one in refusals]
    if problems:
        raise InvalidTopologyError.listing(problems)


def refusal_of(component: Component, what: str, remedy: str, cls: type | None = None) -> Refusal:
    """A refusal that names the component and its class, as the topology has it if not given."""
    where = f"{component.kind.value} {component.id!r}"
    if cls is not None:
        where += f" ({cls.__qualname__})"
    elif isinstance(component.object, PythonObject):
        where += f" ({component.object})"
    return Refusal(f"{where} {what}", remedy)
