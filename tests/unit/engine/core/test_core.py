"""What both cores promise alike; the engine's tests, run with SQUALL_CORE=pure and compiled, do the
rest."""

import functools
import random
import struct
import sys
import time
import types

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cores import both, compiled

from squall_common.component.columns.fan_out import FanOut
from squall_common.component.groupings import NoStableHashError, stable_hash
from squall_engine import core as chosen
from squall_engine.core import MANY, pure, sections
from squall_engine.core.codec import CodecError, ValueCodec
from squall_engine.core.stats import TaskCounts
from squall_engine.core.values import (
    ChangedRowError,
    EmitError,
    Outcome,
    SettledTupleError,
)

codec = ValueCodec()
ROOT = 7 << 16
SPOUT = 3


def bits():
    return random.Random(5).getrandbits


def source(core, fields=("word",), **kwargs):
    return core.Source("split", 4, "default", fields, **kwargs)


# ---- pending roots ----


@both
def test_pending_roots_time_out_between_ten_and_eleven_buckets(core):
    pending = core.PendingRoots()
    pending.put(1 << 16, "a", "default", 0.0, 0)
    pending.put(2 << 16, "b", "default", 0.0, 1)
    assert pending.expire(10, 5.0).message_ids == []
    assert pending.expire(11, 5.0).message_ids == ["a"]
    assert pending.expire(12, 5.0).message_ids == ["b"]
    assert not pending


@both
def test_a_reset_restarts_the_timeout(core):
    pending = core.PendingRoots()
    pending.put(1 << 16, "a", "default", 0.0, 0)
    pending.put(2 << 16, "b", "default", 0.0, 0)
    pending.reset(1 << 16, 8)
    pending.reset(99 << 16, 8)
    assert pending.expire(11, 5.0).message_ids == ["b"]
    assert pending.expire(18, 5.0).message_ids == []
    assert pending.expire(19, 5.0).message_ids == ["a"]


@both
def test_what_is_taken_is_timed_by_stream(core):
    pending = core.PendingRoots()
    pending.put(1 << 16, "a", "x", 1.0, 0)
    pending.put(2 << 16, "b", "y", 2.0, 0)
    pending.put(3 << 16, "c", "x", 3.0, 0)
    taken = pending.take([1 << 16, 2 << 16, 3 << 16, 4 << 16], 5.0)
    assert taken.message_ids == ["a", "b", "c"]
    assert taken.by_stream == {"x": (2, 6.0), "y": (1, 3.0)}
    assert len(pending) == 0


@both
@given(st.lists(st.tuples(st.sampled_from("ptre"), st.integers(1, 40)), max_size=200))
def test_pending_roots_against_a_dict(core, steps):
    """Tables grow, wrap round and close gaps; messages come back in order of their age."""
    pending = core.PendingRoots()
    model = {}
    bucket = 0
    for step, number in steps:
        root = number << 16  # neighbours in a table
        if step == "p" and root not in model:
            pending.put(root, number, "default", 0.0, bucket)
            model[root] = bucket
        elif step == "t":
            assert pending.take([root], 0.0).message_ids == ([number] if root in model else [])
            model.pop(root, None)
        elif step == "r":
            pending.reset(root, bucket)
            if root in model:
                del model[root]
                model[root] = bucket
        elif step == "e":
            bucket += number // 8
            old = [r for r, b in model.items() if b < bucket - 10]
            assert pending.expire(bucket, 0.0).message_ids == [r >> 16 for r in old]
            for r in old:
                del model[r]
        assert len(pending) == len(model)
        assert pending.oldest_first() == list(model)


@both
def test_thousands_of_pending_roots(core):
    pending = core.PendingRoots()
    rng = random.Random(3)
    roots = list({rng.getrandbits(48) << 16 for _ in range(20_000)})
    for root in roots:
        pending.put(root, root, "default", 0.0, 0)
    gone = rng.sample(roots, 15_000)
    assert pending.take(gone, 0.0).message_ids == gone
    taken = set(gone)
    assert pending.oldest_first() == [root for root in roots if root not in taken]


@both
@pytest.mark.parametrize("shift", [16, 20, 42], ids=["blocks", "firsts of blocks", "one place"])
def test_tables_of_roots_that_belong_together(core, shift):
    """Roots of whole blocks, the first of each block only, and all that belong at one place: more
    than a table has of that place. Their acks come in any order."""
    rng = random.Random(7)
    trees, pending = one_worker(core), core.PendingRoots()
    trees.attach(SPOUT, pending)
    live = {}
    for number in range(1, 1_500):
        root = number << shift
        live[root] = rng.getrandbits(64)
        pending.put(root, number, "default", 0.0, 0)
        trees.ledger.init(root, live[root], SPOUT)
        for root in rng.sample(sorted(live), min(len(live), rng.choice([0, 0, 0, 1, 3]))):
            trees.ledger.ack(root, live.pop(root))
        assert (len(pending), len(trees)) == (len(live), len(live))
    assert pending.oldest_first() == list(live)
    trees.ledger.fail(list(live)[::2])
    assert trees.settle().failed == {SPOUT: list(live)[::2]}
    for root in list(live)[1::2]:
        trees.ledger.ack(root, live[root])
    assert pending.oldest_first() == list(live)[::2]
    assert len(trees) == 0


@both
def test_a_spout_takes_its_roots_from_blocks(core):
    """So that the tables of acks find them beside each other."""
    emitter, edge = emitter_to(core)
    spout = core.SpoutCalls(
        emitter, one_worker(core).ledger, core.PendingRoots(), core.TurnState(1.0), acker=0,
        on_error=print,
    )  # fmt: skip
    spout.emit_columns([[str(i) for i in range(40)]], message_ids=range(40))
    roots = [tup.root for tup in edge.take().as_tuples()]
    blocks = {root >> 20: [] for root in roots}
    for root in roots:
        blocks[root >> 20].append(root >> 16 & 15)
    assert list(blocks.values()) == [list(range(16)), list(range(16)), list(range(8))]


# ---- trees ----


def one_worker(core, ackers=1):
    return core.Trees(ackers, range(ackers), bits())


