"""Batch bolts: one object per request, so a bolt needs no dict keyed by request id.

class PartialCount(BatchBolt):
    outputs = ["id", "count"]

    def prepare(self, conf, context):
        self.seen = set()

    def execute(self, tup):
        self.seen.add(tup["follower"])

    def finish_batch(self):
        self.emit([self.request_id, len(self.seen)])
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from squall import Bolt, TopologyContext, Tuple
from squall_common.component.collector import BoltCollector
from squall_common.component.component import Component
from squall_common.topology.arguments import decode_arguments
from squall_common.topology.construction import python_object


class BatchBolt(Component):
    """A bolt that gets the tuples of one request, then a call of `finish_batch`. `request_id` is
    set before `prepare`.

        class Total(BatchBolt):
            outputs = ["id", "total"]

            def prepare(self, conf, context):
                self.total = 0

            def execute(self, tup):
                self.total += tup["n"]

            def finish_batch(self):
                self.emit([self.request_id, self.total])
    """

    _calls = ("emit", "emit_direct", "report_error")

    request_id: Any

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called when the request begins at this task."""

    def execute(self, tup: Tuple) -> None:
        """Process one tuple of the request. An exception fails the request."""
        raise NotImplementedError(f"{type(self).__name__} does not define execute()")

    def finish_batch(self) -> None:
        """Called when this task has processed all of its tuples of the request, even if there were
        none."""

    def emit(
        self,
        values: Sequence[Any],
        *,
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        """Like `Bolt.emit`; the first value is the request's id."""
        result: Sequence[int] = self._bound("emit").emit(values, anchors=anchors, stream=stream)
        return result

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        *,
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        """Like `Bolt.emit_direct`; the first value is the request's id."""
        result: Sequence[int] = self._bound("emit_direct").emit_direct(
            task, values, anchors=anchors, stream=stream
        )
        return result


class BatchBoltExecutor(Bolt):
    """Runs a batch bolt, with one object for each request in progress at its task."""

    _collector: BoltCollector[Tuple]

    def __init__(
        self,
        cls: type[BatchBolt],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes the class of the batch bolt and the arguments of its constructor."""
        self._cls = cls
        self._args = args
        self._kwargs = dict(kwargs or {})
        self.outputs = self._make().outputs

    @classmethod
    def of(cls, batch_bolt: BatchBolt) -> BatchBoltExecutor:
        """An executor that makes batch bolts like this one. Raises InvalidTopologyError when the
        bolt's arguments cannot be serialized."""
        made = python_object(batch_bolt)
        args, kwargs = decode_arguments(made.arguments)
        return cls(type(batch_bolt), list(args), kwargs)

    @property
    def name(self) -> str:
        """The name of the batch bolt's class."""
        return self._cls.__name__

    def _make(self) -> BatchBolt:
        if not (self._args or self._kwargs):
            return self._cls()
        # Each object gets its own copy of the arguments: it may change a list among them.
        return self._cls(*copy.deepcopy(self._args), **copy.deepcopy(self._kwargs))

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._conf = conf
        self._open: dict[Any, BatchBolt] = {}

    def execute(self, tup: Tuple) -> None:
        self._batch(tup[0]).execute(tup)

    def finished_id(self, request_id: Any) -> None:
        """Let the batch bolt of this request finish."""
        batch = self._batch(request_id)
        del self._open[request_id]
        batch.finish_batch()

    def timeout_id(self, request_id: Any) -> None:
        """Forget the batch bolt of this request."""
        self._open.pop(request_id, None)

    def _batch(self, request_id: Any) -> BatchBolt:
        batch = self._open.get(request_id)
        if batch is None:
            batch = self._make()
            batch._bind(self._collector, self.context)
            batch.request_id = request_id
            batch.prepare(self._conf, self.context)
            self._open[request_id] = batch
        return batch
