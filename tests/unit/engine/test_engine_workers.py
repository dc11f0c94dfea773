"""A topology over several workers, connected in memory."""

from collections import Counter

import pytest
from tests.support import engine_components as c
from tests.support.engine_cluster import EngineCluster, Network

from squall import Bolt, Spout, TopologyBuilder
from squall_common.component.groupings import stable_hash
from squall_engine.core.sections import addressee, serialize_tuples
from squall_engine.core.wire_format import COLUMN_ROWS_MIN, Flag
from squall_engine.transport import FEATURES_TASK, Grant


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


LINES = ["the cow jumped over the moon", "the end", "", "cow cow cow"] * 25


def word_count(split=3, count=3):
    builder = TopologyBuilder()
    builder.spout("lines", c.Lines(LINES))
    builder.bolt("split", c.Split(), parallelism=split).shuffle("lines")
    builder.bolt("count", c.Count(), parallelism=count).fields("split", "word")
    return builder.build()


def spouts(cluster):
    return [spout for engine in cluster.engines for spout in engine._flow.spouts]


def through(cluster):
    """Every spout has emitted all and nothing is pending."""
    return all(not spout.pending for spout in spouts(cluster)) and all(
        engine.is_drained() for engine in cluster.engines
    )


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("ackers", [1, 3])
def test_word_count_over_workers_counts_exactly(workers, ackers):
    conf = {"topology.acker.executors": ackers}
    with EngineCluster(word_count(), workers, conf) as cluster:
        (spout,) = spouts(cluster)
        cluster.run_until(lambda: spout.counts.acked.get("default") == len(LINES))
        total = sum(c.LOG["counters"], Counter())
        assert total == Counter(" ".join(LINES).split())
        assert not spout.counts.failed
        assert cluster.errors == []
        cluster.run_for(1)
        assert cluster.memory() == 0


def test_a_fail_on_another_worker_fails_the_root_at_once():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(10))
    builder.bolt("pass", c.Pass()).shuffle("numbers")
    builder.bolt("fail", c.FailOn([3, 4])).shuffle("pass")
    place = {"numbers": 0, "pass": 1, "fail": 2, "__acker": 1}
    with EngineCluster(
        builder.build(),
        3,
        {"topology.acker.executors": 1},
        network=Network(delay_secs=0.001),
        place=lambda executor, component: place[component],
    ) as cluster:
        cluster.run_until(lambda: through(cluster) and len(c.LOG.get("acked", ())) == 8, 5)
        assert sorted(c.LOG["failed"]) == [3, 4]
        assert sorted(c.LOG["acked"]) == [0, 1, 2, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("seed", range(3))
def test_tuples_lost_by_the_network_are_replayed_until_all_are_acked(seed):
    """Loss and delay on every link: every number arrives at least once, none is acked without."""
    builder = TopologyBuilder()
    builder.spout("numbers", c.Replaying(60))
    builder.bolt("multiply", c.Multiply(2), parallelism=2).shuffle("numbers")
    builder.bolt("collect", c.Collect(), parallelism=2).fields("multiply", "number")
    conf = {
        "topology.message.timeout.secs": 2,
        "topology.acker.executors": 2,
        "topology.max.spout.pending": 8,  # many small turns: many sections to lose
    }
    network = Network(seed, lose=0.2, delay_secs=0.05)
    with EngineCluster(builder.build(), 3, conf, network=network, seed=seed) as cluster:
        cluster.run_until(lambda: len(set(c.LOG.get("acked", ()))) == 60, 600)
        seen = Counter(values[0] for _, _, values in c.LOG["collected"])
        assert set(seen) == set(range(60))
        # Twice, at least: a tree is acked when all of it was executed.
        assert min(seen.values()) >= 2
        assert c.LOG["failed"]
        cluster.run_for(100)
        assert cluster.memory() == 0


def test_tuples_and_types_cross_unchanged_and_keep_several_anchors():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(6))
    builder.bolt("sum", c.Manual(3)).shuffle("numbers")
    builder.bolt("fail", c.FailOn([12], raises=False)).shuffle("sum")
    builder.bolt("collect", c.Collect()).shuffle("fail")
    place = {"numbers": 0, "sum": 1, "fail": 0, "collect": 1, "__acker": 0}
    with EngineCluster(
        builder.build(),
        2,
        {"topology.acker.executors": 1},
        place=lambda executor, component: place[component],
    ) as cluster:
        cluster.run_until(lambda: len(c.LOG.get("acked", ())) + len(c.LOG.get("failed", ())) == 6)
        assert sorted(c.LOG["acked"]) == [0, 1, 2]
        assert sorted(c.LOG["failed"]) == [3, 4, 5]
        assert [values for _, _, values in c.LOG["collected"]] == [(3,)]


