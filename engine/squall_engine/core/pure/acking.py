"""Storm's acking: knowing when a tree of tuples is done, in constant memory a tree.

Every tuple of a tree has a random 64-bit id, its *edge*, and an acker keeps one number a root: the
XOR of all edges reported to it. An edge reaches it twice: when the tuple is emitted and when it is
acked; so the number is zero when every tuple that was emitted has been acked, and hardly ever else
(once in 2**64). The order of the messages does not matter, except that nothing is complete before
the spout's init has named the task to notify. The low 16 bits of a root are the index of its acker
among the topology's acker tasks, so every worker knows where a root's messages go.

Acks for an acker of this worker go straight into its table (`AckerTable`), and those for another
worker's wait, merged by root, for the end of the turn (`AckBuffer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from squall_engine.core.codec import CodecError
from squall_engine.core.pure.ids import Ids
from squall_engine.core.sections import FAILS, RESETS, read_acks, serialize_acks, serialize_roots
from squall_engine.core.values import (
    ACKER_INDEX_MASK,
    BUCKETS,
    Settled,
    Taken,
)

_UNKNOWN = -1  # owner of a root whose init has not come
_FAILED_EARLY = -2  # ... and which has failed


@dataclass(slots=True)
class _Entry:
    xor: int
    owner: int  # the spout task
    age: int = 0  # the generation that touched it last


class AckBuffer:
    """What an acker on another worker has yet to learn, by root, in the order of arrival."""

    def __init__(self) -> None:
        self.entries: dict[int, _Entry] = {}

    def merge(self, root: int, xor: int, owner: int = _UNKNOWN) -> None:
        entry = self.entries.setdefault(root, _Entry(0, _UNKNOWN))
        entry.xor ^= xor
        if owner != _UNKNOWN:
            entry.owner = owner

    def take_section(self, acker: int) -> bytes:
        """All of it as an ACKS section."""
        acks = {root: entry.xor for root, entry in self.entries.items()}
        inits = {root: e.owner for root, e in self.entries.items() if e.owner != _UNKNOWN}
        self.entries.clear()
        return serialize_acks(acker, acks, inits)


@dataclass(slots=True)
class _Pending:
    message_id: object
    stream: str
    emitted_at: float  # monotonic
    bucket: int  # the timeout bucket that it was emitted (or reset) in


class PendingRoots:
    """The roots that a spout task waits for, oldest first.

    A root times out when the bucket that it lies in is more than `BUCKETS` old.
    """

    def __init__(self) -> None:
        self._roots: dict[int, _Pending] = {}
        self._completed: list[_Pending] = []  # by the ackers of this worker

    def __len__(self) -> int:
        return len(self._roots)

    def __contains__(self, root: int) -> bool:
        return root in self._roots

    def put(self, root: int, message_id: object, stream: str, now: float, bucket: int) -> None:
        self._roots.pop(root, None)
        self._roots[root] = _Pending(message_id, stream, now, bucket)

    def take(self, roots: Iterable[int], now: float) -> Taken:
        """Stop waiting for these roots; those that are not waited for are left out."""
        taken = Taken()
        for root in roots:
            pending = self._roots.pop(root, None)
            if pending is not None:
                taken.add(pending.message_id, pending.stream, now - pending.emitted_at)
        return taken

    def take_completed(self, now: float) -> Taken | None:
        """The messages that the ackers of this worker have completed (see `Trees.attach`); None:
        none."""
        if not self._completed:
            return None
        sums: dict[str, tuple[int, float]] = {}
        for pending in self._completed:
            count, emitted_sum = sums.get(pending.stream, (0, 0.0))
            sums[pending.stream] = (count + 1, emitted_sum + pending.emitted_at)
        taken = Taken()
        taken.message_ids = [pending.message_id for pending in self._completed]
        for stream, (count, emitted_sum) in sums.items():
            taken.by_stream[stream] = (count, count * now - emitted_sum)
        self._completed = []
        return taken

    def reset(self, root: int, bucket: int) -> None:
        """Start the timeout of a root again from now."""
        pending = self._roots.pop(root, None)
        if pending is not None:
            pending.bucket = bucket
            self._roots[root] = pending

    def expired(self, bucket: int) -> list[int]:
        """The roots that have timed out when `bucket` is the present one."""
        limit = bucket - BUCKETS
        return [root for root, pending in self._roots.items() if pending.bucket < limit]

    def expire(self, bucket: int, now: float) -> Taken:
        """Take what has timed out when `bucket` is the present one."""
        return self.take(self.expired(bucket), now)

    def find_message(self, root: int) -> tuple[object] | None:
        """The id of the message whose root this is, alone in a tuple; None when it does not wait
        here. From any thread."""
        pending = self._roots.get(root)
        return None if pending is None else (pending.message_id,)

    def oldest_first(self) -> list[int]:
        return list(self._roots)

    def _complete(self, root: int) -> None:
        pending = self._roots.pop(root, None)
        if pending is not None:  # else it failed or timed out before
            self._completed.append(pending)


class AckerTable:
    """The roots of one acker task.

    An entry that nothing has touched for one whole timeout, and at most two, is forgotten. The
    spout has long failed it by then; this only bounds the memory.
    """

    def __init__(self) -> None:
        self.inits: dict[int, int] = {}  # spout task -> inits that came
        self.done = 0
        self.failed = 0
        self._entries: dict[int, _Entry] = {}
        self._age = 0
        self._attached: dict[int, PendingRoots] = {}
        # Of spouts that are not attached, since the last `take_settled`.
        self._done_roots: Settled = {}
        self._failed_late: Settled = {}

    def __len__(self) -> int:
        return len(self._entries)

    def attach(self, task: int, pending: PendingRoots) -> None:
        self._attached[task] = pending

    def ack(self, root: int, xor: int) -> None:
        """XOR edges into a root."""
        entry = self._entries.get(root)
        if entry is None:
            self._entries[root] = _Entry(xor, _UNKNOWN, self._age)
            return
        entry.age = self._age
        entry.xor ^= xor
        if entry.xor == 0 and entry.owner >= 0:
            del self._entries[root]
            self._complete(root, entry.owner)

    def init(self, root: int, xor: int, owner: int) -> None:
        """A spout task has emitted a message."""
        self.inits[owner] = self.inits.get(owner, 0) + 1
        entry = self._entries.setdefault(root, _Entry(0, _UNKNOWN))
        if entry.owner == _FAILED_EARLY:
            del self._entries[root]
            self.failed += 1
            self._failed_late.setdefault(owner, []).append(root)
            return
        entry.age = self._age
        entry.owner = owner
        entry.xor ^= xor
        if entry.xor == 0:
            del self._entries[root]
            self._complete(root, owner)

    def _complete(self, root: int, owner: int) -> None:
        self.done += 1
        pending = self._attached.get(owner)
        if pending is not None:
            pending._complete(root)
        else:
            self._done_roots.setdefault(owner, []).append(root)

    def take_settled(self) -> tuple[Settled, Settled]:
        """The roots that are complete, and those that had failed before their init."""
        settled = self._done_roots, self._failed_late
        self._done_roots, self._failed_late = {}, {}
        return settled

    def apply_section(self, section: bytes) -> None:
        """Apply an ACKS section of another worker. Raises CodecError.

        An init that is known already is a repetition, and its XOR is left out: taken twice, it
        would make a living tree look complete. (A repeated ack without an init leaves a number that
        is not zero, and the root times out.)"""
        _, acks, inits = read_acks(section)
        if any(root == 0 or owner < 0 for root, owner in inits):
            raise CodecError("a section has an init without a root or a task")
        skipped = set()
        for root, owner in inits:
            entry = self._entries.get(root)
            if entry is not None and entry.owner != _UNKNOWN:
                skipped.add(root)
                if entry.owner == _FAILED_EARLY:
                    self.init(root, 0, owner)
        # The XORs go first: without its init no root is complete.
        for root, xor in acks:
            if root and root not in skipped:
                self.ack(root, xor)
        for root, owner in inits:
            if root not in skipped:
                self.init(root, 0, owner)

    def fail(self, roots: Iterable[int]) -> Settled:
        """Forget these trees, which failed. Returns those whose spout is known; the others fail as
        soon as their init comes."""
        failed: Settled = {}
        for root in filter(None, roots):
            entry = self._entries.pop(root, None)
            if entry is None or entry.owner < 0:
                self._entries[root] = _Entry(0, _FAILED_EARLY, self._age)
            else:
                self.failed += 1
                failed.setdefault(entry.owner, []).append(root)
        return failed

    def known(self) -> list[int]:
        """The roots whose init has come, sorted."""
        return sorted(root for root, entry in self._entries.items() if entry.owner >= 0)

    def reset_timeout(self, roots: Iterable[int]) -> Settled:
        """Make these roots young again. Returns those whose spout is known (it must do the
        same)."""
        reset: Settled = {}
        for root in roots:
            entry = self._entries.get(root)
            if entry is not None:
                entry.age = self._age
                if entry.owner >= 0:
                    reset.setdefault(entry.owner, []).append(root)
        return reset

    def rotate(self) -> None:
        """Forget the entries untouched since the last rotation but one: a timeout has passed."""
        self._entries = {r: entry for r, entry in self._entries.items() if entry.age >= self._age}
        self._age += 1


class Ledger:
    """Where the tasks of a worker report what they do to their trees."""

    def __init__(self, ackers: int, tables: Mapping[int, AckerTable], seed: int) -> None:
        """`tables` are those of this worker's ackers, by index."""
        self._ids = Ids(seed)
        self._ackers = ackers
        self._tables = tables
        self._remote = {i: AckBuffer() for i in range(ackers) if i not in tables}
        self._fails: list[list[int]] = [[] for _ in range(ackers)]
        self._resets: list[list[int]] = [[] for _ in range(ackers)]

    def ack(self, root: int, xor: int) -> None:
        """XOR edges of a tree: those that were emitted, and those that were acked."""
        index = root & ACKER_INDEX_MASK
        if index in self._tables:
            self._tables[index].ack(root, xor)
        elif index < self._ackers:  # else it is from a worker that knows other ackers
            self._remote[index].merge(root, xor)

    def init(self, root: int, xor: int, task: int) -> None:
        """The spout `task` begins a tree with these edges."""
        index = root & ACKER_INDEX_MASK
        if index in self._tables:
            self._tables[index].init(root, xor, task)
        else:
            self._remote[index].merge(root, xor, task)

    def fresh(self) -> Ledger:
        """An empty one, for a task that cannot share this (it is on a thread)."""
        return Ledger(self._ackers, {}, self._ids.draw())

    def fail(self, roots: Iterable[int]) -> None:
        """These trees failed."""
        for root in roots:
            if root == 0 or root & ACKER_INDEX_MASK >= self._ackers:
                continue  # from a worker that knows other ackers
            self._fails[root & ACKER_INDEX_MASK].append(root)
            # A fresh random number: tuples of a failed tree may yet be acked, and the fail may
            # never reach the acker, but the tree must not complete.
            self.ack(root, self._ids.draw())

    def reset(self, roots: Iterable[int]) -> None:
        """Restart the timeouts of these trees."""
        for root in roots:
            if root & ACKER_INDEX_MASK < self._ackers:
                self._resets[root & ACKER_INDEX_MASK].append(root)

    def merge(self, other: Ledger) -> None:
        """Take over what a `fresh` ledger holds, and empty it."""
        for buffer in other._remote.values():
            for root, entry in buffer.entries.items():
                if entry.owner >= 0:
                    self.init(root, entry.xor, entry.owner)
                else:
                    self.ack(root, entry.xor)
            buffer.entries.clear()
        for mine, its in zip(
            (*self._fails, *self._resets), (*other._fails, *other._resets), strict=True
        ):
            mine += its
            its.clear()

    def _take_fails(self, index: int) -> list[int]:
        fails, self._fails[index] = self._fails[index], []
        return list(dict.fromkeys(fails))

    def _take_resets(self, index: int) -> list[int]:
        resets, self._resets[index] = self._resets[index], []
        return list(dict.fromkeys(resets))

    def _take_sections(self, index: int) -> list[bytes]:
        """The sections for an acker on another worker. Fails go first, so that the acker fails a
        root of this turn at its init."""
        fails, resets, buffer = (
            self._take_fails(index),
            self._take_resets(index),
            self._remote[index],
        )
        found = [serialize_roots(FAILS, index, fails)] if fails else []
        if buffer.entries:
            found.append(buffer.take_section(index))
        if resets:
            found.append(serialize_roots(RESETS, index, resets))
        return found