@both
def test_a_failed_tree_does_not_complete_when_its_tuples_are_acked_later(core):
    """A tuple that is refused on the way fails its tree; the bolt that emitted it goes on."""
    trees = one_worker(core)
    pending = core.PendingRoots()
    trees.attach(SPOUT, pending)
    emitter, edge = emitter_to(core)
    spout = core.SpoutCalls(
        emitter, trees.ledger, pending, core.TurnState(1.0), acker=0, on_error=print
    )
    spout.emit(["a"], message_id="m")
    (tup,) = edge.take().as_tuples()
    trees.ledger.fail([tup.root])
    careful(core, trees.ledger).ack(tup)
    outcome = trees.settle()
    assert outcome.done == {}
    assert outcome.failed == {4: [tup.root]}
    assert pending.take_completed(2.0) is None


@both
@pytest.mark.parametrize("noted", [True, False])
def test_the_rest_of_a_batch_is_acked_in_one_call(core, noted):
    trees, src = one_worker(core), source(core)
    emitter, edge = emitter_to(core)
    counts, settled, changes = TaskCounts(), [], []
    calls = core.CarefulCalls(
        emitter, trees.ledger, counts, default_anchors=lambda: (), on_error=print,
        on_settled=lambda tup, failed: settled.append((tup.values[0], failed)), notes_acks=noted,
        on_change=lambda: changes.append(1),
    )  # fmt: skip
    one, two, three = (n << 16 for n in (1, 2, 3))
    tuples = [
        core.Tuple(["a"], 21, one, src),
        core.Tuple(["b"], 22, one, src),
        core.Tuple(["c"], 0, MANY, src, False, {two: 23, one: 24}),
        core.Tuple(["d"], 0, 0, src),
        core.Tuple(["e"], 25, three, src),
        core.Tuple(["f"], 26, one, src),
        core.Tuple(["g"], 27, one, src),
        core.Tuple(["h"], 28, two, src),
    ]
    for root, edges in ((one, 21 ^ 22 ^ 24 ^ 26 ^ 27), (two, 23 ^ 28), (three, 25)):
        trees.ledger.init(root, edges, SPOUT)
    calls.fail(tuples[4])
    settled.clear()
    changes.clear()
    calls.emit(["i"], anchors=[tuples[0], tuples[7]])  # two trees have one tuple more
    calls.ack_rest(tuples)
    assert all(tup.settled for tup in tuples)
    assert counts.acked == {src.key: 7}
    assert settled == ([(value, False) for value in "abcdfgh"] if noted else [])
    assert changes
    outcome = trees.settle()
    assert outcome.done == {}
    assert outcome.failed == {SPOUT: [three]}
    calls.ack_rest(tuples)
    assert counts.acked == {src.key: 7}
    (more,) = edge.take().as_tuples()
    calls.ack_rest([more])
    assert {root for roots in trees.settle().done.values() for root in roots} == {one, two}


@both
def test_the_rest_may_come_from_several_streams(core):
    """Windows hold tuples of all their inputs."""
    trees, here = one_worker(core), source(core)
    there = core.Source("split", 4, "other", ("word",))
    counts = TaskCounts()
    calls = core.CarefulCalls(
        emitter_to(core)[0], trees.ledger, counts, default_anchors=lambda: (), on_error=print
    )
    sources = [here, there, there, here, there]
    calls.ack_rest([core.Tuple([i], 20 + i, 1 << 16, one) for i, one in enumerate(sources)])
    trees.ledger.init(1 << 16, 20 ^ 21 ^ 22 ^ 23 ^ 24, SPOUT)
    assert counts.acked == {here.key: 2, there.key: 3}
    assert trees.settle().done == {SPOUT: [1 << 16]}


@both
@pytest.mark.parametrize("roots", [2, 5, 300])
def test_what_is_anchored_to_many_tuples_belongs_to_each_of_their_trees_once(core, roots):
    """Every tree completes, also one that several anchors share; one anchor is named twice."""
    trees, src = one_worker(core), source(core)
    emitter, edge = emitter_to(core)
    calls = core.CarefulCalls(
        emitter, trees.ledger, TaskCounts(), default_anchors=lambda: (), on_error=print
    )
    named = [root << 16 for root in range(1, roots + 1)]
    tuples = [core.Tuple([i], 100 + i, named[i % roots], src) for i in range(2 * roots)]
    both_of = {named[0]: 7, named[1]: 9}
    tuples.append(core.Tuple(["several"], 0, MANY, src, False, both_of))
    tuples.append(core.Tuple(["none"], 0, 0, src))
    calls.emit(["result"], anchors=[*tuples, tuples[1]])
    (result,) = edge.take().as_tuples()
    assert list(result.anchors) == named
    for i, root in enumerate(named):
        trees.ledger.init(root, (100 + i) ^ (100 + i + roots) ^ both_of.get(root, 0), SPOUT)
    calls.ack_rest(tuples)
    assert trees.settle() is None
    calls.ack(result)
    assert trees.settle().done == {SPOUT: named}


@both
def test_a_tree_completes_when_its_last_tuple_is_acked(core):
    trees = one_worker(core)
    pending = core.PendingRoots()
    trees.attach(4, pending)
    emitter, edge = emitter_to(core)
    spout = core.SpoutCalls(
        emitter, trees.ledger, pending, core.TurnState(1.0), acker=0, on_error=print
    )
    for i in range(3):
        spout.emit(["a"], message_id=i)
    calls = careful(core, trees.ledger)
    first, second, third = edge.take().as_tuples()
    for tup in (second, first):
        calls.ack(tup)
    assert sorted(done(trees, pending)) == [0, 1]
    calls.emit(["b"], anchors=[third])
    calls.ack(third)
    assert done(trees, pending) == []
    assert len(pending) == 1
    assert len(trees) >= 1


def done(trees, pending):
    """The ids of the messages that have completed."""
    outcome = trees.settle() or Outcome()
    ids = [i for roots in outcome.done.values() for i in pending.take(roots, 2.0).message_ids]
    completed = pending.take_completed(2.0)
    return ids + ([] if completed is None else completed.message_ids)


@both
def test_acks_for_another_workers_acker_leave_as_one_section(core):
    here = core.Trees(1, [], bits())
    there = core.Trees(1, [0], bits())
    emitter, edge = emitter_to(core, local=False)
    pending = core.PendingRoots()
    spout = core.SpoutCalls(
        emitter, here.ledger, pending, core.TurnState(1.0), acker=0, on_error=print
    )
    spout.emit(["a"], message_id="m")
    (section,) = here.settle().sections[0]
    parsed = sections.parse_acks(section)
    assert list(parsed.inits.values()) == [4]
    assert parsed.acks.keys() == parsed.inits.keys()
    assert there.receive_acks(section) == Outcome()
    assert here.settle() is None
    (tup,) = edge.take().as_tuples()
    ack = sections.serialize_acks(0, {tup.root: tup.id}, {})
    assert there.receive_acks(ack).done == {4: [tup.root]}
    assert there.counts(0).inits == {4: 1}
    assert there.counts(0).done == 1
    assert len(there) == 0


