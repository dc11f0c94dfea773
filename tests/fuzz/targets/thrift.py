"""Thrift messages: what Nimbus, supervisors and DRPC servers read of whoever reaches their ports.

An input is refused with ProtocolError, or it is a call whose arguments, written again and read
again, are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from squall_thrift import codec, idl, storm
from squall_thrift.protocol import messages
from squall_thrift.protocol.messages import MessageType
from squall_thrift.wire import ProtocolError

GROWTH_BYTES_MAX = 16 * 1024 * 1024
_METHODS: dict[str, idl.Method] = {
    name: method
    for service in storm.INTERFACE.services.values()
    for name, method in service.methods.items()
}
# What a client reads of a server, too.
_ANSWERS = ("getClusterInfo", "getTopology", "getTopologyInfo", "getLeader", "fetchRequest")


def check(data: bytes) -> str:
    try:
        message = messages.parse(data)
        method = _METHODS.get(message.name)
        if method is None:
            return f"no such method, {message.type.name}"
        struct = method.args if message.type is MessageType.CALL else method.result
        value, end = codec.read_struct(struct.cls, data, message.body)
    except ProtocolError as error:
        return re.sub(r"[\d']+|type -?\d+", "", str(error))[:60]
    assert end <= len(data)
    again = codec.from_bytes(struct.cls, codec.to_bytes(value))
    # (A number that is not one differs from itself.)
    assert repr(again) == repr(value), f"{message}: {value} became {again}"
    return f"{message.type.name} {message.name} {end == len(data)}"


def seeds() -> Iterator[tuple[str, bytes]]:
    """A call of each method with empty arguments, and some that have everything."""
    topology = storm.StormTopology(
        spouts={"s": storm.SpoutSpec(storm.ComponentObject(serialized_java=b"x"), _common())},
        bolts={
            "b": storm.Bolt(
                storm.ComponentObject(shell=storm.ShellComponent("py", "b.py")), _common()
            )
        },
        state_spouts={},
    )
    calls = {
        "submitTopology": ("words", "/inbox/1.jar", '{"topology.workers": 2}', topology),
        "killTopologyWithOpts": ("words", storm.KillOptions(wait_secs=30)),
        "rebalance": ("words", storm.RebalanceOptions(num_workers=3, num_executors={"b": 4})),
        "uploadChunk": ("/inbox/1.jar", b"PK\x03\x04" + bytes(60)),
        "setWorkerProfiler": (
            "words-1-2",
            storm.ProfileRequest(storm.NodeInfo("n", {6700}), storm.ProfileAction.JPROFILE_STOP, 5),
        ),
        "sendSupervisorWorkerHeartbeats": (
            storm.SupervisorWorkerHeartbeats(
                "n", [storm.SupervisorWorkerHeartbeat("words-1-2", [storm.ExecutorInfo(1, 4)], 7)]
            ),
        ),
        "execute": ("exclamation", "hello"),
    }
    for name, arguments in calls.items():
        args = _METHODS[name].args
        yield f"call-{name}", _message(MessageType.CALL, name, args.cls(*arguments))
    for name in ("getClusterInfo", "getNimbusConf", "listBlobs", "failRequest", "getName"):
        if name in _METHODS:
            yield f"empty-{name}", _message(MessageType.CALL, name, _METHODS[name].args.cls())
    for name in _ANSWERS:
        yield f"answer-{name}", _message(MessageType.REPLY, name, _METHODS[name].result.cls())
    yield "exception", messages.serialize(MessageType.EXCEPTION, "getLeader", 7, b"\x00")
    yield "deep", messages.serialize(MessageType.CALL, "getLeader", 1, b"\x0c\x00\x01" * 100)


def _common() -> storm.ComponentCommon:
    return storm.ComponentCommon(
        inputs={storm.GlobalStreamId("s", "default"): storm.Grouping(fields=["word"])},
        streams={"default": storm.StreamInfo(output_fields=["word"], direct=False)},
        parallelism_hint=2,
        json_conf="{}",
    )


def _message(type_: MessageType, name: str, struct: object) -> bytes:
    return messages.serialize(type_, name, 1, codec.to_bytes(struct))
