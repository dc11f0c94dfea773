"""One link, one behaviour a test. Deliveries over lossy channels are in the property tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.support.validated import validated_links

from squall_common.daemon.output.story import ContradictionError, IllegalEventError
from squall_common.topology.model import WorkerSlot
from squall_engine.transport import Grant
from squall_worker.transport.frames import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_TARGET,
    GRANTS_MAX,
    LENGTH_BYTES,
    NO_SESSION,
    PART_BYTES,
    SECTION_BYTES_MAX,
    SECTIONS_MAX,
    Frame,
    Kind,
    Session,
)
from squall_worker.transport.link import (
    ACK_BYTES,
    ACK_DELAY_SECS,
    GREETING_MAX_SECS,
    IDLE_SECS,
    PROBE_SECS,
    RESEND_SECS,
    Link,
)
from squall_worker.transport.link_table import (
    TABLE,
    Began,
    Delivered,
    Granted,
    Greeted,
    Left,
    Replaced,
    State,
    Unconfirmed,
)

ME, PEER = WorkerSlot("me", 1), WorkerSlot("peer", 2)
MINE, THEIRS, NEWER = Session(5, 1, 1), Session(6, 1, 1), Session(6, 2, 1)


@pytest.fixture(autouse=True)
def _validated() -> Iterator[None]:
    """Every link of these tests, after every call."""
    with validated_links():
        yield


def make(backlog_bytes_max: int = 10**9) -> Link:
    return Link(b"topology", ME, MINE, PEER, now=0.0, backlog_bytes_max=backlog_bytes_max)


def frame(
    kind: Kind = Kind.IDLE, sequence: int = 0, ack: int = 0, *, sender: Session = THEIRS,
    receiver: Session = MINE, gap: bool = False, sections: Sequence[bytes] = (),
) -> Frame:  # fmt: skip
    return Frame(kind, b"topology", PEER, sender, receiver, sequence, ack, gap, tuple(sections))


def data(sequence: int, ack: int = 0, **keys: Any) -> Frame:
    return frame(Kind.DATA, sequence, ack, sections=[b"s%d" % sequence], **keys)


def send_all(link: Link, now: float) -> list[Frame]:
    sent = []
    while (out := link.next_frame(now)) is not None:
        link.sent(out, now)
        sent.append(out)
    return sent


def greeted() -> Link:
    link = make()
    assert link.receive(frame(), 0.0) == [Began(PEER, (MINE, THEIRS)), Greeted(PEER, THEIRS)]
    send_all(link, 0.0)
    return link


def test_greets_more_and_more_slowly_until_it_is_known() -> None:
    link = make()
    times = []
    now = 0.0
    while now < 10:
        link.tick(now)
        if sent := send_all(link, now):
            assert [(f.kind, f.receiver) for f in sent] == [(Kind.GREETING, NO_SESSION)]
            times.append(now)
        now = link.deadline()
    assert times[0] == 0.0
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps[0] < 0.1
    assert all(b > 0.99 * a for a, b in itertools.pairwise(gaps))
    assert gaps[-1] == pytest.approx(GREETING_MAX_SECS)


def test_a_greeting_is_answered_at_once_and_proves_one_direction_only() -> None:
    link = make()
    began = [Began(PEER, (MINE, THEIRS))]
    assert link.receive(frame(Kind.GREETING, receiver=NO_SESSION), 1.0) == began
    assert not link.greeted
    (answer,) = send_all(link, 1.0)
    assert (answer.kind, answer.receiver) == (Kind.GREETING, THEIRS)


def test_sections_queued_before_the_peer_is_known_go_out_with_the_first_frame() -> None:
    link = make()
    link.queue([b"a"])
    link.queue([b"b"])
    assert link.backlog_bytes == 2 * (1 + LENGTH_BYTES)
    assert send_all(link, 0.0) == []
    link.receive(frame(Kind.GREETING, receiver=NO_SESSION), 1.0)
    sent = [f for f in send_all(link, 1.0) if f.kind is Kind.DATA]
    assert [(f.sequence, f.sections) for f in sent] == [(1, (b"a", b"b"))]


def test_sections_are_gathered_up_to_the_target() -> None:
    link = greeted()
    half, large = b"h" * (FRAME_BYTES_TARGET // 2), b"l" * PART_BYTES
    link.queue([half, b"a", half, large, b"b", b"c"])
    assert [f.sections for f in send_all(link, 0)] == [
        (half, b"a"), (half,), (large,), (b"b", b"c")
    ]  # fmt: skip
    link.queue([b""] * (SECTIONS_MAX + 1))
    assert [len(f.sections) for f in send_all(link, 0)] == [SECTIONS_MAX, 1]


LARGE = bytes(range(256)) * 3 * 1024 + b"end"  # of three frames, and a little


def test_a_large_section_is_cut_and_put_together() -> None:
    sender, receiver = greeted(), greeted()
    sender.queue([b"before", LARGE, b"after"])
    sender.validate()
    sent = send_all(sender, 0)
    assert [f.more for f in sent] == [False, True, True, True, False, False]
    assert all(len(f.serialize()) <= FRAME_BYTES_MAX for f in sent)
    arrived = []
    for out in sent:
        back = out._replace(slot=PEER, sender=THEIRS, receiver=MINE)
        arrived += [e for e in receiver.receive(back, 0) if isinstance(e, Delivered)]
        receiver.validate()
    assert [(e.sequence, e.sections) for e in arrived] == [
        (1, (b"before",)), (5, (LARGE,)), (6, (b"after",))
    ]  # fmt: skip
    sender.receive(frame(ack=6), 1.0)
    sender.validate()
    assert sender.backlog_bytes == 0


def test_half_a_section_is_not_acknowledged_and_goes_whole_to_the_next_session() -> None:
    sender, receiver = greeted(), greeted()
    sender.queue([LARGE])
    parts = send_all(sender, 0)
    for out in parts[:2]:
        assert receiver.receive(out._replace(slot=PEER, sender=THEIRS, receiver=MINE), 0) == []
    receiver.tick(60.0)
    assert [f.acknowledged for f in send_all(receiver, 60.0)] == [0]
    (left,) = receiver.receive(frame(Kind.GOODBYE, 2), 61.0)
    assert isinstance(left, Left)
    assert not left.drained, "a part is missing"
    sender.receive(frame(Kind.GOODBYE), 1.0)
    assert sender.queued() == (LARGE,)
    sender.receive(frame(Kind.GREETING, sender=NEWER, receiver=NO_SESSION), 2.0)
    assert b"".join(f.sections[0] for f in send_all(sender, 2.0) if f.sections) == LARGE


def test_parts_that_are_too_many_or_out_of_place_are_refused() -> None:
    link = greeted()
    part = b"x" * PART_BYTES
    count = SECTION_BYTES_MAX // PART_BYTES
    for sequence in range(1, count + 1):
        link.receive(frame(Kind.DATA, sequence, sections=[part])._replace(more=True), 0)
    beyond = frame(Kind.DATA, count + 1, sections=[part])
    assert link.receive(beyond, 0) == []
    assert link.counts.dropped_invalid == 1
    two = frame(Kind.DATA, count + 1, sections=[b"a", b"b"])
    assert link.receive(two, 0) == []
    assert link.counts.dropped_invalid == 2


def test_a_frame_that_has_not_gone_out_takes_more() -> None:
    link = greeted()
    for section in (b"a", b"b", b"c"):
        link.queue([section])
    assert [f.sections for f in send_all(link, 0)] == [(b"a", b"b", b"c")]
    link.queue([b"d"])
    assert [(f.sequence, f.sections) for f in send_all(link, 0)] == [(2, (b"d",))]


def test_sections_that_do_not_fit_together_first_fill_the_frame_that_waits() -> None:
    link = greeted()
    third = b"t" * (FRAME_BYTES_TARGET // 3)
    link.queue([third])
    link.queue([third, b"a", third, b"b"])
    sent = [f.sections for f in send_all(link, 0)]
    assert sent == [(third, third, b"a"), (third, b"b")]


def test_an_acknowledgement_frees_the_backlog() -> None:
    link = greeted()
    for section in (b"a", b"b"):
        link.queue([section])
        send_all(link, 0)
    link.receive(frame(ack=1), 1.0)
    assert link.backlog_bytes == 1 + LENGTH_BYTES
    assert not link.settled
    link.receive(frame(ack=2), 1.0)
    assert link.backlog_bytes == 0
    assert link.settled


def test_an_acknowledgement_of_what_was_never_sent_is_refused() -> None:
    link = greeted()
    link.queue([b"a"])
    assert link.receive(data(1, ack=1), 1.0) == []
    assert link.counts.dropped_invalid == 1
    assert link.backlog_bytes > 0


def test_taken_sections_are_acknowledged_soon_or_with_data() -> None:
    link = greeted()
    (delivered,) = link.receive(data(1), 0.5)
    assert isinstance(delivered, Delivered)
    link.take(delivered, 0.5)
    assert send_all(link, 0.5) == []
    assert link.deadline() == 0.5 + ACK_DELAY_SECS
    link.queue([b"x"])
    assert [f.acknowledged for f in send_all(link, 0.5)] == [1]
    assert link.deadline() == 0.5 + PROBE_SECS


def test_many_taken_bytes_are_acknowledged_at_once() -> None:
    link = greeted()
    (delivered,) = link.receive(frame(Kind.DATA, 1, sections=[b"x" * ACK_BYTES]), 1.0)
    assert isinstance(delivered, Delivered)
    assert send_all(link, 1.0) == []
    link.take(delivered, 1.0)
    assert [(f.kind, f.acknowledged) for f in send_all(link, 1.0)] == [(Kind.IDLE, 1)]


def test_repeats_are_dropped_and_acknowledged_again() -> None:
    link = greeted()
    link.receive(data(1), 1.0)
    send_all(link, 1.0)
    assert link.receive(data(1), 2.0) == []
    assert link.counts.dropped_repeat == 1
    assert [f.kind for f in send_all(link, 2.0)] == [Kind.IDLE]


def test_a_gap_is_named_at_once_and_only_once() -> None:
    link = greeted()
    assert link.receive(data(3), 1.0) == []
    (answer,) = send_all(link, 1.0)
    assert (answer.gap, answer.acknowledged) == (True, 0)
    assert send_all(link, 1.0) == []
    assert link.receive(frame(sequence=3), 2.0) == []
    assert [f.gap for f in send_all(link, 2.0)] == [True]


def test_a_gap_makes_the_sender_go_back_but_not_twice_for_one_loss() -> None:
    link = greeted()
    for section in (b"a", b"b", b"c"):
        link.queue([section])
        send_all(link, 0)
    link.receive(frame(ack=1, gap=True), 1.0)
    assert [f.sequence for f in send_all(link, 1.0)] == [2, 3]
    link.receive(frame(ack=1, gap=True), 1.0 + RESEND_SECS / 2)
    assert send_all(link, 1.0 + RESEND_SECS / 2) == []
    link.receive(frame(ack=1, gap=True), 1.1 + RESEND_SECS)
    assert [f.sequence for f in send_all(link, 1.1 + RESEND_SECS)] == [2, 3]
    assert link.counts.frames_resent == 4


def test_unacknowledged_frames_are_asked_about_more_and_more_slowly_and_not_sent_again() -> None:
    link = greeted()
    link.queue([b"a"])
    send_all(link, 0.0)
    times = []
    while link.deadline() < 5:
        now = link.deadline()
        link.tick(now)
        sent = send_all(link, now)
        assert [(f.kind, f.sequence) for f in sent] == [(Kind.IDLE, 1)]
        times.append(now)
    assert times[0] == PROBE_SECS
    assert times[-1] - times[-2] == pytest.approx(IDLE_SECS)
    assert link.counts.frames_resent == 0


def test_an_idle_link_speaks_once_in_its_interval() -> None:
    link = greeted()
    link.tick(IDLE_SECS / 2)
    assert send_all(link, IDLE_SECS / 2) == []
    link.tick(IDLE_SECS)
    assert [f.kind for f in send_all(link, IDLE_SECS)] == [Kind.IDLE]
    assert link.deadline() == 2 * IDLE_SECS


def test_a_newer_session_drops_frames_for_the_old_one() -> None:
    link = greeted()
    link.queue([b"a"])
    send_all(link, 0)
    (delivered,) = link.receive(data(1), 1.0)
    events = link.receive(frame(Kind.GREETING, sender=NEWER, receiver=NO_SESSION), 2.0)
    gone = Replaced(PEER, THEIRS, NEWER, left=False, dropped_frames=1, dropped=(b"a",))
    assert events == [gone, Began(PEER, (MINE, NEWER))]
    assert link.backlog_bytes == 0
    assert isinstance(delivered, Delivered)
    link.take(delivered, 2.0)  # of the old one: says nothing to the new one
    assert [(f.receiver, f.acknowledged) for f in send_all(link, 2.0)] == [(NEWER, 0)]
    link.queue([b"b"])
    assert [f.sequence for f in send_all(link, 2.0)] == [1]


def test_a_replaced_session_is_not_heard() -> None:
    link = greeted()
    link.receive(frame(sender=NEWER), 1.0)
    assert link.receive(data(1, sender=THEIRS), 2.0) == []
    assert link.counts.dropped_replaced == 1
    assert len(link.receive(data(1, sender=NEWER), 2.0)) == 1


def test_a_frame_for_an_earlier_session_is_dropped_and_answered() -> None:
    link = greeted()
    assert link.receive(data(1, receiver=Session(4, 1, 1)), 1.0) == []
    assert link.counts.dropped_misaddressed == 1
    assert [f.sender for f in send_all(link, 1.0)] == [MINE]


def test_a_goodbye_keeps_frames_never_taken_for_the_next_session() -> None:
    link = greeted()
    for section in (b"a", b"b"):
        link.queue([section])
        send_all(link, 0)
    assert link.receive(frame(Kind.GOODBYE, ack=1), 1.0) == [Left(PEER, THEIRS, drained=True)]
    assert link.settled
    link.queue([b"c"])
    assert link.queued() == (b"b", b"c")
    assert send_all(link, 1.0) == []
    assert link.deadline() == float("inf")
    assert link.receive(data(1), 1.5) == []
    events = link.receive(frame(sender=NEWER), 2.0)
    assert events[0] == Replaced(PEER, THEIRS, NEWER, left=True, dropped_frames=0)
    assert events[1] == Began(PEER, (MINE, NEWER), waiting=(b"b", b"c"))
    assert [f.sections for f in send_all(link, 2.0)] == [(b"b", b"c")]


def test_a_goodbye_says_whether_everything_arrived() -> None:
    link = greeted()
    assert link.receive(frame(Kind.GOODBYE, sequence=2), 1.0) == [Left(PEER, THEIRS, drained=False)]
    events = link.receive(frame(sender=NEWER), 2.0)
    assert events[0] == Replaced(PEER, THEIRS, NEWER, left=False, dropped_frames=0)


def test_its_own_goodbye_acknowledges_the_frames_it_took() -> None:
    link = greeted()
    for event in link.receive(data(1), 1.0):
        assert isinstance(event, Delivered)
        link.take(event, 1.0)
    link.receive(data(2), 1.0)
    goodbye = link.goodbye()
    assert goodbye is not None
    assert (goodbye.kind, goodbye.acknowledged, goodbye.sequence) == (Kind.GOODBYE, 1, 0)
    assert make().goodbye() is None


def test_a_full_backlog_refuses_and_a_section_too_large_is_the_callers_mistake() -> None:
    link = make(backlog_bytes_max=100)
    link.queue([b"x" * 90])
    link.queue([b"y" * 10, b"z"])
    assert link.counts.dropped_overflow == 2
    assert link.backlog_bytes == 90 + LENGTH_BYTES
    with pytest.raises(ValueError, match="exceeds the limit"):
        link.queue([b"x" * (SECTION_BYTES_MAX + 1)])
    link.validate()


def test_a_full_backlog_takes_sections_with_credit() -> None:
    link = make(backlog_bytes_max=100)
    assert link.queue([b"x" * 200], credited=1)
    assert not link.queue([b"y" * 10, b"z"], credited=1)
    assert link.queue([b"w"], credited=1)
    assert link.queued() == (b"x" * 200, b"y" * 10, b"w")
    assert link.counts.dropped_overflow == 1
    link.validate()


def test_a_peer_stands_while_it_is_heard() -> None:
    link = greeted()
    assert link.stands(since=0.0)
    assert not link.stands(since=1.0)
    link.receive(frame(), 1.5)
    assert link.stands(since=1.0)
    link.receive(frame(Kind.GOODBYE), 1.6)
    assert not link.stands(since=1.0)
    assert str(link) == "peer:2 5.1.1->6.1.1 LEFT out=0/0/0 in=0/0 backlog=0 owes=NOTHING"


GRANTS = (Grant(3, 1000, 0), Grant(4, 50, 7))


def test_a_plain_data_frame_is_sent_at_less_cost() -> None:
    link = greeted()
    assert link.next_data(0.1) is None, "there is nothing to send"
    link.queue([b"a", b"b"])
    assert link.next_data(0.1) == (1, 0, [b"a", b"b"])
    link.sent_data(0.1)
    assert (link.next_data(0.1), link.next_frame(0.1)) == (None, None)
    assert link.deadline() == pytest.approx(0.1 + PROBE_SECS)
    link.queue([b"c"])
    link.take(link.receive(data(1), 0.2)[0], 0.2)  # type: ignore[arg-type]
    assert link.next_data(0.2) == (2, 1, [b"c"])
    link.sent_data(0.2)
    assert send_all(link, 0.2 + ACK_DELAY_SECS) == [], "it has acknowledged what was taken"
    assert link.counts.frames_sent == 3


def test_a_frame_with_more_to_say_than_its_sections_is_sent_whole() -> None:
    link = greeted()
    link.queue([b"a"])
    link.grant([Grant(1, 100, 0)], soon=False)
    assert link.next_data(0.1) is None
    send_all(link, 0.1)
    link.queue([b"b"])
    link.receive(data(2), 0.2)
    assert link.next_data(0.2) is None, "it has to name a gap"
    send_all(link, 0.2)
    link.queue([b"c"])
    assert link.next_data(0.1 + IDLE_SECS) is None, "all grants are due again"
    send_all(link, 0.1 + IDLE_SECS)
    link.queue([b"x" * (PART_BYTES + 1)])
    assert link.next_data(1.2) is None, "a section that goes on in the next frame"


def test_a_plain_data_frame_is_taken_in_order_or_left_to_be_taken_whole() -> None:
    link = greeted()
    link.queue([b"a"])
    send_all(link, 0.1)
    assert link.receive_data(2, 0, (b"y",), 5, 0.2) is None, "a gap"
    assert link.receive_data(1, 2, (b"x",), 5, 0.2) is None, "an acknowledgement of nothing"
    assert link.counts.frames_received == 1, "the greeting"
    delivered = link.receive_data(1, 1, (b"x",), 5, 0.2)
    assert delivered == Delivered(PEER, THEIRS, 1, (b"x",), 5)
    assert link.settled
    assert link.receive_data(1, 1, (b"x",), 5, 0.2) is None, "a repeat"
    assert link.receive(data(2, 1), 0.3)[0].sequence == 2  # type: ignore[union-attr]
    link.receive(frame(Kind.GOODBYE, 2, 1), 0.4)
    assert link.receive_data(3, 1, (b"z",), 5, 0.5) is None, "after its goodbye"


def test_a_plain_data_frame_is_no_part_of_a_section() -> None:
    link = greeted()
    part = Frame(
        Kind.DATA, b"topology", PEER, THEIRS, MINE, 1, 0, sections=(b"half",), more=True
    )  # fmt: skip
    assert link.receive(part, 0.1) == []
    assert link.receive_data(2, 0, (b"whole",), 9, 0.1) is None
    (delivered,) = link.receive(data(2), 0.1)
    assert isinstance(delivered, Delivered)
    assert delivered.sections == (b"halfs2",)


def test_grants_ride_on_the_next_frame_or_have_one_of_their_own() -> None:
    link = greeted()
    link.grant(GRANTS[:1], soon=False)
    assert send_all(link, 0.1) == []
    link.queue([b"a"])
    (out,) = send_all(link, 0.1)
    assert (out.kind, out.grants) == (Kind.DATA, GRANTS[:1])
    link.grant(GRANTS[1:], soon=True)
    (out,) = send_all(link, 0.2)
    assert (out.kind, out.grants) == (Kind.IDLE, GRANTS[1:])


def test_all_grants_are_repeated_once_a_second_and_after_a_reconnection() -> None:
    link = greeted()
    link.grant(GRANTS, soon=True)
    send_all(link, 0.1)
    link.tick(2.0)
    (out,) = send_all(link, 2.0)
    assert out.grants == GRANTS
    link.connected(2.1)
    (out,) = send_all(link, 2.1)
    assert out.grants == GRANTS


def test_only_the_newest_grant_of_a_task_is_sent_and_none_of_an_earlier_session() -> None:
    link = greeted()
    link.grant([Grant(3, 1, 0)], soon=False)
    link.grant([Grant(3, 2, 0)], soon=True)
    (out,) = send_all(link, 0.1)
    assert out.grants == (Grant(3, 2, 0),)
    link.grant(GRANTS, soon=True)
    link.receive(frame(sender=NEWER), 1.0)
    assert [f.grants for f in send_all(link, 2.0)] == [()]


def test_more_grants_than_a_frame_holds_take_several() -> None:
    link = greeted()
    grants = [Grant(task, 1, 0) for task in range(GRANTS_MAX + 10)]
    link.grant(grants, soon=True)
    assert [len(out.grants) for out in send_all(link, 0.1)] == [GRANTS_MAX, 10]


def test_grants_of_the_peer_are_reported_and_the_highest_is_kept() -> None:
    link = greeted()
    reported = frame()._replace(grants=GRANTS)
    assert link.receive(reported, 0.1) == [Granted(PEER, GRANTS)]
    link.receive(frame()._replace(grants=(Grant(3, 900, 0),)), 0.2)
    assert link.granted == {3: GRANTS[0], 4: GRANTS[1]}


def test_a_session_beyond_the_assignment_changes_nothing_until_a_reading_confirms_it() -> None:
    """A stranger's is never confirmed; that of a worker placed since is, and begins at once."""
    link = greeted()
    link.confirm(6, 0.0)
    link.queue([b"a"])
    forged = Session(2**63, 1, 1)
    for _ in range(2):
        assert link.receive(frame(sender=forged, receiver=NO_SESSION), 1.0) == [
            Unconfirmed(PEER, forged)
        ]
    assert link.peer_session == THEIRS
    assert link.counts.dropped_unconfirmed == 2
    assert link.receive(data(1), 1.0)[0] == Delivered(PEER, THEIRS, 1, (b"s1",), 2 + LENGTH_BYTES)
    assert link.confirm(9, 0.0) == []
    placed = Session(10, 1, 1)
    link.receive(frame(sender=placed, receiver=NO_SESSION), 1.0)
    replaced, began = link.confirm(10, 0.0)
    assert isinstance(replaced, Replaced)
    assert (replaced.old, replaced.new) == (THEIRS, placed)
    assert began == Began(PEER, (MINE, placed))
    link.validate()