@both
def test_an_acker_takes_fails_resets_and_repeats(core):
    trees = core.Trees(1, [0], bits())
    start = sections.serialize_acks(0, {ROOT: 5}, {ROOT: SPOUT})
    assert trees.fail(0, [ROOT]) == Outcome()
    assert trees.receive_acks(start) == Outcome(failed={SPOUT: [ROOT]})
    assert trees.receive_acks(start) == Outcome()
    assert trees.receive_acks(start) == Outcome()  # a repetition
    for _ in range(4):
        trees.rotate_ackers()
        assert trees.reset_timeout(0, [ROOT]) == Outcome(reset={SPOUT: [ROOT]})
    assert trees.receive_acks(sections.serialize_acks(0, {ROOT: 5}, {})) == Outcome(
        done={SPOUT: [ROOT]}
    )
    assert trees.receive_acks(sections.serialize_acks(0, {ROOT: 5}, {ROOT: SPOUT})) == Outcome()
    trees.rotate_ackers()
    trees.rotate_ackers()
    assert len(trees) == 0
    assert trees.reset_timeout(0, [ROOT]) == trees.reset_timeout(1, [ROOT]) == Outcome()


@both
@given(st.binary(max_size=60))
def test_garbage_is_not_an_acks_section(core, data):
    trees = core.Trees(1, [0], bits())
    with pytest.raises(CodecError):
        trees.receive_acks(b"\2\0\0\0\0\0" + data + b"\xff" * 40)


@both
def test_the_trees_of_a_workers_ackers_fail_when_it_ends(core):
    trees = core.Trees(1, [0], bits())
    trees.receive_acks(sections.serialize_acks(0, {ROOT: 5}, {ROOT: SPOUT}))
    later = ROOT + (1 << 16)
    trees.receive_acks(sections.serialize_acks(0, {later: 7}, {}))  # whose init has not come
    assert trees.give_up() == Outcome(failed={SPOUT: [ROOT]})
    assert trees.give_up() == Outcome()
    assert trees.counts(0).failed == 1


@both
def test_failing_a_root_of_a_missing_acker_does_nothing(core):
    """It came from a worker that is not of our mind."""
    trees = core.Trees(1, [0], bits())
    trees.ledger.fail([ROOT | 3])
    assert (trees.settle() or Outcome()) == Outcome()


# ---- batches on the wire ----


def batch_of(core, src, rows, several=False, anchored=True, sources=()):
    """`sources` take turns (none: `src`)."""
    tuples = [
        core.Tuple(
            row,
            100 + i if anchored else 0,
            (i + 1) << 16 if anchored else 0,
            sources[i % len(sources)] if sources else src,
        )
        for i, row in enumerate(rows)
    ]
    if several and anchored:
        tuples[0] = core.Tuple(rows[0], 0, MANY, tuples[0].source, False, {1 << 16: 5, 2 << 16: 6})
    return core.Batch.of(src, tuples)


@both
def test_a_batch_holds_no_anchors_of_what_was_taken(core):
    """Looking through those of taken tuples made slices of a large batch quadratic."""
    anchors = {1 << 16: 5, 2 << 16: 6}
    src = source(core)
    several = core.Tuple(["x"], 0, MANY, src, False, anchors)
    batch = core.Batch.of(src, [several, *batch_of(core, src, [["y"]]).as_tuples()])
    del several
    held = sys.getrefcount(anchors)
    (taken,) = batch.take(1).as_tuples()
    assert taken.anchors is anchors
    assert sys.getrefcount(anchors) == held
    del taken
    assert sys.getrefcount(anchors) == held - 1
    assert [list(tup.values) for tup in batch.as_tuples()] == [["y"]]


def shape(batches):
    return {
        task: [(t.source_task, list(t.values), t.id, t.root, t.anchors) for t in batch.as_tuples()]
        for task, batch in batches.items()
    }


@pytest.mark.skipif(compiled is None, reason="the compiled core is not built")
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("tasks", [[7], [7, 9]])
@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("senders", [1, 2])
def test_each_core_reads_what_the_other_writes(several, tasks, anchored, senders):
    rows = [["a", 1], ("b", 2**70), ["c", (1, 2)], ["d", None]]

    def from_task(core, task):
        return core.Source("spout", task, "default", ("word", "n"), local=False)

    written, meant = [], []
    for core in (pure, compiled):
        sources = [from_task(core, 4 + i) for i in range(senders)]
        batches = []
        for task in tasks:
            batch = batch_of(core, sources[0], rows, several, anchored, sources)
            batch.take(1)
            batches.append((task, batch))
        written.append(core.encode_batches(sources[0], batches, codec))
        meant.append(shape(dict(batches)))
    assert written[0] == written[1]
    for core in (pure, compiled):

        def source_of(task, stream, core=core):
            assert stream == "default"
            return from_task(core, task)

        read = shape(core.decode_batches(written[0], codec, source_of))
        assert [[row[0] for row in of] for of in read.values()] == [
            [4 + i % senders for i in (1, 2, 3)] for _ in tasks
        ]
        assert {task: [row[2:] for row in of] for task, of in read.items()} == {
            task: [row[2:] for row in of] for task, of in meant[0].items()
        }
        # Of a task that nobody knows, nothing is taken.
        assert core.decode_batches(
            written[0],
            codec,
            lambda task, _, core=core: None if task == 5 else from_task(core, task),
        ).keys() == (set() if senders == 2 else set(tasks))
    assert meant[0] == meant[1]


@both
@given(st.data())
def test_a_broken_section_is_refused_or_read_without_other_effects(core, data):
    src = source(core)
    sources = data.draw(st.sampled_from([(), (src, core.Source("spout", 5, "default", ["x"]))]))
    mixed = batch_of(core, src, [["x"]] * 3, several=True, sources=sources)
    whole = core.encode_batches(src, [(7, mixed), (8, batch_of(core, src, [["y"]]))], codec)
    at = data.draw(st.integers(0, len(whole)))
    broken = data.draw(
        st.sampled_from(
            [whole[:at], whole[:at] + b"\xff" + whole[at + 1 :], whole[at:], whole + whole[:at]]
        )
    )
    try:
        batches = core.decode_batches(broken, codec, lambda *_: src)
    except CodecError:
        return
    assert sum(map(len, batches.values())) <= len(broken)


