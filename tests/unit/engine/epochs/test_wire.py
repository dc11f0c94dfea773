"""Messages between coordinator and workers arrive as they were said."""

from __future__ import annotations

import pytest

from squall_common.state.manifest import TaskPart
from squall_common.state.segment import SegmentRef
from squall_common.topology.model import WorkerSlot
from squall_engine.core.codec import CodecError
from squall_engine.core.sections import EPOCHS
from squall_engine.dataflow.fence import Barrier, Fence
from squall_engine.epochs.cluster import Image, incarnation_of, placement_name
from squall_engine.epochs.messages import (
    Begin,
    Completed,
    Go,
    Hello,
    Name,
    Release,
    Report,
    Restore,
)
from squall_engine.epochs.parts import Part
from squall_engine.epochs.wire import Message, Renew, decode, encode

LARGE = incarnation_of(1 << 62, 3, Image(7, 5, 2))
REF = SegmentRef("s", 3, 7, 1, 4, (0, 1), True)
MESSAGES: list[Message] = [
    Hello(1, LARGE, 0, True),
    Report(1, 2, 3, ("count", 0)),
    Report(1, 2, 3, ("count", 0), Part(128, TaskPart((REF,), 1, 0, b"at", (b"rows",)))),
    Restore(2, 3, {"count": 2}, {0: LARGE, 1: 1}, Name(1, 3, "manifest"), "words@1"),
    Restore(1, 0, {"count": 2}, {0: LARGE}, None),
    Go(2, 3),
    Begin(2, 4, True),
    Release(2, 4),
    Completed(2, 4),
    Renew(2),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda one: type(one).__name__)
def test_messages_arrive_as_they_were_said(message: Message) -> None:
    section = encode("here", message)
    assert section[0] == EPOCHS
    assert decode("here", section) == message
    assert decode("elsewhere", section) is None


def test_what_the_fence_says_is_no_message() -> None:
    fence, slot = Fence(1, {}), WorkerSlot("a", 1)
    fence.add_barrier(slot, Barrier("count", 0, 1, False))
    assert [decode("here", one) for one in fence.enclose(slot, [])] == [None, None]


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"\x91\xa2go", b"\x92\xa2no\xa4here"])
def test_what_cannot_be_read_is_an_error(body: bytes) -> None:
    with pytest.raises(CodecError, match="cannot be read"):
        decode("here", bytes([EPOCHS]) + body)


def test_incarnations_grow_with_assignments_launches_and_images_that_begin_anew() -> None:
    image = Image()
    ordered = [
        incarnation_of(5, 1, image),
        incarnation_of(5, 1, image.next(0, anew=True)),
        incarnation_of(5, 2, image),
        incarnation_of(6, 1, image),
    ]
    assert ordered == sorted(set(ordered))


def test_an_image_after_a_rollback_is_the_same_incarnation() -> None:
    image = Image().next(0, anew=True).next(4, anew=False)
    assert image == Image(number=2, anew=1, floor=4)
    assert Image.decode(image.encode()) == image
    assert image.next(3, anew=False).floor == 4


def test_a_placement_is_named_by_where_the_tasks_are() -> None:
    one, two = WorkerSlot("a", 1), WorkerSlot("a", 2)
    tasks = {1: "count", 2: "words"}
    name = placement_name("words-1", tasks, {1: one, 2: two})
    assert name == placement_name("words-1", tasks, {2: two, 1: one})
    assert name != placement_name("words-1", tasks, {1: one, 2: one})
    assert name != placement_name("words-2", tasks, {1: one, 2: two})


def test_a_placement_of_a_rescaled_topology_has_another_name() -> None:
    one, two = WorkerSlot("a", 1), WorkerSlot("a", 2)
    before = placement_name("words-1", {1: "count", 2: "words"}, {1: one, 2: two})
    after = placement_name("words-1", {1: "count", 2: "count"}, {1: one, 2: two})
    assert before != after
    # Asked by a worker that knows fewer tasks.
    assert after != placement_name("words-1", {1: "count"}, {1: one, 2: two})


def test_workers_of_the_version_before_and_of_this_one_meet() -> None:
    """A rolling restart has both at once. (The version before has rescaled nothing.)"""
    routes = {2: WorkerSlot("a", 6701), 1: WorkerSlot("a", 6700)}
    assert placement_name("words-1", {}, routes) == "352e6b0b6236ad63"
