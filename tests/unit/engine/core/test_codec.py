"""Values keep their types on the wire; sections survive, and rubbish is refused."""

import dataclasses
import datetime as dt
import enum
import importlib
import sys
import uuid
from collections import namedtuple
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import ConfigError
from squall_common.topology.serialization import Registry
from squall_engine.core import MANY, Source, Tuple, sections
from squall_engine.core.codec import CodecError, Ext, ValueCodec, ValueNotEncodableError

codec = ValueCodec()


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
    where: tuple[int, ...]


Pair = namedtuple("Pair", "a b")


class Money:
    def __init__(self, cents):
        self.cents = cents

    def __eq__(self, other):
        return isinstance(other, Money) and self.cents == other.cents

    __hash__ = None


class MoneyCodec:
    def encode(self, value):
        return (value.cents,)

    def decode(self, plain):
        return Money(plain[0])


VALUES = [
    None, True, False, 0, -1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**60,
    1.5, float("inf"), "", "wörd", "\ud800", b"", b"\xff", bytearray(b"x"), 1 + 2j,
    [], [1, (2, [3])], (), (1, (2,)), {1, 2}, set(), frozenset({(1, 2)}),
    {}, {"a": (1,)}, {1: "x", "1": "y"}, {(1, 2): {3}}, {None: 1, True: 2},
    dt.datetime(2026, 1, 2, 3, 4, 5, 678901),
    dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=-30))),
    dt.date(1, 1, 1), dt.time(23, 59, tzinfo=dt.UTC), dt.timedelta(days=-1, microseconds=1),
    Decimal("1.10"), Decimal("-Infinity"), uuid.UUID(int=7),
    Colour.RED, Point(1, (2, 3)), Pair(1, [2]), Path("/a/b"),
    PurePosixPath("/a/b"), PureWindowsPath("C:\\a\\b"), {PurePosixPath("a"): PureWindowsPath("b")},
]  # fmt: skip