def collector_apart(bolt, numbers):
    """Two workers: a spout of so many numbers and the bolt in one, a collector in the other."""
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(numbers))
    builder.bolt("bolt", bolt).shuffle("numbers")
    builder.bolt("collect", c.Collect()).shuffle("bolt")
    place = {"numbers": 0, "bolt": 0, "collect": 1, "__acker": 0}
    return EngineCluster(
        builder.build(),
        2,
        {"topology.acker.executors": 1},
        place=lambda executor, component: place[component],
    )


def test_a_value_that_cannot_be_sent_fails_only_its_tuple():
    with collector_apart(c.EmitsUnencodable(), 3) as cluster:
        cluster.run_until(lambda: len(c.LOG.get("acked", ())) == 2)
        assert c.LOG["failed"] == [1]
        ((component, _, error),) = cluster.errors
        assert component == "bolt"
        assert "field 'thing'" in str(error)


class EmitsChanged(Bolt):
    """Changes the lists of some tuples after their emit."""

    outputs = ["number"]

    def execute(self, tup):
        row = [tup["number"]]
        self.emit(row)
        if tup["number"] in (1, 3):
            row.pop()
        if tup["number"] == 5:
            row.append("more")


def test_a_tuple_whose_list_was_changed_before_it_left_fails_alone():
    with collector_apart(EmitsChanged(), 6) as cluster:
        cluster.run_until(lambda: len(c.LOG.get("acked", ())) == 3)
        assert sorted(c.LOG["acked"]) == [0, 2, 4]
        assert sorted(c.LOG["failed"]) == [1, 3, 5]
        assert {component for component, _, _ in cluster.errors} == {"bolt"}
        said = sorted(str(error).partition(":")[0] for _, _, error in cluster.errors)
        assert said == [
            f"a tuple of bolt has {count} values for the 1 fields of stream 'default'"
            for count in (0, 0, 2)
        ]


def test_local_or_shuffle_stays_in_the_worker():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(20))
    builder.bolt("collect", c.Collect(), parallelism=4).local_or_shuffle("numbers")
    with EngineCluster(builder.build(), 2, {"topology.acker.executors": 2}) as cluster:
        cluster.run_until(lambda: len(c.LOG.get("acked", ())) == 20)
        (home,) = {cluster.routes[spout.task] for spout in spouts(cluster)}
        assert {cluster.routes[task] for task, _, _ in c.LOG["collected"]} == {home}


def test_a_spout_waits_while_a_peer_is_behind():
    with EngineCluster(
        word_count(),
        2,
        place=lambda executor, component: 0 if component in ("lines", "__acker") else 1,
    ) as cluster:
        (end, other) = (cluster.network.ends[slot] for slot in cluster.slots)
        (spout,) = spouts(cluster)
        allowances = [a for out in cluster.engines[0]._flow._groups for a in out.outgoing_edges]
        for outgoing in allowances:
            outgoing.allowance.sent = outgoing.allowance.limit
            cluster.engines[0]._flow._check_allowance(outgoing.task, outgoing.allowance)
        before = spout.calls.emitted()
        cluster.run_for(1)
        assert spout.calls.emitted() - before <= 256  # what the turn under way had
        grants = [Grant(outgoing.task, 1 << 40, 0) for outgoing in allowances]
        end.listener.granted(cluster.slots[1], grants)
        cluster.run_until(lambda: spout.counts.acked.get("default") == len(LINES))
        assert other.sent_bytes > 0


def test_a_section_without_tuples_leaves_the_inbox():
    """No worker of ours sends one; a worker whose inbox is not empty would never be drained."""
    with EngineCluster(word_count(), 2) as cluster:
        (spout,) = spouts(cluster)
        cluster.run_until(lambda: spout.counts.acked.get("default") == len(LINES))
        engine, peer = cluster.engines[0], cluster.slots[1]
        bolt = next(bolt for bolt in engine._flow.bolts if bolt.component == "split")
        source = spout.task
        section = serialize_tuples(source, "default", [bolt.task], (), engine.make_codec())
        assert addressee(section) == (bolt.task, 0)
        engine._flow.deliver(section, engine._flow.accounts_of(peer, 1))
        assert bolt.busy
        engine.wake()
        cluster.run_for(1)
        assert not bolt.busy


def test_spouts_wait_until_the_worker_is_ready():
    with EngineCluster(word_count(), 2) as cluster:
        for engine in cluster.engines:
            engine.set_ready(False)
        (spout,) = spouts(cluster)
        before = spout.calls.emitted()
        cluster.run_for(1)
        assert spout.calls.emitted() == before
        for engine in cluster.engines:
            engine.set_ready(True)
        cluster.run_until(lambda: spout.counts.acked.get("default") == len(LINES))