@both
@pytest.mark.parametrize("anchors", [{-1: 5}, {1 << 16: -5}])
def test_a_tree_that_cannot_be_is_refused(core, anchors):
    src = source(core)
    whole = core.encode_batches(src, [(7, batch_of(core, src, [["x"]], several=True))], codec)
    pack = msgspec.msgpack.encode
    right, wrong = pack([(0, {1 << 16: 5, 2 << 16: 6})]), pack([(0, anchors)])
    assert right in whole
    before, after = whole.split(right)
    broken = before[:-4] + struct.pack("<I", len(wrong)) + wrong + after
    with pytest.raises(CodecError):
        core.decode_batches(broken, codec, lambda *_: src)


@both
def test_a_section_of_a_later_version_is_refused(core):
    src = source(core)
    data = bytearray(core.encode_batches(src, [(7, batch_of(core, src, [["x"]]))], codec))
    data[1] |= 0x40
    with pytest.raises(CodecError, match="flags that are unknown: 0x43"):
        core.decode_batches(bytes(data), codec, lambda *_: src)


# ---- emitting and executing ----


def emitter_to(core, tasks=(9,), local=True, grouping="shuffle"):
    src = core.Source("spout", 4, "default", ["x"])
    output = core.Output(src, direct=False)
    edges = [core.Edge(task, src, local=local) for task in tasks]
    if grouping == "shuffle":
        output.add_consumer(core.RoundRobin(edges, random.Random(1)), edges)
    else:
        output.add_consumer(core.ByFields(edges, [0], stable_hash), edges)
    emitter = core.Emitter(
        "spout", 4, {"default": output}, bits(), on_rejected=lambda error, roots: None
    )
    return emitter, edges[0] if len(edges) == 1 else edges


def careful(core, ledger):
    emitter, _ = emitter_to(core)
    return core.CarefulCalls(
        emitter, ledger, TaskCounts(), default_anchors=lambda: (), on_error=print
    )


@both
@pytest.mark.parametrize(
    "value",
    ["", "a", "word", "wörd", "x" * 7, "x" * 8, "x" * 9, "y" * 100, "\ud800", 0, 1, -1, 2**61 - 1,
     2**61, -(2**63), 2**100, 1.0, 0.5, -0.0, float("inf"), float("nan"), True, None, b"", b"\xff",
     b"12345678", (1, "a"), (), ("wörd", b"\xff" * 300, -1, 0.5), ("\ud800", 1), (1, (2, "a")),
     (float("nan"), 1), (True, None), frozenset({1})],
)  # fmt: skip
def test_a_fields_grouping_is_the_stable_hash(core, value):
    tasks = tuple(range(100, 197))
    emitter, edges = emitter_to(core, tasks, grouping="fields")
    calls = core.CarefulCalls(
        emitter, one_worker(core).ledger, TaskCounts(), default_anchors=lambda: (), on_error=print
    )
    bolt = bolt_calls(core, emitter, one_worker(core), lambda tup: None)
    wanted = (tasks[stable_hash(value) % len(tasks)],)
    assert calls.emit([value]) == bolt.emit([value]) == bolt.emit((value,)) == wanted
    assert len(edges[wanted[0] - 100]) == 3


scalars = st.text() | st.integers() | st.floats() | st.binary() | st.booleans() | st.none()


@both
@given(scalars | st.lists(scalars).map(tuple))
def test_values_are_hashed_alike(core, value):
    tasks = tuple(range(100, 197))
    emitter, _ = emitter_to(core, tasks, grouping="fields")
    bolt = bolt_calls(core, emitter, one_worker(core), lambda tup: None)
    assert bolt.emit([value]) == (tasks[stable_hash(value) % len(tasks)],)


@both
def test_a_value_without_a_stable_hash_is_refused(core):
    emitter, _ = emitter_to(core, (9, 10), grouping="fields")
    bolt = bolt_calls(core, emitter, one_worker(core), lambda tup: None)
    with pytest.raises(NoStableHashError):
        bolt.emit([object()])


def bolt_calls(
    core, emitter, trees, execute, auto_ack=True, errors=None, counts=None, on_settled=None
):
    return core.BoltCalls(
        emitter,
        trees.ledger,
        TaskCounts() if counts is None else counts,
        execute,
        auto_ack=auto_ack,
        on_error=errors.append if errors is not None else print,
        now=time.monotonic,
        on_outside=lambda: None,
        on_settled=on_settled,
    )


@both
def test_a_batch_is_executed_in_portions_and_kept_tuples_stay_as_they_are(core):
    trees = one_worker(core)
    emitter, _ = emitter_to(core)
    kept = []
    calls = bolt_calls(core, emitter, trees, kept.append)
    batch = batch_of(core, source(core), [[i] for i in range(5)])
    calls.run(batch, 2)
    assert len(batch) == 3
    calls.run(batch, 3)
    assert len(batch) == 0
    assert [tup["word"] for tup in kept] == [0, 1, 2, 3, 4]
    assert [tup.root >> 16 for tup in kept] == [1, 2, 3, 4, 5]


@both
def test_the_loop_undoes_tries_that_fail_and_goes_on(core):
    """By an error, by `fail`, or broken off: what each has emitted does not leave, and the error of
    what cannot be tried again is the tuple's."""
    trees, errors, refused, left = one_worker(core), [], [], []
    emitter, _ = emitter_to(core)
    trial = core.Trial([], failure=lambda: ValueError("it called fail"), on_fault=errors.append)
    emit = trial.holding(left.append, "default", 1, lambda *given: ())

    def execute(tup):
        word = tup["word"]
        emit([word])
        if word == "fails":
            trial.fail(tup)
        elif word == "breaks off":
            raise SystemExit
        elif word != "fine":
            raise KeyError(word)

    def on_failed(tup, error):
        assert trial.held is None
        refused.append((tup["word"], str(error)))
        if tup["word"] == "fatal":
            raise error

    tried = trial.around(execute, on_failed, lambda tup: tup["word"][0])
    calls = bolt_calls(core, emitter, trees, tried, errors=errors)
    words = ["fine", "raises", "fails", "fatal", "fine", "breaks off", "fine"]
    batch = batch_of(core, source(core), [[word] for word in words])
    with pytest.raises(SystemExit):
        calls.run(batch, 6)
    calls.run(batch, 1)
    assert left == [["fine"]] * 3
    assert refused == [
        ("raises", "'raises'"), ("fails", "it called fail"), ("fatal", "'fatal'")
    ]  # fmt: skip
    assert [str(error) for error in errors] == ["'fatal'"]


