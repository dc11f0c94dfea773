from __future__ import annotations

from typing import Any

import pytest

from squall_common.errors import InvalidTopologyError
from squall_common.topology.arguments import encode_arguments, instantiate
from squall_common.topology.model import PythonObject
from squall_flux.recipe import Assembled, Ref, Step, make


class Scheme:
    def __init__(self, name: str = "text") -> None:
        self.name = name
        self.strict = False
        self.seen: list[Any] = []

    def setLevel(self, level: int) -> None:
        self.level = level

    def add(self, *values: Any, last: Any = None) -> None:
        self.seen += [*values, last]

    @classmethod
    def of(cls, name: str) -> Scheme:
        return cls(name.upper())


class Holder:
    def __init__(self, first: Any, *, others: Any = ()) -> None:
        self.first = first
        self.others = others


# A worker finds classes by their module, and pytest gives this one no name that imports.
PATH = "squall_flux.recipe:Assembled"


def test_a_step_makes_an_object_and_configures_it() -> None:
    step = Step(
        Scheme, None, ("a",), {}, (("strict", True), ("level", 3)), (("add", (1, 2), {"last": 3}),)
    )
    found = make(step, [])
    assert (found.name, found.strict, found.level, found.seen) == ("a", True, 3, [1, 2, 3])


def test_a_factory_makes_the_object() -> None:
    assert make(Step(Scheme, "of", ("a",), {}), []).name == "A"


def test_steps_share_what_they_refer_to() -> None:
    found = Assembled(
        Step(Scheme, None, (), {}),
        Step(Holder, None, (Ref(0),), {"others": [Ref(0), {"a": Ref(0)}]}),
    )
    assert type(found) is Holder
    assert found.first is found.others[0] is found.others[1]["a"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step(Scheme, "off", (), {}), "Scheme has no method 'off'"),
        (Step(Scheme, "__subclasses__", (), {}), "no method '__subclasses__'"),
        (Step(Scheme, None, (), {}, (("nme", 1),)), "Scheme has no attribute 'nme'"),
        (Step(Scheme, None, (), {}, (("__class__", 1),)), "no attribute '__class__'"),
        (Step(Scheme, None, (), {}, (), (("name", (), {}),)), "Scheme has no method 'name'"),
    ],
)
def test_an_object_without_the_property_or_method_is_refused(step: Step, expected: str) -> None:
    with pytest.raises(InvalidTopologyError, match=expected):
        make(step, [])


def test_a_recipe_travels_as_arguments() -> None:
    from squall_flux.storm_classes import NGrouping

    steps = (
        Step(NGrouping, None, (2,), {}, (), (("prepare", (None, None, [5, 4, 3]), {}),)),
        Step(NGrouping, None, (), {"n": Ref(0)}),
    )
    found = instantiate(PythonObject(PATH, encode_arguments(steps, {})))
    assert isinstance(found, NGrouping)
    assert isinstance(found._n, NGrouping)
    assert found._n.choose_tasks(0, []) == [3, 4]
