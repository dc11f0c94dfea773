"""What waits for a bolt, and the slices of it that are executed, in both cores."""

import random
from types import SimpleNamespace

import pytest
from tests.support.cores import both

from squall_engine.observe.latencies import TimedCounts


def batch(core, numbers, *, stream="default", local=True):
    source = core.Source("split", 4, stream, ["n"], local=local)
    return core.Batch.of(source, [core.Tuple((n,), 0, 0, source) for n in numbers])


def numbers(batches):
    return [[row[0] for row in one.rows()] for one in batches]


def inbox_of(core, decode=None, on_sample=lambda row: None, on_full=lambda: None):
    return core.Inbox(decode, on_sample=on_sample, on_full=on_full)


@both
def test_an_inbox_is_a_queue_that_counts_its_tuples(core):
    inbox = inbox_of(core)
    assert not inbox
    assert inbox.take(5) is None
    inbox.put(batch(core, range(3)))
    inbox.put(batch(core, range(3, 5), local=False))
    assert (len(inbox), inbox.queued, inbox.local) == (2, 5, 3)
    assert numbers([inbox.take(2)]) == [[0, 1]]
    assert (len(inbox), inbox.queued, inbox.local) == (2, 3, 1)
    assert numbers([inbox.take(9)]) == [[2]]
    assert numbers([inbox.take(9)]) == [[3, 4]]
    assert (len(inbox), inbox.queued, inbox.local) == (0, 0, 0)


@both
def test_a_long_inbox_keeps_its_order(core):
    inbox = inbox_of(core)
    rng = random.Random(3)
    put = taken = 0
    while taken < 2_000:
        for _ in range(rng.randrange(4)):
            inbox.put(batch(core, [put]))
            put += 1
        for _ in range(rng.randrange(4) if put < 2_000 else len(inbox)):
            found = inbox.take(9)
            if found is not None:
                assert numbers([found]) == [[taken]]
                taken += 1
        assert (len(inbox), inbox.queued) == (put - taken, put - taken)


@both
def test_what_is_pulled_is_of_one_stream_and_fills_the_room(core):
    inbox = inbox_of(core)
    inbox.put(batch(core, range(3)))
    inbox.put(batch(core, range(3, 6), local=False))
    inbox.put(batch(core, range(6, 8), stream="other"))
    assert inbox.pull(0) == ([], 0)
    batches, n = inbox.pull(4)
    assert n == 4
    assert numbers(batches) == [[0, 1, 2], [3, 4, 5]]  # the caller takes the first of the last
    assert (len(inbox), inbox.queued, inbox.local) == (2, 4, 2)
    batches[-1].take(1)
    batches, n = inbox.pull(9)
    assert (numbers(batches), n) == ([[4, 5]], 2)
    batches, n = inbox.pull(9)
    assert (numbers(batches), n) == ([[6, 7]], 2)
    assert inbox.pull(9) == ([], 0)
    assert (inbox.queued, inbox.local) == (0, 0)


@both
def test_encoded_tuples_are_decoded_when_their_turn_comes(core):
    decoded = []

    def decode(encoded):
        decoded.append(encoded)
        return batch(core, encoded.numbers, local=False) if encoded.numbers else None

    inbox = inbox_of(core, decode)
    some = [
        SimpleNamespace(count=2, numbers=[]),  # unreadable
        SimpleNamespace(count=2, numbers=[1, 2]),
        SimpleNamespace(count=1, numbers=[3]),
        SimpleNamespace(count=1, numbers=[4]),
    ]
    for one in some:
        inbox.put_encoded(one)
    assert (len(inbox), inbox.queued, inbox.local) == (4, 6, 0)
    assert inbox.encoded() == some
    assert not decoded
    batches, n = inbox.pull(3)
    assert (numbers(batches), n) == ([[1, 2], [3]], 3)
    assert decoded == some[:3]
    assert inbox.encoded() == some[3:]
    assert (len(inbox), inbox.queued) == (1, 1)
    assert numbers(inbox.empty()) == [[4]]
    assert (len(inbox), inbox.queued, inbox.local) == (0, 0, 0)