@both
@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("error", [IndexError, StopIteration])
def test_the_loop_tries_tuples_without_a_key_and_goes_on(core, error, observed):
    trees, executed, refused, settled = one_worker(core), [], [], []
    emitter, _ = emitter_to(core)
    trial = core.Trial([], failure=ValueError, on_fault=refused.append)

    def key_of(tup):
        if tup["word"] in ("bad", "fatal"):
            raise error(tup["word"])
        return tup["word"]

    def on_failed(tup, why):
        refused.append(tup["word"])
        assert isinstance(trial.retry(tup), error)  # and once more
        if tup["word"] == "fatal":
            raise why

    counts, errors = TaskCounts(), []
    calls = bolt_calls(
        core,
        emitter,
        trees,
        trial.around(lambda tup: executed.append(tup["word"]), on_failed, key_of),
        errors=errors,
        counts=counts,
        on_settled=(lambda tup, failed: settled.append(failed)) if observed else None,
    )
    words = ["bad", "a", "bad", "bad", "b", "fatal", "c", "bad"]
    calls.run(batch_of(core, source(core), [[word] for word in words]), len(words))
    assert executed == ["a", "b", "c"]
    assert refused == ["bad", "bad", "bad", "fatal", "bad"]
    assert len(errors) == 1
    assert counts.failed == {("split", "default"): 1}
    assert counts.acked == {("split", "default"): 7}
    assert settled == ([False] * 5 + [True] + [False] * 2 if observed else [])


@both
def test_a_stop_iteration_out_of_the_last_try_ends_a_tuple_and_not_the_loop(core):
    """It comes out while the loop asks for the next tuple: the others would not be executed."""
    trees, errors, executed = one_worker(core), [], []
    emitter, _ = emitter_to(core)
    trial = core.Trial([], failure=lambda: ValueError("it called fail"), on_fault=errors.append)

    def execute(tup):
        executed.append(tup["word"])
        if tup["word"] == "fails":
            trial.fail(tup)

    def on_failed(tup, error):
        raise StopIteration("of a grouping that a user wrote")

    counts = TaskCounts()
    tried = trial.around(execute, on_failed)
    calls = bolt_calls(core, emitter, trees, tried, errors=errors, counts=counts)
    calls.run(batch_of(core, source(core), [[word] for word in ("a", "fails", "b", "c")]), 4)
    assert executed == ["a", "fails", "b", "c"]
    assert [str(error) for error in errors] == ["of a grouping that a user wrote"]
    assert counts.failed == {("split", "default"): 1}
    assert counts.acked == {("split", "default"): 3}


@both
@pytest.mark.parametrize("auto_ack", [True, False])
def test_a_tuple_that_was_kept_by_a_call_that_raised_stays_as_it_is(core, auto_ack):
    trees, kept = one_worker(core), []
    emitter, _ = emitter_to(core)

    def execute(tup):
        kept.append(tup)
        if tup["word"] % 2:
            raise ValueError

    def forget(error):
        """A traceback would hold the tuple, too."""

    calls = core.BoltCalls(
        emitter,
        trees.ledger,
        TaskCounts(),
        execute,
        auto_ack=auto_ack,
        on_error=forget,
        now=time.monotonic,
        on_outside=lambda: None,
    )
    calls.run(batch_of(core, source(core), [[number] for number in range(6)]), 6)
    assert [tup["word"] for tup in kept] == [0, 1, 2, 3, 4, 5]
    assert [tup.root >> 16 for tup in kept] == [1, 2, 3, 4, 5, 6]


@both
@pytest.mark.parametrize("keeps", [True, False])
def test_small_batches_are_executed_in_one_go(core, keeps):
    trees = one_worker(core)
    emitter, edge = emitter_to(core)
    kept, seen, errors = [], [], []

    def execute(tup):
        seen.append((tup.source_task, tup[0], bool(tup.anchors)))
        if keeps:
            kept.append(tup)
        if tup[0] == 3:
            raise ValueError("three")
        calls.emit([tup[0]])

    calls = bolt_calls(core, emitter, trees, execute, errors=errors)
    sources = [core.Source("split", task, "default", ["word"]) for task in (4, 5, 6)]
    batches = [
        batch_of(core, sources[0], [[0], [1]], several=True),
        batch_of(core, sources[1], [[2]]),
        batch_of(core, sources[2], [[3], [4], [5]]),
    ]
    calls.run_each(batches, 5)
    assert [len(batch) for batch in batches] == [0, 0, 1]
    assert [(task, row) for task, row, _ in seen] == [(4, 0), (4, 1), (5, 2), (6, 3), (6, 4)]
    assert not any(several for _, _, several in seen[2:])
    assert [(tup.source_task, tup[0]) for tup in kept] == [s[:2] for s in seen if keeps]
    assert [str(error) for error in errors] == ["three"]
    assert [tup[0] for tup in edge.take().as_tuples()] == [0, 1, 2, 4]
    calls.run_each(batches[2:], 1)
    assert seen[-1][:2] == (6, 5)


@both
def test_a_batch_of_several_sources_is_split_correctly(core):
    one, two = (core.Source("split", task, "default", ["x"]) for task in (4, 5))
    rows = [[i] for i in range(6)]

    def seen(batch):
        return [(tup.source_task, tup[0]) for tup in batch.as_tuples()]

    whole = [(4 if i % 2 == 0 else 5, i) for i in range(6)]
    for first in range(7):
        batch = batch_of(core, one, rows, several=True, sources=(one, two))
        head = batch.take(first)
        assert (seen(head), seen(batch)) == (whole[:first], whole[first:])
        if first == 1:
            assert head.source is one
    # A tuple object that is used again, or was kept, has its own source.
    for keeps in (False, True):
        trees = one_worker(core)
        emitter, _ = emitter_to(core)
        kept, found = [], []

        def execute(tup, keeps=keeps, kept=kept, found=found):
            found.append((tup.source_task, tup[0]))
            if keeps:
                kept.append(tup)

        calls = bolt_calls(core, emitter, trees, execute)
        mixed = batch_of(core, one, rows, sources=(one, two))
        calls.run_each([mixed, batch_of(core, one, [[6]])], 7)
        assert found == [*whole, (4, 6)]
        assert [(tup.source_task, tup[0]) for tup in kept] == (found if keeps else [])


def _held_by_frame(tup):
    return sys._getframe()


def _held_by_traceback(tup):
    try:
        raise ValueError
    except ValueError as error:
        return error


