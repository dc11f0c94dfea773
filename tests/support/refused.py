"""Every topology that is refused because of checkpoints, with what is said and who says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall import (
    Bolt,
    RewindableSpout,
    ShellBolt,
    Spout,
    StatefulBolt,
    TopologyBuilder,
    TransactionalSink,
    Tuple,
    WindowedBolt,
)
from squall.windows import tumbling
from squall_common.topology.model import Topology

INTERVAL = "topology.checkpoint.interval.secs"
OR_UNSET = f", or unset {INTERVAL} to run the topology at least once"
FIELDS = "with checkpoints use a fields grouping, as state belongs to its key"
PLAIN = "define it as a plain function; with blocking = True it may wait"
REPLAYS = (
    "unset topology.max.replays: with checkpoints no message is replayed (see "
    "topology.checkpoint.tries)"
)
BOTH_NEEDED = f"set {INTERVAL} and topology.state.url"

CLIENT, NIMBUS, LOCAL, WORKER = "client", "nimbus", "local", "worker"
EVERYWHERE = (CLIENT, NIMBUS, LOCAL, WORKER)
CLASSES = (CLIENT, LOCAL, WORKER)  # which Nimbus does not import


class Words(RewindableSpout):
    outputs = ["word"]

    def seek(self, positions: Mapping[Any, Any]) -> None: ...

    def next_tuple(self) -> None: ...


class NotRewindable(Spout):
    outputs = ["word"]

    def next_tuple(self) -> None: ...


class AsyncNext(Words):
    async def next_tuple(self) -> None: ...


class AsyncSeek(Words):
    async def seek(self, positions: Mapping[Any, Any]) -> None: ...


class WithoutSeek(RewindableSpout):
    outputs = ["word"]

    def next_tuple(self) -> None: ...


class Pass(Bolt):
    outputs = ["word"]

    def execute(self, tup: Tuple) -> None: ...


class Acks(Pass):
    auto_ack = False


class Anchors(Pass):
    auto_anchor = False


class AcksIfTold(Pass):
    def __init__(self, by_hand: bool) -> None:
        self.auto_ack = not by_hand


class Count(StatefulBolt):
    outputs = ["word"]

    def execute(self, tup: Tuple) -> None: ...


class CountAsync(StatefulBolt):
    outputs = ["word"]

    async def execute(self, tup: Tuple) -> None: ...


class Write(TransactionalSink):
    def commit(self, batches: Sequence[Any]) -> None: ...


class WithoutCommit(TransactionalSink):
    pass


class AsyncExecute(Write):
    async def execute(self, tup: Tuple) -> None: ...


class AsyncBatch(Write):
    async def execute_batch(self, tuples: list[Tuple]) -> None: ...


class AsyncRow(Write):
    async def row(self, tup: Tuple) -> Any: ...


class AsyncCommit(TransactionalSink):
    async def commit(self, batches: Sequence[Any]) -> None: ...


class YieldingCommit(TransactionalSink):
    def commit(self, batches: Sequence[Any]) -> Any:
        yield


class CountAndWrite(Write, StatefulBolt):
    pass


class WindowsAndCount(WindowedBolt, StatefulBolt):
    windows = tumbling(count=3)

    def execute_window(self, window: Any) -> None: ...


class WindowsAndWrite(WindowedBolt, TransactionalSink):
    windows = tumbling(count=3)

    def execute_window(self, window: Any) -> None: ...

    def commit(self, batches: Sequence[Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Refused:
    """A topology, its configuration apart from an interval and a folder, and what is said of it."""

    topology: Topology
    says: str
    by: tuple[str, ...]
    conf: Mapping[str, Any] = field(default_factory=dict)


def of(bolt: Any, spout: Any = None, grouping: str = "fields", **more: Any) -> Topology:
    """words -> bolt."""
    builder = TopologyBuilder()
    builder.spout("words", spout or Words())
    declarer = builder.bolt("bolt", bolt, **more)
    if grouping == "fields":
        declarer.fields("words", "word")
    elif grouping != "none at all":
        getattr(declarer, grouping)("words")
    return builder.build()


def cycle(*, of_one: bool = False) -> Topology:
    """words -> a -> b -> a, and c behind them; or words -> a -> a."""
    builder = TopologyBuilder()
    builder.spout("words", Words())
    builder.bolt("a", Pass()).shuffle("words").shuffle("a" if of_one else "b")
    if not of_one:
        builder.bolt("b", Pass()).shuffle("a")
        builder.bolt("c", Pass()).shuffle("b")
    return builder.build()


def _bolt(bolt: Any, what: str, remedy: str, by: tuple[str, ...] = CLASSES) -> Refused:
    return Refused(of(bolt), f"bolt 'bolt' ({type(bolt).__name__}) {what}: {remedy}", by)


def _spout(spout: Any, what: str, remedy: str) -> Refused:
    says = f"spout 'words' ({type(spout).__name__}) {what}: {remedy}"
    return Refused(of(Pass(), spout), says, CLASSES)


def _option(says: str, by: tuple[str, ...], **conf: Any) -> Refused:
    changed = {f"topology.{key.replace('_', '.')}": value for key, value in conf.items()}
    return Refused(of(Pass()), says, by, changed)


def _stored(says: str, **conf: Any) -> Refused:
    """A bolt with state, without checkpoints."""
    changed = {f"topology.{key.replace('_', '.')}": value for key, value in conf.items()}
    return Refused(
        of(Count(), NotRewindable()), says, (NIMBUS, LOCAL, WORKER), {INTERVAL: None, **changed}
    )


def _several(bolt: Any, kinds: str) -> Refused:
    what = f"is {kinds}, and a checkpoint holds one of these for each task"
    return _bolt(bolt, what, "make it several bolts")


_BY_HAND = "acks or anchors by hand, so what it holds would be in no checkpoint"
_KEEPS = f"leave auto_ack and auto_anchor on, and keep what it holds as state{OR_UNSET}"
_CYCLE = (
    "are a cycle, in which a barrier of checkpoints would wait for itself: take one of these "
    f"subscriptions away{OR_UNSET}"
)

REFUSED: dict[str, Refused] = {
    # -- options
    "nowhere, on a cluster": _option(
        f"{INTERVAL} is set, and topology.state.url is not: set it to a URL such as "
        "s3://bucket/folder, or to a folder that all nodes mount",
        (NIMBUS,),
        state_url=None,
    ),
    "nowhere, in a process": _option(
        f"{INTERVAL} is set, and topology.state.url is not: set it to a folder",
        (LOCAL,),
        state_url=None,
    ),
    "a relative path": _option(
        "topology.state.url is './state', a relative path, which is another folder for each "
        "worker: give a URL, or the whole path of a folder that all nodes mount",
        (NIMBUS,),
        state_url="./state",
    ),
    "a relative path, without checkpoints": _option(
        "topology.state.url is 'state', a relative path, which is another folder for each "
        "worker: give a URL, or the whole path of a folder that all nodes mount",
        (NIMBUS,),
        state_url="state",
        state_provider="store",
        checkpoint_interval_secs=None,
    ),
    "a URL of nothing": _option(
        "topology.state.url is 's3://', which names no place: name a bucket and a folder: "
        "s3://bucket/folder",
        (NIMBUS,),
        state_url="s3://",
    ),
    "a bucket, in a process": _option(
        "topology.state.url is 's3://a/b', and in one process checkpoints go to a folder: set it "
        "to the path of a folder",
        (LOCAL,),
        state_url="s3://a/b",
    ),
    "a savepoint, in a process": _option(
        "topology.checkpoint.savepoint is set, and only a cluster starts a topology from a "
        "savepoint: submit it with storm jar --from-savepoint",
        (LOCAL,),
        checkpoint_savepoint="/s/one",
    ),
    "a savepoint, without checkpoints": _option(
        f"topology.checkpoint.savepoint is set, and {INTERVAL} is not: {BOTH_NEEDED}",
        (CLIENT, NIMBUS),
        checkpoint_savepoint="/s/one",
        checkpoint_interval_secs=None,
    ),
    "a provider": _option(
        f"topology.state.provider is set, and so is {INTERVAL}: unset topology.state.provider: "
        "checkpoints store all state in topology.state.url",
        (NIMBUS, LOCAL),
        state_provider="redis",
    ),
    "replays": _option(
        f"topology.max.replays is set, and so is {INTERVAL}: {REPLAYS}",
        (NIMBUS, LOCAL),
        max_replays=3,
    ),
    # -- structure
    "replays of a component": Refused(
        of(Pass(), conf={"topology.max.replays": 3}),
        f"bolt 'bolt' (Pass) sets topology.max.replays, and {INTERVAL} is set: {REPLAYS}",
        EVERYWHERE,
    ),
    "a child process": Refused(
        of(ShellBolt("python3", "x.py")),
        "bolt 'bolt' is a shell component, whose state and position no checkpoint can hold: write "
        f"it in Python{OR_UNSET}",
        EVERYWHERE,
    ),
    "state, shuffled": Refused(
        of(Count(), grouping="shuffle"),
        f"bolt 'bolt' (Count) keeps state by key, and groups 'words' by shuffle: {FIELDS}",
        EVERYWHERE,
    ),
    "state, in one task": Refused(
        of(Count(), grouping="global_"),
        f"bolt 'bolt' (Count) keeps state by key, and groups 'words' by global: {FIELDS}",
        EVERYWHERE,
    ),
    "state, without input": Refused(
        of(Count(), grouping="none at all"),
        f"bolt 'bolt' (Count) keeps state by key, and subscribes to nothing: {FIELDS}",
        EVERYWHERE,
    ),
    "more tasks than key groups": Refused(
        of(Count(), parallelism=3, conf={"topology.state.max.parallelism": 2}),
        "bolt 'bolt' (Count) has 3 tasks, and its state 2 key groups: give it fewer tasks, or "
        "raise topology.state.max.parallelism of the bolt",
        EVERYWHERE,
    ),
    "a cycle": Refused(cycle(), f"the components 'a' -> 'b' -> 'a' {_CYCLE}", EVERYWHERE),
    "a cycle of one": Refused(
        cycle(of_one=True), f"the components 'a' -> 'a' {_CYCLE}", EVERYWHERE
    ),
    # -- spouts
    "a spout without positions": _spout(
        NotRewindable(),
        "cannot be read again from a position, so it has no checkpoints",
        f"derive it from RewindableSpout{OR_UNSET}",
    ),
    "async next_tuple": _spout(
        AsyncNext(), "is a RewindableSpout whose next_tuple() is async", PLAIN
    ),
    "async seek": _spout(AsyncSeek(), "is a RewindableSpout whose seek() is async", PLAIN),
    "no seek": _spout(WithoutSeek(), "does not define seek()", "see RewindableSpout"),
    # -- bolts
    "acks by hand": _bolt(Acks(), _BY_HAND, _KEEPS),
    "anchors by hand": _bolt(Anchors(), _BY_HAND, _KEEPS),
    "acks by hand, as its constructor says": _bolt(AcksIfTold(True), _BY_HAND, _KEEPS, (WORKER,)),
    "no commit": _bolt(WithoutCommit(), "does not define commit()", "see TransactionalSink"),
    "async execute": _bolt(
        AsyncExecute(), "is a TransactionalSink whose execute() is async", PLAIN
    ),
    "async execute_batch": _bolt(
        AsyncBatch(), "is a TransactionalSink whose execute_batch() is async", PLAIN
    ),
    "async row": _bolt(AsyncRow(), "is a TransactionalSink whose row() is async", PLAIN),
    "async commit": _bolt(AsyncCommit(), "is a TransactionalSink whose commit() is async", PLAIN),
    "a generator": _bolt(
        YieldingCommit(), "is a TransactionalSink whose commit() contains `yield`", PLAIN
    ),
    "state and rows": _several(CountAndWrite(), "a StatefulBolt and a TransactionalSink"),
    "windows and state": _several(WindowsAndCount(), "a WindowedBolt and a StatefulBolt"),
    "windows and rows": _several(WindowsAndWrite(), "a WindowedBolt and a TransactionalSink"),
    # -- without checkpoints
    "stored nowhere": _stored(
        "topology.state.provider is 'store', but topology.state.url is not set: set it to a folder "
        "that all nodes mount, or to a URL such as s3://bucket/folder",
        state_provider="store",
        state_url=None,
    ),
    "options of another provider": _stored(
        "topology.state.provider.config has url, which the provider 'store' does not know: where a "
        "store is, is set by topology.state.url",
        state_provider="store",
        state_provider_config={"url": "s3://bucket/folder"},
    ),
    "options that are not a map": _stored(
        "topology.state.provider.config: jedisPoolConfig is 'localhost': a map may have host, "
        "port, timeout, database, password",
        state_provider="redis",
        state_provider_config={"jedisPoolConfig": "localhost"},
    ),
    "on disk, and stored nowhere": _stored(
        "bolt 'bolt' (Count) has topology.state.backend 'disk', and its state is not stored, so "
        f"it would end with its worker: set {INTERVAL}, or topology.state.provider to 'store'",
        state_backend="disk",
    ),
    "on disk, and in Redis": _stored(
        "bolt 'bolt' (Count) has topology.state.backend 'disk', and topology.state.provider is "
        "'redis', which is sent all state at once now and then: set topology.state.provider to "
        "'store'",
        state_backend="disk",
        state_provider="redis",
    ),
    "a bolt on disk, stored nowhere": Refused(
        of(Count(), NotRewindable(), conf={"topology.state.backend": "disk"}),
        "bolt 'bolt' (Count) has topology.state.backend 'disk', and its state is not stored, so "
        f"it would end with its worker: set {INTERVAL}, or topology.state.provider to 'store'",
        (NIMBUS, LOCAL),
        {INTERVAL: None},
    ),
    "coroutines on disk": Refused(
        of(CountAsync(), NotRewindable(), conf={"topology.state.backend": "disk"}),
        "bolt 'bolt' (CountAsync) has topology.state.backend 'disk' and an async execute(), whose "
        f"state cannot be on disk without checkpoints: set {INTERVAL}, or define execute without "
        "async",
        (LOCAL,),
        {INTERVAL: None, "topology.state.provider": "store"},
    ),
    "a source of checkpoints": Refused(
        of(Pass()),
        "spout 'words' (Words) is a RewindableSpout, which works with checkpoints only: "
        f"{BOTH_NEEDED}",
        (LOCAL, WORKER),
        {INTERVAL: None},
    ),
    "a sink of checkpoints": Refused(
        of(Write(), NotRewindable()),
        "bolt 'bolt' (Write) is a TransactionalSink, which works with checkpoints only: "
        f"{BOTH_NEEDED}",
        (LOCAL, WORKER),
        {INTERVAL: None},
    ),
}