def test_tuples_without_a_route_wait_for_one():
    with EngineCluster(
        word_count(),
        2,
        place=lambda executor, component: 0 if component in ("lines", "__acker") else 1,
    ) as cluster:
        (spout,) = spouts(cluster)
        cluster.engines[0].set_routes({})
        cluster.run_for(1)
        cluster.engines[0].set_routes(cluster.routes)
        cluster.run_until(lambda: spout.counts.acked.get("default") == len(LINES))
        assert not spout.counts.failed


class ColumnNumbers(Spout):
    """Emits columns of 50 rows, acked."""

    outputs = ("number", "text")

    def __init__(self, rows):
        self.rows = rows

    def open(self, conf, context):
        self.left = list(range(self.rows))

    def next_tuple(self):
        some, self.left = self.left[:50], self.left[50:]
        if some:
            self.emit_columns([some, [f"t{n % 3}" for n in some]], message_ids=some)

    def ack(self, msg_id):
        c.log("acked", msg_id)


class SeenColumns(Bolt):
    """Logs the rows of its columns, and emits them again."""

    outputs = ("number", "text")

    def prepare(self, conf, context):
        self.task = context.this_task_id

    def execute_columns(self, columns):
        c.log("columns", self.task, columns.source_component, list(zip(*columns, strict=True)))
        self.emit_columns(list(columns))


class SeenTuples(Bolt):
    def prepare(self, conf, context):
        self.task = context.this_task_id

    def execute(self, tup):
        c.log("tuples", self.task, tuple(tup.values))


class WatchedNetwork(Network):
    """Notes which TUPLES sections are columns; the workers at the ports `old` have no features."""

    def __init__(self, old=()):
        super().__init__()
        self.old = set(old)
        self.sections = {}  # (rows, whether they are columns), by sender and receiver

    def grant(self, slot, peer, grants):
        if slot.port in self.old:
            grants = [grant for grant in grants if grant.task != FEATURES_TASK]
        super().grant(slot, peer, grants)

    def carry(self, slot, peer, sections):
        for section in sections:
            _, count = addressee(section)
            if count:
                is_columns = bool(section[1] & Flag.COLUMNS)
                self.sections.setdefault((slot, peer), []).append((count, is_columns))
        super().carry(slot, peer, sections)


def columns_over_three_workers():
    builder = TopologyBuilder()
    builder.spout("numbers", ColumnNumbers(1000))
    builder.bolt("columns", SeenColumns(), parallelism=3).fields("numbers", "number")
    builder.bolt("tuples", SeenTuples(), parallelism=3).fields("columns", "text")
    return builder.build()


def expected_tasks(cluster, component):
    plan = cluster.engines[0]._flow._plan
    return sorted(t for t, of in plan.task_to_component.items() if of == component)


@pytest.mark.parametrize("old", [(), (6701,)])
def test_columns_stay_columns_between_workers_that_know_them(old):
    network = WatchedNetwork(old)
    with EngineCluster(columns_over_three_workers(), 3, network=network, seed=1) as cluster:
        cluster.run_until(lambda: len(c.LOG.get("acked", ())) == 1000)
        assert sorted(c.LOG["acked"]) == list(range(1000))
        assert cluster.errors == []
        by_columns, by_tuples = (expected_tasks(cluster, name) for name in ("columns", "tuples"))
        # Every row where the hash of its value sends it, and once.
        found = [(row, task) for task, _, rows in c.LOG["columns"] for row in rows]
        assert sorted(found) == [
            ((n, f"t{n % 3}"), by_columns[stable_hash(n) % 3]) for n in range(1000)
        ]
        assert sorted((row, task) for task, row in c.LOG["tuples"]) == [
            ((n, f"t{n % 3}"), by_tuples[stable_hash(f"t{n % 3}") % 3]) for n in range(1000)
        ]
        for (_, peer), sections in network.sections.items():
            large = [is_columns for count, is_columns in sections if count >= COLUMN_ROWS_MIN]
            # The first may leave before the peer has said that it knows columns.
            assert large == sorted(large)
            assert any(large) == (peer.port not in old)
            assert not any(is_columns for count, is_columns in sections if count < COLUMN_ROWS_MIN)


def test_a_worker_that_was_replaced_gets_rows_until_it_says_that_it_knows_columns():
    network = WatchedNetwork()
    with EngineCluster(columns_over_three_workers(), 3, network=network, seed=1) as cluster:
        first, second, _ = cluster.slots
        exchange = cluster.engines[0]._exchange
        cluster.run_until(lambda: exchange.outbound(second).columns)
        network.ends[first].listener.session_began(second, 2, ())
        assert not exchange.outbound(second).columns
        network.ends[second].listener.session_began(first, 2, ())
        cluster.run_until(lambda: exchange.outbound(second).columns)
