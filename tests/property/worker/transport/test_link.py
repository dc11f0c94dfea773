"""Whatever connections and processes do, a link delivers each section once and in order.

Two links face each other over a channel that keeps its order, and that at any moment loses what is
in it (a reset), takes nothing (away, or a full socket), or swaps what two connections carry.
Either side may be replaced by a newer incarnation, with or without a goodbye.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from squall_common.topology.model import WorkerSlot
from squall_worker.transport.frames import Frame, Kind, Session
from squall_worker.transport.link import Link
from squall_worker.transport.link_table import Delivered, Event, Left, Replaced
from squall_worker.transport.out_frames import size_of

TOPOLOGY = b"topology"


class Side:
    """One worker: its link, what it queued and what it took."""

    def __init__(self, name: str, peer: str, launch: int, now: float) -> None:
        self.slot = WorkerSlot(name, 1)
        self.link = Link(
            TOPOLOGY, self.slot, Session(1, launch, 1), WorkerSlot(peer, 1),
            now=now, backlog_bytes_max=10**9,
        )  # fmt: skip
        self.inbox: deque[Delivered] = deque()
        self.taken: list[bytes] = []
        self.queued: list[bytes] = []
        self.writable = True


class World:
    """Both sides, the two channels between them, and a clock."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.number = 0
        self.sides = [Side("a", "b", 1, self.now), Side("b", "a", 1, self.now)]
        self.channels: list[deque[bytes]] = [deque(), deque()]  # to side 0, to side 1
        self.lost_to_restart: set[bytes] = set()
        # What reached a side that has been replaced since.
        self.taken_before: list[list[bytes]] = [[], []]

    def pump(self, i: int) -> None:
        side = self.sides[i]
        while side.writable and (frame := side.link.next_frame(self.now)):
            self.channels[1 - i].append(frame.serialize())
            data = side.link.next_data(self.now)
            if data is not None:  # the same frame, at less cost
                sequence, acknowledged, sections = data
                plain = Frame(
                    Kind.DATA, TOPOLOGY, side.slot, *side.link.sessions, sequence, acknowledged,
                    sections=tuple(sections),
                )  # fmt: skip
                assert plain == frame
            if data is not None and self.random.random() < 0.5:
                side.link.sent_data(self.now)
            else:
                side.link.sent(frame, self.now)
            side.link.validate()

    def queue(self, i: int) -> None:
        side = self.sides[i]
        sections = []
        for _ in range(self.random.randint(1, 3)):
            self.number += 1
            sections.append(
                b"%d." % self.number + b"x" * self.random.choice([0, 10, 150_000, 600_000])
            )
        side.link.queue(sections)
        side.link.validate()
        side.queued += sections
        self.pump(i)

    def receive(self, i: int, count: int) -> None:
        side, channel = self.sides[i], self.channels[i]
        for _ in range(min(count, len(channel))):
            frame = Frame.parse(channel.popleft())
            events: Sequence[Event] = self.receive_plain(side.link, frame)
            if not events:
                events = side.link.receive(frame, self.now)
            side.link.validate()
            for event in events:
                if isinstance(event, Delivered):
                    side.inbox.append(event)
                elif isinstance(event, Replaced):
                    assert event.old < event.new
                    if event.dropped_frames:
                        # Queued for the old one although it had ended already.
                        peer_took = self.taken_before[1 - i] + self.sides[1 - i].taken
                        self.lost_to_restart.update(set(side.queued) - set(peer_took))
        self.pump(i)

    def receive_plain(self, link: Link, frame: Frame) -> list[Delivered]:
        """As a ring gives it, if it may: empty when the frame has to be taken whole."""
        plain = frame.kind is Kind.DATA and not (frame.gap or frame.more or frame.grants)
        sessions = (frame.receiver, frame.sender)
        if not plain or sessions != link.sessions or self.random.random() < 0.3:
            return []
        size = size_of(frame.sections)
        delivered = link.receive_data(
            frame.sequence, frame.acknowledged, frame.sections, size, self.now
        )
        return [] if delivered is None else [delivered]

    def take(self, i: int) -> None:
        side = self.sides[i]
        for _ in range(self.random.randint(0, 3)):
            if side.inbox:
                delivered = side.inbox.popleft()
                side.link.take(delivered, self.now)
                side.link.validate()
                side.taken += delivered.sections
        self.pump(i)

    def reset(self, i: int) -> None:
        """The connection to side `i` breaks: what was on its way is gone, or its end is."""
        channel = self.channels[i]
        for _ in range(self.random.randint(0, len(channel))):
            channel.pop()
        if self.random.random() < 0.5:
            channel.clear()
        if self.random.random() < 0.5:
            self.sides[1 - i].link.connected(self.now)
            self.sides[1 - i].link.validate()

    def swap(self, i: int) -> None:
        """What two connections carry is read in turns."""
        channel = self.channels[i]
        if len(channel) > 1:
            cut = self.random.randrange(len(channel))
            channel.rotate(cut)

    def block(self, i: int) -> None:
        self.sides[i].writable = not self.sides[i].writable
        self.pump(i)

    def advance(self, secs: float) -> None:
        self.now += secs
        for i, side in enumerate(self.sides):
            side.link.tick(self.now)
            assert side.link.deadline() > self.now
            side.link.validate()
            self.pump(i)

    def restart(self, i: int, *, goodbye: bool) -> None:
        old, other = self.sides[i], self.sides[1 - i]
        if goodbye and (frame := old.link.goodbye()):
            self.channels[1 - i].append(frame.serialize())
        self.taken_before[i] += old.taken
        # What was sent to the old one and not taken may be lost; and so may what it had queued.
        self.lost_to_restart.update(set(other.queued) - set(old.taken))
        self.lost_to_restart.update(old.queued)
        self.sides[i] = Side(old.slot.node, other.slot.node, old.link.session.launch + 1, self.now)

    def settle(self) -> None:
        for side in self.sides:
            side.writable = True
        for _ in range(400):
            for i in range(2):
                self.receive(i, 10**6)
                while self.sides[i].inbox:
                    self.take(i)
            self.advance(0.05)
            if all(side.link.settled and side.link.greeted for side in self.sides):
                return
        raise AssertionError([str(side.link) for side in self.sides])


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["queue", "queue", "receive", "receive", "take", "take", "advance", "reset", "swap",
             "block", "restart", "goodbye"]
        ),
        st.integers(0, 1),
    ),
    max_size=80,
)  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32), steps)
def test_each_section_arrives_once_in_order(seed: int, actions: list[tuple[str, int]]) -> None:
    world = World(seed)
    for action, i in actions:
        if action == "advance":
            world.advance(world.random.choice([0.01, 0.1, 1.0]))
        elif action == "receive":
            world.receive(i, world.random.randint(1, 4))
        elif action in ("restart", "goodbye"):
            world.restart(i, goodbye=action == "goodbye")
        else:
            getattr(world, action)(i)
    world.settle()
    for i, side in enumerate(world.sides):
        queued = world.sides[1 - i].queued
        everything = world.taken_before[i] + side.taken
        assert len(set(everything)) == len(everything), "a section was taken twice"
        expected = [s for s in queued if s in set(everything)]
        assert [s for s in everything if s in set(queued)] == expected, "out of order"
        missing = set(queued) - set(everything)
        assert missing <= world.lost_to_restart, "lost without a restart"


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(0, 2**32), steps)
def test_a_graceful_restart_loses_nothing(seed: int, actions: list[tuple[str, int]]) -> None:
    """What the old incarnation never took goes to the new one when its goodbye arrives; the
    channel here is whole (a goodbye that is lost is a loss like any other)."""
    world = World(seed)
    world.settle()
    for action, i in actions:
        if action == "advance":
            world.advance(world.random.choice([0.01, 0.1, 1.0]))
        elif action == "receive":
            world.receive(i, world.random.randint(1, 4))
        elif action in ("queue", "take"):
            getattr(world, action)(i)
        elif action == "goodbye" and i == 1 and world.sides[1].link.greeted:
            world.restart(1, goodbye=True)
    world.settle()
    taken = world.taken_before[1] + world.sides[1].taken
    assert taken == world.sides[0].queued


def test_the_oracle_sees_a_link_that_forgets_a_resend() -> None:
    """A check of the check: break resending and the property must fail."""
    world = World(3)
    world.settle()
    world.sides[0].link._resent_at = float("inf")  # it has been done just now
    world.queue(0)
    world.channels[1].clear()
    try:
        world.settle()
    except AssertionError:
        return
    raise AssertionError("the loss was not noticed")


def test_left_is_reported_once() -> None:
    world = World(5)
    world.settle()
    goodbye = world.sides[0].link.goodbye()
    assert goodbye is not None
    assert goodbye.kind is Kind.GOODBYE
    events = world.sides[1].link.receive(goodbye, world.now)
    assert events == [Left(WorkerSlot("a", 1), Session(1, 1, 1), True)]
    assert world.sides[1].link.receive(goodbye, world.now) == []
