"""Constructor arguments come back in the worker as they were passed, or are refused by name."""

import json
import math
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.errors import InvalidTopologyError
from squall_common.topology.arguments import decode_arguments, encode_arguments, instantiate
from squall_common.topology.import_paths import import_path, import_path_of
from squall_common.topology.model import PythonObject


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Rights(Flag):
    READ = 1
    WRITE = 2


Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Point:
    x: int
    tags: tuple[str, ...] = ()


@dataclass
class Counted:
    n: int
    seen: list[int] = field(init=False, default_factory=list)


@dataclass
class Doubled:
    n: int

    def __post_init__(self) -> None:
        self.n *= 2


class Holder:
    def __init__(self, *args: object, **kwargs: object) -> None:
        self.args, self.kwargs = args, kwargs

    class Inner:
        pass


def module_function() -> None: ...


def there_and_back(value: object) -> object:
    (back,), kwargs = decode_arguments(encode_arguments([value], {}))
    assert kwargs == {}
    return back


SAMPLES = [
    None,
    True,
    0,
    -(2**63),
    2**63,
    10**400,
    1.0,
    -0.0,
    math.inf,
    "",
    "naïve \u2028 \0",
    b"\x00\xff",
    bytearray(b"x"),
    [1, [2, (3,)]],
    (),
    (1, "a", (None,)),
    {1, 2, 3},
    frozenset({"a"}),
    {"a": {"b": 1}},
    {1: "one", None: 2, (1, 2): "pair"},
    {"!": "tuple", "v": [1]},
    Decimal("1.10"),
    Fraction(1, 3),
    1 + 2j,
    date(2026, 1, 2),
    time(1, 2, 3, 4),
    time(1, 2, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, 5, 6),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    timedelta(days=-1, microseconds=1),
    UUID(int=7),
    Path("/tmp/x"),
    PurePosixPath("a/b"),
    range(1, 10, 2),
    Colour.RED,
    Level.LOW,
    Pair(1, (2, 3)),
    Point(1, ("a", "b")),
    module_function,
    Holder,
    len,
]


@pytest.mark.parametrize("value", SAMPLES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_equal_and_of_the_same_type(value):
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_nan_comes_back_as_nan():
    assert math.isnan(there_and_back(math.nan))


def test_a_time_zone_comes_back_as_the_zone_it_was():
    moment = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    back = there_and_back(moment)
    assert isinstance(back, datetime)
    assert (back, back.tzinfo, back.fold) == (moment, moment.tzinfo, 1)


def test_sets_are_the_same_bytes_in_every_run():
    """The order of a set of texts differs between runs; the bytes must not."""
    one = encode_arguments([{"a", "b", "c", "d"}], {})
    assert json.loads(one)["args"][0]["v"] == ["a", "b", "c", "d"]


_atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.datetimes()
)
_values = st.recursive(
    _atoms,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.lists(_values, max_size=3), st.dictionaries(st.text(min_size=1), _values, max_size=3))
def test_any_arguments_come_back(args, kwargs):
    back = decode_arguments(encode_arguments(args, kwargs))
    assert repr(back) == repr((tuple(args), kwargs))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda: 1, "args[0] cannot travel: a lambda cannot travel"),
        (object(), "args[0] cannot travel: <object object"),
        ([1, {"k": object()}], "args[0][1]['k'] cannot travel"),
        (Holder.Inner, "nested in a class"),
        (Rights.READ | Rights.WRITE, "a combination without a name"),
        (Doubled(1), "not equal to one made from its fields"),
        (float, None),
        ("\ud800", "not valid text"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_cannot_travel_is_refused_with_its_place(value, says):
    if says is None:
        assert there_and_back(value) is value
        return
    with pytest.raises(InvalidTopologyError) as caught:
        encode_arguments([value], {})
    assert says in str(caught.value)


def test_a_dataclass_whose_state_its_fields_do_not_give_is_refused():
    value = Counted(1)
    value.seen.append(7)
    with pytest.raises(InvalidTopologyError, match="not equal to one made from its fields"):
        encode_arguments([value], {})


def test_an_open_file_is_refused_with_what_to_pass_instead(tmp_path):
    with open(tmp_path / "f", "w") as file, pytest.raises(InvalidTopologyError) as caught:
        encode_arguments([], {"log": file})
    assert str(caught.value).startswith("log cannot travel")
    assert "pass its path" in str(caught.value)


def test_a_value_that_contains_itself_is_refused():
    value: list[object] = []
    value.append(value)
    with pytest.raises(InvalidTopologyError, match="contains itself"):
        encode_arguments([value], {})


def test_a_class_made_inside_a_function_has_no_import_path():
    class Local:
        pass

    with pytest.raises(InvalidTopologyError, match="made inside a function"):
        import_path_of(Local)


def test_a_class_that_its_name_does_not_lead_to_has_no_import_path():
    impostor = type("Holder", (), {"__module__": __name__})
    with pytest.raises(InvalidTopologyError, match="a worker would get that one"):
        import_path_of(impostor)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nothing", "is not an import path"),
        ("no.such_module:X", "there is no module 'no'"),
        ("json:Nothing", "has no 'Nothing'"),
    ],
)
def test_a_path_that_leads_nowhere_is_said(path, says):
    with pytest.raises(InvalidTopologyError, match=says):
        import_path(path)


def test_an_import_error_inside_a_users_module_comes_through(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        import_path("needs_more:X")


def test_an_object_is_made_from_its_path_and_arguments():
    path = import_path_of(Holder)
    made = instantiate(PythonObject(path, encode_arguments([(1,)], {"k": {2}})))
    assert type(made).__name__ == "Holder"
    assert (made.args, made.kwargs) == (((1,),), {"k": {2}})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"args":1,"kwargs":{}}',
        b'{"args":[{"!":"pickle","v":""}],"kwargs":{}}',
        b'{"args":[{"!":"uuid","v":"x"}],"kwargs":{}}',
        b'{"args":[{"!":"decimal","v":"x"}],"kwargs":{}}',
        b"\xff",
    ],
)
def test_bytes_that_are_not_arguments_are_refused(data):
    with pytest.raises(InvalidTopologyError, match="cannot be read"):
        decode_arguments(data)