def test_a_worker_that_its_supervisor_launched_again_needs_no_reading() -> None:
    """ZooKeeper may be away: the same assignment, and a greater launch number."""
    link = greeted()
    link.confirm(THEIRS.assignment_zxid, 0.0)
    events = link.receive(frame(Kind.GREETING, sender=NEWER, receiver=NO_SESSION), 1.0)
    assert isinstance(events[0], Replaced)
    assert link.peer_session == NEWER


def test_without_a_reading_every_session_counts() -> None:
    """A worker that started while ZooKeeper was away knows no zxid."""
    link = make()
    assert link.receive(frame(sender=Session(2**40, 1, 1)), 0.0)
    assert link.peer_session == Session(2**40, 1, 1)


def test_a_link_is_unknown_greeting_standing_and_left() -> None:
    link = make()
    states = [link.state]
    for happens in (
        frame(Kind.GREETING, receiver=NO_SESSION),
        frame(Kind.IDLE),
        frame(Kind.GOODBYE),
        frame(Kind.GREETING, sender=NEWER, receiver=NO_SESSION),
        frame(Kind.GREETING, sender=NEWER),
    ):
        link.receive(happens, 1.0)
        states.append(link.state)
    assert states == [
        State.UNKNOWN, State.GREETING, State.STANDING, State.LEFT, State.GREETING, State.STANDING,
    ]  # fmt: skip


def test_every_state_of_a_link_is_entered_and_left_again() -> None:
    assert {state for state, _ in TABLE} == set(State)
    assert set(TABLE.values()) == set(State)


def test_a_contradiction_reports_what_led_to_it() -> None:
    link = greeted()
    link.receive(frame(Kind.GOODBYE), 2.0)
    link.backlog_bytes = 7
    with pytest.raises(ContradictionError) as caught:
        link.validate()
    reported = str(caught.value)
    assert "LEFT out=0/0/0 in=0/0 backlog=7" in reported
    assert "0 bytes are unacknowledged" in reported
    assert "UNKNOWN --Began(" in reported
    assert "2.000 STANDING --Left(" in reported
    assert reported.index("Began") < reported.index("Left(")


def test_an_impossible_event_does_not_change_a_link() -> None:
    link = make()
    events: list[Any] = []
    with pytest.raises(IllegalEventError, match=r"Left.* cannot happen in UNKNOWN"):
        link._change(Left(PEER, THEIRS, True), 0.0, events)
    assert (link.state, events) == (State.UNKNOWN, [])
