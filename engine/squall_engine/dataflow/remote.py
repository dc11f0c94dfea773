"""Between the run loop and the transport: tuples and acks that leave this worker or arrive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from squall_common.daemon.logs import get_logger
from squall_common.topology.model import WorkerSlot
from squall_engine.backpressure.credit import charge
from squall_engine.core import Batch, Source, Tuple, decode_batches, encode_batches
from squall_engine.core.codec import (
    CodecError,
    UndeliverableError,
    ValueCodec,
    ValueNotEncodableError,
)
from squall_engine.core.inspectors import not_encodable
from squall_engine.core.sections import Section, parse, parse_heads, serialize_roots
from squall_engine.core.values import ChangedRowError, changed_row
from squall_engine.dataflow.fence import Fence
from squall_engine.dataflow.large import bytes_at_least
from squall_engine.plan import Plan
from squall_engine.transport import FEATURES_TASK, Feature, Grant, Transport, features_grant

log = get_logger(__name__)

SECTION_BYTES_MAX = 256 * 1024  # a section of several tuples is split above this
TUPLE_BYTES_MAX = 8 * 1024 * 1024  # a single tuple above this fails

Reject = Callable[[str, int, Exception, Collection[int]], None]


class Outbound:
    """The sections that leave for one worker at the end of the turn."""

    __slots__ = ("columns", "others", "sections", "slot")

    def __init__(self, slot: WorkerSlot) -> None:
        self.slot = slot
        self.sections: list[bytes] = []  # with tuples
        self.others: list[bytes] = []
        self.columns = False  # it understands them


class Exchange:
    """Collects by peer what leaves in a turn, and sends it at the end of the turn."""

    def __init__(
        self,
        plan: Plan,
        codec: ValueCodec,
        transport: Transport | None,
        reject: Reject,
        give_up: Callable[[Collection[int]], None],
    ) -> None:
        """`reject` is called for tuples that cannot be sent, `give_up` with the roots of tuples
        that arrived at the wrong worker."""
        self._give_up = give_up
        self._plan = plan
        self._codec = codec
        self._transport = transport
        self.reject = reject
        self._outbound: dict[WorkerSlot, Outbound] = {}
        self._ahead: dict[WorkerSlot, list[bytes]] = {}
        self._sources: dict[tuple[int, str], Source | None] = {}
        self.routes: dict[int, WorkerSlot] = {}
        # Component and stream of tuples that were too large: its next ones are looked at first.
        self._had_large: set[tuple[str, str]] = set()
        self._to_greet: dict[WorkerSlot, None] = {}  # they do not know yet what this one does
        self.fence: Fence | None = None  # with checkpoints, between workers

    def set_routes(self, routes: Mapping[int, WorkerSlot]) -> None:
        self.routes = {
            task: slot for task, slot in routes.items() if task not in self._plan.local_tasks
        }

    @property
    def is_empty(self) -> bool:
        fenced = self.fence is not None and self.fence.has_barriers
        sections = any(out.sections or out.others for out in self._outbound.values())
        return not (sections or self._ahead or fenced)

    def outbound(self, slot: WorkerSlot) -> Outbound:
        """What leaves for a worker."""
        found = self._outbound.get(slot)
        if found is None:
            found = self._outbound[slot] = Outbound(slot)
        return found

    # -- what the others understand --

    def session_began(self, slot: WorkerSlot) -> None:
        """A pair of sessions with another worker began, perhaps one of another version."""
        self.outbound(slot).columns = False
        self._to_greet[slot] = None

    def granted(self, slot: WorkerSlot, grants: Iterable[Grant]) -> None:
        """Another worker has sent grants; one of them may say what it understands."""
        for grant in grants:
            if grant.task == FEATURES_TASK and grant.load & Feature.COLUMNS:
                self.outbound(slot).columns = True

    def greet(self) -> None:
        """Say to new peers what this engine understands."""
        if self._to_greet and self._transport is not None:
            greeted, self._to_greet = self._to_greet, {}
            for slot in greeted:
                self._transport.grant(slot, [features_grant()], soon=True)

    # -- leaving --

    def send_tuples(self, to: Outbound, task: int, batch: Batch) -> int:
        """Encode a batch for a task of a peer; tuples that cannot be encoded fail. Returns the
        credit that it uses. (There is a section for each task, so that each is decoded when its
        task runs.)
        """
        source = batch.source
        if self._had_large and (source.component, source.stream) in self._had_large:
            batch = self._without_large(batch)
            if not len(batch):
                return 0
        try:
            data = encode_batches(source, ((task, batch),), self._codec, columns=to.columns)
        except (ValueNotEncodableError, ChangedRowError) as error:
            return self._send_others(to, task, batch, error)
        if len(data) > SECTION_BYTES_MAX:
            if len(data) > TUPLE_BYTES_MAX:
                self._had_large.add((source.component, source.stream))
            if len(batch) > 1:
                head = batch.take(len(batch) // 2)
                used = self.send_tuples(to, task, head)
                return used + self.send_tuples(to, task, batch)
            if len(data) > TUPLE_BYTES_MAX:
                self._reject_large(batch, f"{len(data)} bytes")
                return 0
        to.sections.append(data)
        return charge(len(data), len(batch))

    def _without_large(self, batch: Batch) -> Batch:
        """Reject those tuples of a batch that are surely too large, and return the others."""
        kept = []
        for tup in batch.as_tuples():
            size = bytes_at_least(tup.values)
            if size > TUPLE_BYTES_MAX:
                self._reject_large(Batch.of(batch.source, [tup]), f"at least {size} bytes")
            else:
                kept.append(tup)
        return Batch.of(batch.source, kept)

    def _reject_large(self, one: Batch, size: str) -> None:
        """Reject a batch of one tuple."""
        source = one.source
        too_large = UndeliverableError(
            f"component {source.component!r}, stream {source.stream!r}: a tuple of {size} cannot "
            f"be sent to another worker; the limit is {TUPLE_BYTES_MAX} (8 MiB): store large data "
            "elsewhere and send its name",
            source.stream,
            one.as_tuples()[0].values,
        )
        self.reject(source.component, source.task, too_large, one.roots())

    def _send_others(self, to: Outbound, task: int, batch: Batch, error: Exception) -> int:
        """Reject the tuples of a batch that cannot be sent, and send the others."""
        good = []
        for tup in batch.as_tuples():
            problem = self._problem_of(tup)
            if problem is None:
                good.append(tup)
            else:
                source = tup.source
                roots = Batch.of(source, [tup]).roots()
                self.reject(source.component, source.task, problem, roots)
        if len(good) == len(batch):
            raise error  # a fault of ours, which would repeat forever
        return self.send_tuples(to, task, Batch.of(batch.source, good)) if good else 0

    def _problem_of(self, tup: Tuple) -> UndeliverableError | None:
        """Why a tuple cannot be sent; None: it can."""
        source, values = tup.source, tup.values
        if len(values) != len(source.fields):
            changed = changed_row(source.component, source.stream, len(source.fields), values)
            return UndeliverableError(str(changed), source.stream, values)
        try:
            self._codec.encode_row(values)
        except ValueNotEncodableError as reason:
            return not_encodable(source, values, reason)
        return None

    def send(self, slot: WorkerSlot, section: bytes) -> None:
        """Send a section to the engine of another worker."""
        self.outbound(slot).others.append(section)

    def send_ahead(self, slot: WorkerSlot, section: bytes) -> None:
        """Send a section to the engine of another worker, so that it arrives before the tuples of
        this turn."""
        self._ahead.setdefault(slot, []).append(section)

    def send_to_acker(self, index: int, sections: Sequence[bytes]) -> None:
        """Send sections to the acker with that index. While it has no worker they are lost, and the
        roots time out."""
        slot = self.routes.get(self._plan.acker_tasks[index])
        if slot is not None:
            self.outbound(slot).others += sections

    def answer(self, kind: int, task: int, roots: Sequence[int]) -> None:
        """Notify a spout task on another worker what became of its roots. Without a route the
        answer is lost, and the roots time out."""
        slot = self.routes.get(task)
        if slot is not None:
            self.outbound(slot).others.append(serialize_roots(kind, task, roots))

    def flush(self) -> None:
        """Hand everything to the transport, in one call for each peer. Tuples, which have credit,
        come first."""
        transport, fence = self._transport, self.fence
        if transport is None or (fence is not None and (self.is_empty or not fence.is_open)):
            return
        if self._ahead:
            ahead, self._ahead = self._ahead, {}
            for slot, sections in ahead.items():
                transport.send(slot, sections)
        fenced: list[WorkerSlot] = []
        if fence is not None:
            fenced = fence.waiting()
            for slot in fenced:
                self.outbound(slot)
        # (Where a section is dropped, its trees fail, and that may have something to send.)
        for outbound in [*self._outbound.values()]:
            sections, others = outbound.sections, outbound.others
            if not (sections or others or fenced):
                continue
            if fence is not None and (sections or others or outbound.slot in fenced):
                # Barriers count as credited: without them, no credit would help.
                sections = fence.enclose(outbound.slot, sections)
            outbound.sections, outbound.others = [], []
            credited = len(sections)
            sections += others
            if sections:
                transport.send(outbound.slot, sections, credited)

    # -- arriving --

    def read(self, data_of_sections: Iterable[bytes]) -> list[Section]:
        """Parse sections; one that cannot be read is dropped and logged."""
        sections = []
        for data in data_of_sections:
            try:
                sections.append(parse(data, self._codec))
            except CodecError as error:
                log.error("section_dropped", bytes=len(data), error=error)
        return sections

    def tuples_of(self, section: bytes) -> dict[int, Batch]:
        """The tuples of a TUPLES section by local task; those for other tasks (a stale route) are
        dropped, and their trees fail. Raises CodecError."""
        by_task = decode_batches(section, self._codec, self.source)
        local = self._plan.local_tasks
        for task in [task for task in by_task if task not in local]:
            stray = by_task.pop(task)
            log.warning("tuples_for_task_elsewhere", task=task, tuples=len(stray))
            if self.fence is not None:
                self.fence.lost(f"tuples for task {task} have come to the wrong worker")
            self._give_up(stray.roots())
        return by_task

    def decode(self, section: bytes) -> dict[int, Batch]:
        """Like `tuples_of`, but drops a section that cannot be read. If its values are the reason
        (a class that is not known here), the error is one of the receiving component, and their
        trees fail."""
        try:
            return self.tuples_of(section)
        except CodecError as error:
            self._drop(section, error)
            return {}

    def decode_for(self, task: int, section: bytes) -> Batch | None:
        """Like `decode`, of a section that is for one task alone, which is here."""
        try:
            return decode_batches(section, self._codec, self.source).get(task)
        except CodecError as error:
            self._drop(section, error)
            return None

    def _drop(self, section: bytes, error: CodecError) -> None:
        try:
            heads = parse_heads(section)
        except CodecError:
            heads = None
        component = None
        if heads is not None and heads.tasks:
            component = self._plan.task_to_component.get(heads.tasks[0])
        if heads is None or component is None:
            log.error("section_dropped", bytes=len(section), error=error)
            if self.fence is not None:
                self.fence.lost(f"a section could not be read: {error}")
            return
        self.reject(component, heads.tasks[0], error, heads.trees())

    def source(self, task: int, stream: str) -> Source | None:
        """What the tuples of a task on a stream have in common; None if there is no such stream."""
        key = (task, stream)
        found = self._sources.get(key)
        if found is None and key not in self._sources:
            source = None
            component_id = self._plan.task_to_component.get(task)
            if component_id is not None:
                info = self._plan.topology.components[component_id].streams.get(stream)
                if info is not None:
                    source = Source(component_id, task, stream, info.fields, local=False)
            if source is None:
                log.error("tuples_of_unknown_source", task=task, stream=stream)
            found = self._sources[key] = source
        return found
