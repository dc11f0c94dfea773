"""BatchSubtopologyBuilder: bolts that work on batches, as a part of any topology.

Each tuple that the *master* bolt gets begins a batch. Its first value is the batch's id, as is the
first value of every tuple inside. A bolt of the part may subscribe to several others; it is
notified (`finish_batch`, `finished_id`) when it has processed all tuples of a batch from all of
them. What leaves the part are ordinary streams.

    spout ──▶ master ══▶ count ══▶ merge ──▶ store
                 ╚══════════════════▲

A batch fails as a whole: with one of its tuples the tuple of the master fails, and with it the
spout's message. Emit it again under another id, such as (number, attempt), because tuples of the
failed attempt may still be on their way: a failed id is refused for two message timeouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from squall import Bolt, ShellBolt, TopologyBuilder
from squall._builder import BoltDeclarer
from squall_common.errors import InvalidTopologyError
from squall_drpc.batched.batch import BatchBolt, BatchBoltExecutor
from squall_drpc.batched.coordinated import COORDINATION_STREAM, CoordinatedBolt, coordinated_class
from squall_drpc.batched.coordinated_shell import CoordinatedShellBolt

_TICK_KEY = "topology.tick.tuple.freq.secs"
_TICK_SECS = 1


class BatchSubtopologyBuilder:
    """Puts a part of a topology together whose bolts know when a batch is complete.

        class Split(Bolt):
            outputs = ["document", "word"]

            def execute(self, tup):
                for word in tup["text"].split():
                    self.emit([tup["document"], word])

        class Count(BatchBolt):
            outputs = ["document", "count"]

            def prepare(self, conf, context):
                self.words = set()

            def execute(self, tup):
                self.words.add(tup["word"])

            def finish_batch(self):
                self.emit([self.request_id, len(self.words)])

        part = BatchSubtopologyBuilder("split", Split(), parallelism=2)
        part.master.shuffle("documents")
        part.bolt("count", Count(), parallelism=4).fields("split", "document", "word")
        part.extend_topology(builder)

    Its bolts may be `BatchBolt`s, or bolts with `finished_id`; `builder` is a TopologyBuilder with
    a spout "documents".
    """

    def __init__(
        self,
        master_id: str,
        master: Bolt | ShellBolt,
        parallelism: int = 1,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        """`master` is an ordinary bolt: it gets one tuple for each batch, from outside."""
        self._draft = TopologyBuilder()
        self._bolts: dict[str, Bolt | ShellBolt] = {}
        self._problems: list[str] = []
        self.master: BoltDeclarer = self._add(master_id, master, parallelism, tasks, conf)
        """The master bolt, to subscribe it to streams of the topology."""

    def bolt(
        self,
        id: str,
        bolt: Bolt | BatchBolt | ShellBolt,
        parallelism: int = 1,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> BoltDeclarer:
        """Add a bolt. Subscribe it to the master and to other bolts of this part."""
        made = BatchBoltExecutor.of(bolt) if isinstance(bolt, BatchBolt) else bolt
        return self._add(id, made, parallelism, tasks, conf)

    def _add(
        self,
        id: str,
        bolt: Bolt | ShellBolt,
        parallelism: int,
        tasks: int | None,
        conf: Mapping[str, Any] | None,
    ) -> BoltDeclarer:
        if id in self._bolts:
            self._problems.append(f"bolt {id!r}: there is a component with this id already")
        self._bolts[id] = bolt
        brought = bolt.conf() if isinstance(bolt, ShellBolt) else {}
        return self._draft.bolt(id, bolt, parallelism, tasks, {**brought, **(conf or {})})

    def extend_topology(self, builder: TopologyBuilder) -> None:
        """Add the bolts to a topology. Raises InvalidTopologyError, which lists what is wrong with
        this part."""
        declared = [one for one in self._draft._declarers if isinstance(one, BoltDeclarer)]
        problems = [*self._problems, *self._draft._problems]
        for declarer in declared:
            problems.extend(self._problems_of(declarer))
        if problems:
            raise InvalidTopologyError.listing(problems)
        for declarer in declared:
            sources = {source.component: source for source in declarer._inputs}
            inside = declarer is not self.master
            reports = {id: id != self.master.id for id in sources} if inside else None
            ticks = _TICK_KEY in declarer._conf
            added = builder.bolt(
                declarer.id,
                _coordinated(self._bolts[declarer.id], reports, ticks=ticks),
                declarer._parallelism,
                None,
                {_TICK_KEY: _TICK_SECS, **declarer._conf},
            )
            added._inputs.update(declarer._inputs)
            added._partial_keys.update(declarer._partial_keys)
            for source in reports or {}:
                added.direct(source, COORDINATION_STREAM)

    def _problems_of(self, declarer: BoltDeclarer) -> Iterator[str]:
        where = f"bolt {declarer.id!r}"
        outside = {s.component for s in declarer._inputs} - self._bolts.keys()
        if declarer is self.master:
            if not declarer._inputs:
                yield f"{where} is the master and has no grouping: part.master.shuffle(...)"
            for source in sorted({s.component for s in declarer._inputs} & self._bolts.keys()):
                yield f"{where} is the master and cannot subscribe to {source!r} of its own part"
        elif outside:
            yield (
                f"{where} subscribes to {', '.join(map(repr, sorted(outside)))} outside of this "
                "part: only the master may"
            )
        elif not declarer._inputs:
            yield f"{where} has no grouping: part.bolt(...).fields({self.master.id!r}, ...)"


def _coordinated(
    bolt: Bolt | ShellBolt, sources: Mapping[str, bool] | None, *, ticks: bool
) -> CoordinatedBolt:
    if isinstance(bolt, ShellBolt):
        return CoordinatedShellBolt(bolt.command, bolt.script, bolt.outputs, sources, ticks=ticks)
    return coordinated_class(bolt)(bolt, sources, ticks=ticks)
