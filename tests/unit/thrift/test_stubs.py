"""The facade and its stub."""

import enum
import re

from squall_thrift import idl, storm, stubs


def test_stub_is_up_to_date() -> None:
    """If it is not, run `python -m squall_thrift.stubs`."""
    assert stubs.STUB_FILE.read_text(encoding="utf-8") == stubs.stub_text(storm.INTERFACE)


def test_what_was_parsed_is_up_to_date() -> None:
    """If it is not, run `python -m squall_thrift.stubs`."""
    assert stubs.PARSED_FILE.read_text(encoding="utf-8") == stubs.parsed_text()


def test_a_parsed_file_gives_the_same_interface_as_the_file_itself() -> None:
    fresh = idl.load(idl.INTERFACE_FILE, "fresh")
    assert _shown(fresh) == _shown(storm.INTERFACE)


def _shown(interface: idl.Interface) -> list[str]:
    """All that is declared; of classes, their names alone."""
    declared = [*interface.structs.values(), *interface.services.values()]
    return [
        *(f"{name}: {list(cls)}" for name, cls in interface.enums.items()),
        *(re.sub(r"<(class|enum) '[\w.]+\.(\w+)'>", r"\2", str(one)) for one in declared),
    ]


def test_every_declaration_is_in_the_module() -> None:
    for name in (*storm.INTERFACE.enums, *storm.INTERFACE.structs, *storm.INTERFACE.services):
        assert hasattr(storm, name)


def test_services_hold_all_of_storms_methods() -> None:
    assert {name: len(s.methods) for name, s in storm.INTERFACE.services.items()} == {
        "Nimbus": 77, "Supervisor": 3, "DistributedRPC": 1, "DistributedRPCInvocations": 4,
    }  # fmt: skip
    method = storm.Nimbus.methods["submitTopologyWithOpts"]
    assert [f.name for f in method.args.fields] == [
        "name", "uploadedJarLocation", "jsonConf", "topology", "options",
    ]  # fmt: skip
    assert method.returns is None
    assert list(method.throws.values()) == [
        storm.AlreadyAliveException,
        storm.InvalidTopologyException,
        storm.AuthorizationException,
    ]
    assert storm.Nimbus.methods["getLeader"].returns == idl.Struct(storm.NimbusSummary)


def test_enums_are_enums() -> None:
    assert issubclass(storm.TopologyStatus, enum.IntEnum)
    assert storm.TopologyStatus(2) is storm.TopologyStatus.INACTIVE


def test_exception_can_be_raised_and_reads_as_its_message() -> None:
    error = storm.NotAliveException(msg="wordcount is not alive")
    assert isinstance(error, Exception)
    assert str(error) == "wordcount is not alive"
    assert error == storm.NotAliveException(msg="wordcount is not alive")