def _yields(tup):
    yield
    yield tup


def _held_by_generator(tup):
    suspended = _yields(tup)
    next(suspended)
    return suspended


@types.coroutine
def _pause():
    yield


async def _waits(tup):
    await _pause()
    return tup


def _held_by_coroutine(tup):
    suspended = _waits(tup)
    suspended.send(None)
    return suspended


def _result(coroutine):
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    return ended.value.value


@both
@pytest.mark.parametrize(
    ("hold", "held"),
    [
        (lambda tup: [tup], lambda kept: kept[0]),
        (lambda tup: lambda: tup, lambda kept: kept()),
        (lambda tup: functools.partial(_yields, tup), lambda kept: kept.args[0]),
        (_held_by_frame, lambda kept: kept.f_locals["tup"]),
        (_held_by_traceback, lambda kept: kept.__traceback__.tb_frame.f_locals["tup"]),
        (_held_by_generator, next),
        (_held_by_coroutine, _result),
    ],
    ids=["list", "closure", "partial", "frame", "traceback", "generator", "coroutine"],
)
def test_a_tuple_that_outlives_its_call_is_not_used_again(core, hold, held):
    """Since Python 3.14 frames borrow their arguments, which the count of references leaves out."""
    trees = one_worker(core)
    emitter, _ = emitter_to(core)
    kept = []
    calls = bolt_calls(core, emitter, trees, lambda tup: kept.append(hold(tup)))
    calls.run(batch_of(core, source(core), [[i] for i in range(20)]), 20)
    assert [held(one)[0] for one in kept] == list(range(20))


@both
def test_an_outbox_lists_the_edges_that_have_tuples(core):
    trees = one_worker(core)
    emitter, edges = emitter_to(core, tasks=(7, 8, 9), grouping="fields")
    calls = bolt_calls(core, emitter, trees, lambda tup: calls.emit([tup[0]]))
    before = batch_of(core, source(core), [[0]])
    calls.run(before, 1)  # what there is already counts
    outbox = core.Outbox([(edge, edge.task) for edge in edges])
    seen = []
    for number in range(100):
        if number:
            calls.run(batch_of(core, source(core), [[number], [number + 1]]), 2)
        assert not outbox.is_empty
        named = outbox.take()
        assert sorted(named) == [edge.task for edge in edges if len(edge)]
        for edge in edges:
            seen += [row[0] for row in edge.take().rows()]
        assert outbox.is_empty
        assert outbox.take() == []
    assert sorted(seen) == sorted([0] + [n + i for n in range(1, 100) for i in (0, 1)])
    # Emptied behind its back.
    calls.run(batch_of(core, source(core), [[1]]), 1)
    for edge in edges:
        edge.drop_oldest(0)
    assert outbox.is_empty
    assert outbox.take() == []
    calls.run(batch_of(core, source(core), [[1]]), 1)
    assert len(outbox.take()) == 1


@both
def test_an_error_fails_only_its_tuple(core):
    trees = one_worker(core)
    emitter, edge = emitter_to(core)
    errors = []

    def execute(tup):
        if tup[0] == 2:
            raise ValueError("two")
        calls.emit([tup[0]])

    calls = bolt_calls(core, emitter, trees, execute, errors=errors)
    calls.run(batch_of(core, source(core, local=False), [[i] for i in range(5)]), 5)
    assert [str(error) for error in errors] == ["two"]
    assert [tup[0] for tup in edge.take().as_tuples()] == [0, 1, 3, 4]


@both
def test_an_input_of_which_no_tuple_was_acked_has_no_count_of_acks(core):
    trees, counts = one_worker(core), TaskCounts()
    emitter, _ = emitter_to(core)
    calls = bolt_calls(core, emitter, trees, lambda tup: calls.fail(tup), counts=counts)
    calls.run(batch_of(core, source(core), [[i] for i in range(3)]), 3)
    assert (counts.acked, counts.failed) == ({}, {("split", "default"): 3})


@both
def test_a_settled_tuple_cannot_be_used(core):
    trees = one_worker(core)
    emitter, _ = emitter_to(core)
    kept = []
    calls = bolt_calls(core, emitter, trees, kept.append, auto_ack=False)
    calls.run(batch_of(core, source(core), [["a"], ["b"]]), 2)
    calls.ack(kept[0])
    for use in (calls.ack, calls.fail, calls.reset_timeout, lambda t: calls.emit([1], anchors=t)):
        with pytest.raises(SettledTupleError):
            use(kept[0])
    calls.emit([1], anchors=kept[1])
    calls.fail(kept[1])


@both
def test_a_tuple_keeps_its_documented_interface(core):
    src = source(core, ("word", "n"))
    tup = core.Tuple(["a", 2], 0, 0, src)
    assert (tup["word"], tup["n"], tup[0], tup[-1]) == ("a", 2, "a", 2)
    assert tup.get("n") == 2
    assert tup.get("x", 5) == 5
    assert tup.as_dict() == {"word": "a", "n": 2}
    assert (tup.fields, tup.source_component, tup.source_task) == (("word", "n"), "split", 4)
    assert tup.source_stream == "default"
    assert not tup.is_tick
    assert repr(tup) == "Tuple(['a', 2], from split:4 default)"
    assert hash(tup) == hash(tup)
    assert tup != core.Tuple(["a", 2], 0, 0, src)
    with pytest.raises(KeyError, match=r"no field .x.; .*.word., .n."):
        tup["x"]
    with pytest.raises(IndexError):
        tup[2]
    with pytest.raises(AttributeError):
        tup.nothing  # noqa: B018


def test_the_chosen_core_is_one_of_the_two():
    assert chosen.NAME in ("pure", "compiled")
    assert chosen.Tuple is (compiled if chosen.COMPILED else pure).Tuple


# ---- columns ----