@both
def test_an_outbox_fills_inboxes_and_leaves_the_other_edges(core):
    source = core.Source("split", 4, "default", ["n"])
    edges = [core.Edge(task, source, local=True) for task in (7, 8)]
    output = core.Output(source, direct=False)
    output.add_consumer(core.RoundRobin(edges, random.Random(1)), edges)
    emitter = core.Emitter(
        "split", 4, {"default": output}, random.Random(1).getrandbits, on_rejected=print
    )
    trees = core.Trees(1, [0], random.Random(1).getrandbits)
    calls = core.CarefulCalls(
        emitter, trees.ledger, TimedCounts(), default_anchors=lambda: (), on_error=print
    )
    outbox = core.Outbox([(edge, edge.task) for edge in edges])
    sampled, full = [], []
    inbox = inbox_of(core, None, sampled.append, lambda: full.append(inbox.local))
    inbox.soft = 30
    edges[0].inbox = inbox
    assert not outbox.deliver()
    for n in range(20):
        calls.emit((2 * n,))
        calls.emit((2 * n + 1,))
        assert outbox.deliver()
        assert not len(edges[0])
        assert outbox.take() == [8]
        assert not outbox.deliver()
        assert len(edges[1].take()) == 1
    assert (len(inbox), inbox.queued, inbox.local, full) == (20, 20, 20, [])
    assert len(sampled) == 2  # every 16th batch, from the first on
    for n in range(22):
        calls.emit((n,))
    outbox.deliver()
    assert (len(inbox), inbox.local, full) == (21, 31, [31])
    edges[0].inbox = None
    calls.emit((1,))
    calls.emit((1,))
    assert not outbox.deliver()
    assert sorted(outbox.take()) == [7, 8]


def bolt_of(core, execute, clock, *, auto_ack=True):
    counts, errors = TimedCounts(), []
    emitter = core.Emitter("bolt", 9, {}, random.Random(1).getrandbits, on_rejected=print)
    calls = core.BoltCalls(
        emitter,
        core.Trees(1, [0], random.Random(1).getrandbits).ledger,
        counts,
        execute,
        auto_ack=auto_ack,
        on_error=errors.append,
        now=lambda: float(next(clock)),
        on_outside=lambda: None,
    )
    return calls, counts, errors


@both
def test_a_slice_is_executed_timed_and_counted(core):
    seen = []

    def execute(tup):
        seen.append(tup.values[0])
        if tup.values[0] == 2:
            raise ValueError

    calls, counts, errors = bolt_of(core, execute, iter(range(10, 1_000, 8)))
    inbox = inbox_of(core)
    assert calls.run_slice(inbox, 5) == (0, 0.0, 0.0)
    inbox.put(batch(core, range(3)))
    inbox.put(batch(core, range(3, 6)))
    inbox.put(batch(core, [6], stream="other"))
    assert calls.run_slice(inbox, 4) == (4, 18.0, 8.0)
    assert calls.run_slice(inbox, 4) == (2, 34.0, 8.0)
    assert calls.run_slice(inbox, 4) == (1, 50.0, 8.0)
    assert calls.run_slice(inbox, 4) == (0, 0.0, 0.0)
    assert seen == list(range(7))
    assert len(errors) == 1
    here, other = ("split", "default"), ("split", "other")
    assert counts.acked == {here: 5, other: 1}
    assert counts.failed == {here: 1}
    totals = {}
    counts.add_to(totals)
    assert totals["executed", here] == totals["process_events", here] == 6
    assert totals["execute_secs", here] == totals["process_secs", here] == 16.0
    assert (totals["executed", other], totals["execute_secs", other]) == (1, 8.0)


@both
def test_a_slice_that_ends_the_process_is_counted_and_not_as_processed(core):
    def execute(tup):
        raise SystemExit

    calls, counts, _ = bolt_of(core, execute, iter(range(10, 1_000, 8)))
    inbox = inbox_of(core)
    inbox.put(batch(core, range(3)))
    with pytest.raises(SystemExit):
        calls.run_slice(inbox, 9)
    totals = {}
    counts.add_to(totals)
    assert totals["executed", ("split", "default")] == 3
    assert ("process_events", ("split", "default")) not in totals


@both
def test_a_slice_of_a_bolt_that_acks_itself_is_not_processed_by_its_end(core):
    calls, counts, _ = bolt_of(core, lambda tup: None, iter(range(10, 99, 8)), auto_ack=False)
    inbox = inbox_of(core)
    inbox.put(batch(core, range(3)))
    assert calls.run_slice(inbox, 9)[0] == 3
    totals = {}
    counts.add_to(totals)
    assert set(totals) == {
        (what, ("split", "default")) for what in ("executed", "execute_events", "execute_secs")
    }
    assert counts.acked == {}
