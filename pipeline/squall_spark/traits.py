"""The facts about users' classes that the planner needs: looked up once, in the driver."""

from __future__ import annotations

from dataclasses import dataclass

from squall_common.component.component import Bolt, Spout
from squall_common.component.stateful import StatefulBolt
from squall_common.errors import PackageError
from squall_common.topology.model import Component, PythonObject, Topology
from squall_common.topology.serialization import load_class


@dataclass(frozen=True, slots=True)
class Traits:
    """The methods and marks of a component's class. All False for a shell component: they are not
    known for a program."""

    flushes: bool = False  # Bolt.flush
    bounded: bool = False  # Spout.exhausted
    hears_acks: bool = False  # Spout.ack or Spout.fail
    stateful: bool = False  # a StatefulBolt
    stateless: bool = False  # Bolt.stateless


def traits_of(topology: Topology) -> dict[str, Traits]:
    """The traits of every component. Raises PackageError when a class cannot be imported."""
    return {id_: _traits(component) for id_, component in topology.components.items()}


def _traits(component: Component) -> Traits:
    if not isinstance(component.object, PythonObject):
        return Traits()
    try:
        cls = load_class(component.object.class_path)
    except (ImportError, AttributeError, ValueError) as error:
        raise PackageError(
            f"component {component.id!r}: {component.object.class_path} cannot be imported: {error}"
        ) from error
    return Traits(
        flushes=_defines(cls, "flush", Bolt),
        bounded=_defines(cls, "exhausted", Spout),
        hears_acks=_defines(cls, "ack", Spout) or _defines(cls, "fail", Spout),
        stateful=isinstance(cls, type) and issubclass(cls, StatefulBolt),
        stateless=getattr(cls, "stateless", False) is True,
    )


def _defines(cls: type, name: str, base: type) -> bool:
    return issubclass(cls, base) and getattr(cls, name, None) is not getattr(base, name)