class Whole:
    """A whole number of a library's."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def column_calls(core, trees, execute, errors=None, auto_ack=True, on_settled=None, changed=None):
    emitter, edge = emitter_to(core)
    counts = TaskCounts()
    calls = core.ColumnCalls(
        emitter,
        trees.ledger,
        counts,
        lambda columns: execute(calls, columns),
        auto_ack=auto_ack,
        auto_anchor=True,
        default_anchors=lambda: (),
        on_error=errors.append if errors is not None else print,
        on_settled=on_settled,
        on_changed_row=changed,
    )
    return calls, edge, counts


def emitted_batch(core, trees, pending, rows):
    """Tuples that a spout emitted, each with a message id."""
    emitter, edge = emitter_to(core)
    spout = core.SpoutCalls(
        emitter, trees.ledger, pending, core.TurnState(1.0), acker=0, on_error=print
    )
    spout.emit_columns([rows], message_ids=rows)
    assert spout.emitted() == len(rows)
    return edge.take()


@both
def test_columns_are_one_list_for_each_field(core):
    seen = []

    def execute(calls, columns):
        words, numbers = columns
        assert columns["word"] is columns[0] is words
        assert numbers == columns["n"] == columns[-1]
        assert columns.rows == len(words)
        assert columns.fields == ("word", "n")
        assert (columns.source_component, columns.source_task) == ("split", 4)
        assert (columns.source_stream, columns.is_tick) == ("default", False)
        with pytest.raises(KeyError, match="no field 'x'"):
            columns["x"]
        with pytest.raises(IndexError):
            columns[2]
        seen.append((words, numbers))

    calls, _, counts = column_calls(core, one_worker(core), execute)
    batch = batch_of(core, source(core, ("word", "n")), [["a", 1], ("b", 2), ["c", 3]])
    calls.run(batch, 2)
    calls.run(batch, 1)
    assert seen == [(["a", "b"], [1, 2]), (["c"], [3])]
    assert counts.acked == {("split", "default"): 3}


@both
@pytest.mark.parametrize("change", [list.pop, list.clear, lambda row: row.append(1)])
def test_a_row_whose_list_was_changed_after_its_emit_fails_alone(core, change):
    errors, settled, seen = [], [], []
    calls, _, counts = column_calls(
        core,
        one_worker(core),
        lambda _, columns: seen.append(list(columns)),
        errors,
        on_settled=lambda tup, failed: settled.append((tup.values, failed)),
    )
    rows = [["a", 1], ["b", 2], ["c", 3]]
    batch = batch_of(core, source(core, ("word", "n")), rows)
    change(rows[1])
    calls.run(batch, 3)
    (error,) = errors
    assert f"split has {len(rows[1])} values for the 2 fields of stream 'default'" in str(error)
    assert seen == [[["a"], [1]], [["c"], [3]]]
    assert counts.failed == {("split", "default"): 1}
    assert counts.acked == {("split", "default"): 2}
    assert settled == [(rows[0], False), (rows[1], True), (rows[2], False)]


@both
def test_a_batch_may_consist_of_changed_rows_of_several_tasks(core):
    errors, seen = [], []
    calls, _, counts = column_calls(
        core, one_worker(core), lambda _, columns: seen.append(list(columns)), errors
    )
    first, second = (core.Source("split", task, "default", ("word", "n")) for task in (4, 5))
    rows = [[str(i), i] for i in range(2_000)]
    batch = batch_of(core, first, rows, sources=(first, second))
    for row in rows[:-1]:
        row.pop()
    calls.run(batch, 2_000)
    assert seen == [[["1999"], [1_999]]]
    assert len(errors) == 1_999
    assert counts.failed == {("split", "default"): 1_999}
    assert counts.acked == {("split", "default"): 1}


@both
def test_the_message_of_a_changed_row_fails_and_the_others_are_done(core):
    trees, pending, errors = one_worker(core), core.PendingRoots(), []
    calls, _, _ = column_calls(core, trees, lambda *_: None, errors)
    trees.attach(4, pending)
    emitter, edge = emitter_to(core)
    spout = core.SpoutCalls(
        emitter, trees.ledger, pending, core.TurnState(1.0), acker=0, on_error=print
    )
    rows = [[0], [1], [2], [3]]
    for row in rows:
        spout.emit(row, message_id=row[0])
    assert spout.emitted() == 4
    rows[0].append("more")
    rows[3].clear()
    calls.run(edge.take(), 4)
    outcome = trees.settle()
    assert pending.take_completed(2.0).message_ids == [1, 2]
    assert pending.take(outcome.failed[4], 2.0).message_ids == [0, 3]
    assert len(errors) == 2


@both
def test_a_changed_row_may_be_taken_care_of(core):
    errors, given = [], []

    def changed(tup, error):
        given.append((tup.values, str(error)))
        if tup.values == ["c"]:
            raise SettledTupleError("already settled")
        return tup.values == ["b"]

    calls, _, counts = column_calls(
        core, one_worker(core), lambda *_: None, errors, changed=changed
    )
    rows = [["a", 1], ["b", 2], ["c", 3], ["d", 4]]
    batch = batch_of(core, source(core, ("word", "n")), rows)
    for row in rows[1:]:
        row.pop()
    calls.run(batch, 4)
    assert [values for values, _ in given] == [["b"], ["c"], ["d"]]
    assert all("split has 1 values" in error for _, error in given)
    assert [type(error) for error in errors] == [SettledTupleError, ChangedRowError]
    assert counts.acked == {("split", "default"): 2}
    assert counts.failed == {("split", "default"): 2}


@both
def test_columns_are_acked_whole_or_by_row_and_emits_anchored_to_their_rows(core):
    trees, pending = one_worker(core), core.PendingRoots()

    def execute(calls, columns):
        columns.fail(1)
        calls.emit_columns([["c1", "c2", "c3"]], origins=[0, 0, 2])
        columns.ack(3)
        for use in (columns.ack, columns.fail):
            with pytest.raises(SettledTupleError):
                use(1)
            with pytest.raises(IndexError):
                use(4)
        with pytest.raises(SettledTupleError):
            calls.emit_columns([["x"]], origins=[1])

    calls, edge, counts = column_calls(core, trees, execute)
    trees.attach(4, pending)
    calls.run(emitted_batch(core, trees, pending, [0, 1, 2, 3]), 4)
    outcome = trees.settle()
    failed = [i for roots in outcome.failed.values() for i in pending.take(roots, 2.0).message_ids]
    assert failed == [1]
    acked = [i for roots in outcome.done.values() for i in pending.take(roots, 2.0).message_ids]
    completed = pending.take_completed(2.0)
    assert acked + (completed.message_ids if completed else []) == [3]
    assert counts.acked == {("spout", "default"): 3}
    assert counts.failed == {("spout", "default"): 1}
    first, second, third = edge.take().as_tuples()
    assert first.root == second.root != third.root
    downstream = careful(core, trees.ledger)
    downstream.ack(third)
    assert done(trees, pending) == [2]
    downstream.ack(first)
    assert done(trees, pending) == []
    downstream.ack(second)
    assert done(trees, pending) == [0]
    assert len(trees) == len(pending) == 0


@both
@pytest.mark.parametrize("portion", [2, 4])
def test_a_bolt_may_clear_its_columns_before_it_settles_their_rows(core, portion):
    settled = []

    def execute(calls, columns):
        columns[0].clear()
        columns.fail(1)
        columns.ack(0)
        with pytest.raises(SettledTupleError):
            columns.ack(0)

    for on_settled in (None, lambda tup, failed: settled.append((list(tup.values), failed))):
        trees, pending = one_worker(core), core.PendingRoots()
        trees.attach(4, pending)
        calls, _, counts = column_calls(core, trees, execute, on_settled=on_settled)
        batch = emitted_batch(core, trees, pending, ["a", "b", "c", "d"])
        for _ in range(0, 4, portion):
            calls.run(batch, portion)
        fails = 4 // portion
        assert counts.failed == {("spout", "default"): fails}
        assert counts.acked == {("spout", "default"): 4 - fails}
        outcome = trees.settle()
        failed = pending.take(outcome.failed[4], 2.0).message_ids
        acked = pending.take_completed(2.0).message_ids
        assert failed == ["b", "d"][:fails]
        assert sorted(acked) == sorted({"a", "b", "c", "d"} - set(failed))
    # Whoever asks for the rows gets what they were.
    assert [row for (row,), has_failed in settled if has_failed] == failed
    assert sorted(row for (row,), _ in settled) == ["a", "b", "c", "d"]


@both
def test_columns_that_raise_fail_their_unsettled_tuples(core):
    trees, pending, errors = one_worker(core), core.PendingRoots(), []

    def execute(calls, columns):
        columns.ack(0)
        raise ValueError("no")

    calls, _, counts = column_calls(core, trees, execute, errors)
    calls.run(emitted_batch(core, trees, pending, [0, 1, 2]), 3)
    assert [str(error) for error in errors] == ["no"]
    assert counts.acked == {("spout", "default"): 1}
    assert counts.failed == {("spout", "default"): 2}


@both
def test_columns_without_auto_ack_stay_in_flight(core):
    trees, pending, kept = one_worker(core), core.PendingRoots(), []
    trees.attach(4, pending)
    calls, _, counts = column_calls(
        core, trees, lambda calls, columns: kept.append(columns), auto_ack=False
    )
    calls.run(emitted_batch(core, trees, pending, [0, 1, 2]), 3)
    assert done(trees, pending) == []
    kept[0].ack(1)
    assert done(trees, pending) == [1]
    kept[0].ack()
    assert sorted(done(trees, pending)) == [0, 2]
    assert counts.acked == {("spout", "default"): 3}


@both
@pytest.mark.parametrize(
    ("columns", "origins", "message"),
    [
        ([[1], [2]], None, "2 columns"),
        (["ab"], None, "one list for each field"),
        ([[1, 2, 3]], None, "origins"),
        ([[1, 2, 3]], [0], "1 origins for 3"),
        ([[1]], [2], "not a row"),
        ([[1]], [-1], "not a row"),
        ([[1, 2]], FanOut([2]), "1 counts in FanOut for a batch of 2"),
        ([[1, 2]], FanOut([0, 2, 0]), "3 counts in FanOut for a batch of 2"),
        ([[]], FanOut([]), "0 counts in FanOut for a batch of 2"),
        ([[1]], FanOut([2, -1]), "the count of row 1 in FanOut is -1"),
        ([[1, 2]], FanOut([1.0, 1]), "the count of row 0 in FanOut is 1.0"),
        ([[1, 2]], FanOut("11"), "the count of row 0 in FanOut is '1'"),
        ([[1, 2]], FanOut([1, 0]), "add up to 1 for 2 tuples"),
        ([[1, 2]], FanOut([2, 1]), "add up to 3 for 2 tuples"),
        ([[1, 2]], FanOut([0, 0]), "add up to 0 for 2 tuples"),
        ([[1]], FanOut([2**63, -(2**63) + 1]), "the count of row 1"),
        ([[1]], FanOut([2**64, 0]), "add up to 18446744073709551616 for 1 tuples"),
    ],
)
def test_columns_that_do_not_fit_are_refused(core, columns, origins, message):
    errors = []

    def execute(calls, _):
        calls.emit_columns(columns, origins=origins)

    calls, edge, _ = column_calls(core, one_worker(core), execute, errors)
    calls.run(batch_of(core, source(core), [["a"], ["b"]]), 2)
    assert isinstance(errors[0], EmitError)
    assert message in str(errors[0])
    assert len(edge) == 0


@both
@pytest.mark.parametrize("counts", [[2, 0, 1, 0], [True * 2, False, True, 0], [2, 0, Whole(1), 0]])
def test_a_fan_out_anchors_to_each_row_as_many_tuples_as_it_counts(core, counts):
    trees, pending = one_worker(core), core.PendingRoots()

    def execute(calls, columns):
        columns.fail(1)
        with pytest.raises(SettledTupleError):
            calls.emit_columns([["x", "y"]], origins=FanOut([1, 1, 0, 0]))
        calls.emit_columns([["a", "b", "c"]], origins=FanOut(counts))
        calls.emit_columns([[]], origins=FanOut([0, 0, 0, 0]))

    calls, edge, _ = column_calls(core, trees, execute)
    trees.attach(4, pending)
    batch = emitted_batch(core, trees, pending, [0, 1, 2, 3])
    roots = [tup.root for tup in batch.as_tuples()]
    calls.run(batch, 4)
    made = edge.take().as_tuples()
    assert [tup.root for tup in made] == [roots[0], roots[0], roots[2]]
    trees.settle()
    downstream = careful(core, trees.ledger)
    for tup in made[1:]:
        downstream.ack(tup)
    assert 0 not in done(trees, pending)
    downstream.ack(made[0])
    assert done(trees, pending) == [0]


@both
def test_a_fan_out_is_ignored_where_no_batch_is_executed(core):
    calls, edge, _ = column_calls(core, one_worker(core), lambda *_: None)
    calls.emit_columns([["a", "b"]], origins=FanOut([5]))
    assert [tuple(tup.values) for tup in edge.take().as_tuples()] == [("a",), ("b",)]


@both
def test_columns_may_be_unanchored(core):
    trees, pending = one_worker(core), core.PendingRoots()

    def execute(calls, columns):
        calls.emit_columns([["a", "b", "c"]], origins=())

    calls, edge, _ = column_calls(core, trees, execute)
    calls.run(emitted_batch(core, trees, pending, [0]), 1)
    assert [tup.root for tup in edge.take().as_tuples()] == [0, 0, 0]