def same(a, b):
    """Equal, of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(x, y) for x, y in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{type(v).__name__}-{v!r:.20}")
def test_a_value_keeps_its_type(value):
    (row,) = codec.decode_rows(codec.encode_rows([[value]]))
    assert same(row, [value])
    assert same(codec.decode_row(codec.encode_row([value])), [value])
    if isinstance(value, dt.datetime):
        assert row[0].fold == value.fold


def test_a_path_of_a_class_of_its_own_is_refused():
    class Inside(PurePosixPath):
        pass

    with pytest.raises(ValueNotEncodableError, match=r"Inside.*topology\.kryo\.register"):
        codec.encode_row([Inside("/a")])


def test_what_has_no_value_in_pandas_is_refused_with_what_to_emit():
    pandas = pytest.importorskip("pandas")
    for value in (pandas.NaT, pandas.NA):
        with pytest.raises(ValueNotEncodableError, match="emit None in its place"):
            codec.encode_row([value])


def test_nan_survives():
    (row,) = codec.decode_rows(codec.encode_rows([(float("nan"),)]))
    assert row[0] != row[0]


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary() | st.datetimes() | st.decimals(allow_nan=False) | st.uuids()
)  # fmt: skip
NESTED = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.sets(st.integers() | st.text())
    ),
    max_leaves=8,
)


@given(st.lists(st.lists(NESTED, max_size=3), max_size=4))
def test_any_rows_keep_their_types(rows):
    assert same(codec.decode_rows(codec.encode_rows(rows)), rows)


def test_a_value_that_cannot_be_sent_is_named_by_place_and_type():
    with pytest.raises(ValueNotEncodableError) as caught:
        codec.encode_rows([[1, 2], [3, [{"deep": (object(),)}]]])
    assert caught.value.index == 1
    assert caught.value.kind == "builtins:object"


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("numpy", "emit a value of Python, by .item() of one value or .tolist() of an array"),
        ("pandas._libs.tslibs.timestamps", "by .to_pydatetime() of a Timestamp"),
        ("pyarrow.lib", "by .as_py() of one value or .to_pylist() of an array"),
        ("pandas_of_mine", "make it a dataclass, or register its type"),
    ],
)
def test_a_refusal_says_how_a_librarys_value_becomes_pythons(module, advice):
    foreign = type("Foreign", (), {"__module__": module})
    with pytest.raises(ValueNotEncodableError) as caught:
        codec.encode_row([[{"mean": foreign()}]])
    assert advice in caught.value.reason


def test_a_value_that_contains_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(ValueNotEncodableError, match="contains itself"):
        codec.encode_row([loop])


def test_a_class_that_cannot_be_imported_is_refused():
    @dataclasses.dataclass
    class Local:
        x: int

    with pytest.raises(ValueNotEncodableError, match="cannot be imported"):
        codec.encode_row([Local(1)])


def test_pickle_only_when_the_topology_says_so():
    pickling = ValueCodec(allow_pickle=True)
    with pytest.raises(ValueNotEncodableError):
        codec.encode_row([Money(5)])
    data = pickling.encode_row([Money(5)])
    assert pickling.decode_row(data) == [Money(5)]
    with pytest.raises(CodecError, match=r"fall\.back\.on\.pickle is off"):
        codec.decode_row(data)


def registry(conf):
    return Registry.of(TopologyOptions.read(conf))


def test_registered_types_travel_by_their_serializer():
    here = __name__
    conf = {"topology.kryo.register": [f"{here}:Point", {f"{here}:Money": f"{here}:MoneyCodec"}]}
    registered = ValueCodec(registry(conf))
    assert registered.decode_row(registered.encode_row([[Money(3)]])) == [[Money(3)]]
    with pytest.raises(CodecError, match="not registered here"):
        codec.decode_row(registered.encode_row([Money(3)]))


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Makes a module that can be imported, and is not."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        made.append(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)


ORDER = "import dataclasses\n@dataclasses.dataclass\nclass Order:\n    cents: int\n"


def dataclass_row(path, fields):
    payload = msgspec.msgpack.encode([path, fields])
    return msgspec.msgpack.encode([msgspec.msgpack.Ext(Ext.DATACLASS, payload)])


@pytest.mark.parametrize("code", [Ext.DATACLASS, Ext.ENUM, Ext.NAMEDTUPLE])
def test_a_name_from_the_wire_is_never_imported(module, code):
    module("planted", "raise SystemExit('ran')")
    payload = msgspec.msgpack.encode(["planted:X", {}])
    data = msgspec.msgpack.encode([msgspec.msgpack.Ext(code, payload)])
    with pytest.raises(CodecError, match=r"planted:X is not known here.*topology\.kryo\.register"):
        ValueCodec(modules=["json"]).decode_row(data)
    assert "planted" not in sys.modules


def test_looking_a_name_up_runs_no_code(module):
    """Neither a module's `__getattr__`, nor a way through another module, nor an alias."""
    module("hooked", "def __getattr__(name): raise SystemExit('ran')\n" + ORDER + "Alias = Order\n")
    importlib.import_module("hooked")
    for path in ("hooked:X", "hooked:dataclasses.Field", "hooked:Alias", "hooked:Order.__init__"):
        with pytest.raises(CodecError, match="is not known here"):
            codec.decode_row(dataclass_row(path, {"cents": 1}))


def test_a_class_that_another_worker_s_component_imports_is_known(module):
    """This worker's own components need not: the first unknown name has it import the modules that
    the topology declares."""
    module("shop_orders", ORDER)
    module("shop_spouts", "from shop_orders import Order\n")
    row = dataclass_row("shop_orders:Order", {"cents": 5})
    with pytest.raises(CodecError):
        ValueCodec().decode_row(row)
    (order,) = ValueCodec(modules=["no_such_module", "shop_spouts"]).decode_row(row)
    assert order == sys.modules["shop_orders"].Order(5)


def test_a_registered_class_is_known_without_a_serializer(module):
    module("shop_late", ORDER)
    row = dataclass_row("shop_late:Order", {"cents": 5})
    registry({"topology.kryo.register": ["shop_late:Order", "com.example.Order"]})
    assert codec.decode_row(row)[0].cents == 5
    with pytest.raises(ConfigError, match=r"no\.such:Order"):
        registry({"topology.kryo.register": ["no.such:Order"]})


