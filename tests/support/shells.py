"""Shell components in local mode: a ledger of numbers that goes through a child."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall import Bolt, LocalCluster, ShellBolt, Spout, TopologyBuilder
from squall.local import LocalError

PACKAGE = Path(__file__).resolve().parent.parent / "topologies" / "multilang"
RESOURCES = PACKAGE / "resources"


@dataclass
class Account:
    """What went in and what came out. Local mode runs everything in this process."""

    seen: Counter[Any] = field(default_factory=Counter)
    acked: Counter[Any] = field(default_factory=Counter)
    failed: Counter[Any] = field(default_factory=Counter)


ACCOUNTS: dict[str, Account] = {}


class Numbers(Spout):
    """Emits 0 ... count - 1, each again when it fails."""

    outputs = ["n"]

    def __init__(self, account: str, count: int) -> None:
        self.account = account
        self.count = count

    def open(self, conf: Mapping[str, Any], context: Any) -> None:
        self.left = list(range(self.count))

    def next_tuple(self) -> None:
        if self.left:
            n = self.left.pop(0)
            self.emit([n], message_id=n)

    def ack(self, msg_id: Any) -> None:
        ACCOUNTS[self.account].acked[msg_id] += 1

    def fail(self, msg_id: Any) -> None:
        ACCOUNTS[self.account].failed[msg_id] += 1
        self.left.append(msg_id)


class Sink(Bolt):
    outputs = []

    def __init__(self, account: str) -> None:
        self.account = account

    def execute(self, tup: Any) -> None:
        ACCOUNTS[self.account].seen[
            _hashable(list(tup.values)) if len(tup.values) > 1 else tup[0]
        ] += 1


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in sorted(value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


@dataclass
class Run:
    """A running topology: numbers -> bolt -> sink."""

    cluster: LocalCluster
    account: Account
    count: int

    def errors(self) -> list[str]:
        return [f"{e.component}: {e.error}" for e in self.raw_errors()]

    def raw_errors(self) -> list[LocalError]:
        return self.cluster.errors("shells")

    def wait_all_acked(self, timeout_secs: float = 60.0) -> None:
        self.wait(lambda: len(self.account.acked) == self.count, timeout_secs)

    def wait(self, condition: Callable[[], bool], timeout_secs: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_secs
        while not condition():
            assert time.monotonic() < deadline, (self.account, self.errors())
            time.sleep(0.01)

    def child_pids(self, component: str = "shell") -> list[int]:
        """The pids of the living children."""
        engine = self.cluster._topologies._running["shells"].engine
        return [
            bolt.shell.pid
            for bolt in [*engine._flow.bolts, *engine._flow.spouts]
            if bolt.component == component and bolt.shell.pid is not None
        ]


@contextmanager
def running(
    bolt: ShellBolt | None,
    *,
    count: int = 200,
    conf: Mapping[str, Any] | None = None,
    spout: Any = None,
    parallelism: int = 1,
    bolt_conf: Mapping[str, Any] | None = None,
    more: Sequence[Callable[[TopologyBuilder], None]] = (),
) -> Iterator[Run]:
    """numbers -> `bolt` ("shell") -> sink, in local mode; ended with the block."""
    name = f"account-{len(ACCOUNTS)}"
    account = ACCOUNTS[name] = Account()
    builder = TopologyBuilder()
    builder.spout("numbers", spout if spout is not None else Numbers(name, count))
    last = "numbers"
    if bolt is not None:
        builder.bolt("shell", bolt, parallelism=parallelism, conf=bolt_conf).shuffle("numbers")
        last = "shell"
    builder.bolt("sink", Sink(name)).shuffle(last)
    for add in more:
        add(builder)
    with LocalCluster(code_dir=PACKAGE) as cluster:
        settings = {"topology.message.timeout.secs": 10, "topology.max.spout.pending": 100}
        cluster.submit_topology("shells", {**settings, **(conf or {})}, builder.build())
        run = Run(cluster, account, count)
        yield run
        cluster.kill_topology("shells", 0)


def raw_bolt(mode: str, tmp_path: Path, *, after: int = 20) -> ShellBolt:
    environment = {"MODE": mode, "MARK": str(tmp_path / "mark"), "MODE_AFTER": str(after)}
    return ShellBolt(sys.executable, "raw_bolt.py", outputs=["n"], environment=environment)