@pytest.mark.parametrize("fields", [{}, {"x": 1}, {"x": 1, "where": (), "__class__": 1}])
def test_a_dataclass_has_the_fields_of_its_class_and_no_others(fields):
    with pytest.raises(CodecError, match="different fields"):
        codec.decode_row(dataclass_row(f"{__name__}:Point", fields))


def test_a_wrong_registration_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"no\.such:Thing"):
        registry({"topology.kryo.register": [{"no.such:Thing": "no.such:Codec"}]})


def tuples(count, *, several=False):
    source = Source("split", 4, "wörds", ["word"])
    made = [Tuple([f"w{i}"], 100 + i, (i + 1) << 16, source) for i in range(count)]
    if several:
        made[0] = Tuple(["w0"], 0, MANY, source, False, {1 << 16: 5, 2 << 16: 5})
    return made


@pytest.mark.parametrize("tasks", [[7, 7, 7], [7, 8, 7]])
@pytest.mark.parametrize("several", [False, True])
def test_a_section_of_tuples_goes_both_ways(tasks, several):
    made = tuples(3, several=several)
    data = sections.serialize_tuples(4, "wörds", tasks, made, codec)
    section = sections.parse(data, codec)
    assert section.source_task == 4
    assert section.stream == "wörds"
    assert list(section.tasks) == tasks
    assert section.rows == [["w0"], ["w1"], ["w2"]]
    assert list(section.ids) == [t.id for t in made]
    assert list(section.roots) == [t.root for t in made]
    assert section.anchors == ({0: {1 << 16: 5, 2 << 16: 5}} if several else {})
    assert section.sources == ()
    data = sections.serialize_tuples(4, "wörds", tasks, made, codec, [4, 5, 4])
    assert sections.parse(data, codec) == dataclasses.replace(section, sources=[4, 5, 4])


def test_the_bytes_of_sections():
    """The format that workers of two versions must agree on."""
    plain = Tuple(["a"], 0, 0, Source("s", 4, "x", ["word"]))
    assert sections.serialize_tuples(4, "x", [7], [plain], codec) == bytes.fromhex(
        "01 01 04000000 0100 01000000 78 07000000 91 91 a1 61"
    )
    assert sections.serialize_tuples(4, "x", [7, 7], [plain, plain], codec, [4, 5]) == (
        bytes.fromhex("01 09 04000000 0100 02000000 78 07000000 0400000005000000 92 91a161 91a161")
    )
    assert sections.serialize_acks(2, {0x10000: 5}, {0x10000: 9}) == bytes.fromhex(
        "02 00 02000000 01000000 01000000 0000010000000000 0500000000000000"
        "0000010000000000 09000000"
    )
    assert sections.serialize_roots(sections.FAILED, 9, [0x10000]) == bytes.fromhex(
        "06 00 09000000 01000000 0000010000000000"
    )


def test_acks_and_roots_go_both_ways():
    acks = sections.parse(sections.serialize_acks(2, {1: 2, 3: 4}, {1: 9}), codec)
    assert acks == sections.AcksSection(2, {1: 2, 3: 4}, {1: 9})
    roots = sections.parse(sections.serialize_roots(sections.DONE, 9, [1, 2]), codec)
    assert roots == sections.RootsSection(sections.DONE, 9, [1, 2])


@given(st.data())
def test_a_broken_section_is_refused_or_read_without_other_effects(data):
    whole = data.draw(
        st.sampled_from(
            [
                sections.serialize_tuples(4, "wörds", [7, 8, 7], tuples(3, several=True), codec),
                sections.serialize_acks(2, {1: 2, 3: 4}, {1: 9}),
                sections.serialize_roots(sections.DONE, 9, [1, 2]),
            ]
        )
    )
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = data.draw(
        st.sampled_from([whole[:at], whole[:at] + b"\xff" + whole[at + 1 :], whole + b"\x00", b""])
    )
    try:
        sections.parse(broken, codec)
    except CodecError:
        pass


def test_a_section_that_claims_four_billion_tuples_costs_nothing():
    data = bytes.fromhex("01 01 04000000 0100 ffffffff 78 07000000 91 91 a1 61")
    with pytest.raises(CodecError):
        sections.parse(data, codec)
