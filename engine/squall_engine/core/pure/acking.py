"""Storm's acking: knowing when a tree of tuples is done, in constant memory a tree.

Between workers it is Storm's. Every tuple that crosses has a random 64-bit id, its *edge*, and an
acker keeps one number a root: the XOR of all edges reported to it. An edge reaches it twice: when
the tuple is made and when it is acked; so the number is zero when every tuple that was made has
been acked, and hardly ever else (once in 2**64). The order of the messages does not matter, except
that nothing is complete before the spout's init has named the task to notify. The low 16 bits of a
root are the index of its acker among the topology's acker tasks, so every worker knows where a
root's messages go, whatever is rebalanced.

Within a worker random numbers are not needed: nothing is lost there, so tuples are *counted*. A
worker keeps, for each root, how many local tuples are in flight, and holds back the XOR of the
edges that it acked or made until that count is zero. The edge by which the root came in (or, in
the spout's own worker, a random one that stands for "work to do here") is among what is held back,
so the acker's number cannot be zero meanwhile. A tree that begins and ends in one turn of one
worker never troubles the acker.

    emit to a local task     count + 1            ack of a local tuple       count - 1
    emit to another worker   xor ^ new edge       ack of one that came over  xor ^ its edge
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from squall_engine.core.values import BUCKETS, ID_BITS, Settled


class Ledger:
    """What the tasks of a worker did to their trees since it was last settled. The dicts and lists
    stay the same objects: the calls of components hold them."""

    __slots__ = ("counts", "fails", "inits", "resets", "xors")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}  # root -> local tuples made less local tuples settled
        self.xors: dict[int, int] = {}  # root -> edges to and from other workers
        self.inits: dict[int, int] = {}  # root -> spout task, for roots that began
        self.fails: list[int] = []
        self.resets: list[int] = []

    def merge(self, other: Ledger) -> None:
        """Take over what another ledger holds, and empty it."""
        for root, count in other.counts.items():
            self.counts[root] = self.counts.get(root, 0) + count
        for root, xor in other.xors.items():
            self.xors[root] = self.xors.get(root, 0) ^ xor
        self.inits.update(other.inits)
        self.fails += other.fails
        self.resets += other.resets
        other.clear()

    def fresh(self) -> Ledger:
        """An empty one, for a task that cannot share this (it is on a thread)."""
        return Ledger()

    def fail(self, roots: Iterable[int]) -> None:
        """These trees failed."""
        self.fails += roots

    def clear(self) -> None:
        self.counts.clear()
        self.xors.clear()
        self.inits.clear()
        self.fails.clear()
        self.resets.clear()


@dataclass(slots=True)
class Settlement:
    """What came of a ledger: for the worker's own spouts, and for the ackers."""

    done: Settled
    failed: Settled
    acks: dict[int, int]  # root -> XOR
    inits: dict[int, int]  # root -> spout task; the XOR of each is in `acks`
    fails: list[int]
    resets: list[int]


class LocalTrees:
    """The roots with tuples in flight in this worker.

    An entry is there for as long as its tuples are. A bolt that forgets tuples would let it grow
    forever, so an entry that nothing touched for several timeouts (`rotate`) is dropped: the spout
    has failed such a root long ago.
    """

    def __init__(self, bits: Callable[[int], int]) -> None:
        """`bits(n)` draws n random bits."""
        self._bits = bits
        self._counts: dict[int, int] = {}
        self._xors: dict[int, int] = {}
        self._old_counts: dict[int, int] = {}
        self._old_xors: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._counts) + len(self._old_counts)

    def settle(self, ledger: Ledger) -> Settlement:
        """Work a ledger in, and empty it."""
        counts, xors, inits = ledger.counts, ledger.xors, ledger.inits
        failed: Settled = {}
        fails: list[int] = []
        for root in dict.fromkeys(ledger.fails):
            spout = inits.pop(root, None)
            if spout is None:
                fails.append(root)
                # A fresh random number: if the fail never reaches the acker, the tree must time
                # out, not complete.
                xors[root] = xors.get(root, 0) ^ self._bits(ID_BITS)
            else:
                failed.setdefault(spout, []).append(root)
        done: Settled = {}
        acks: dict[int, int] = {}
        begun: dict[int, int] = {}
        held, held_xors = self._counts, self._xors
        if self._old_counts:
            self._make_young(counts, xors)
        for root, count in counts.items():
            if held:
                count += held.pop(root, 0)
            xor = xors.pop(root, 0) if xors else 0
            spout = inits.pop(root, None) if inits else None
            if count:
                held[root] = count
                if spout is not None:
                    # The tree outlives the turn: tell its acker, with an edge for what is here.
                    here = self._bits(ID_BITS)
                    held_xors[root] = here
                    acks[root] = xor ^ here
                    begun[root] = spout
                elif xor:
                    held_xors[root] = held_xors.get(root, 0) ^ xor
                continue
            if held_xors:
                xor ^= held_xors.pop(root, 0)
            if spout is None:
                if xor:
                    acks[root] = xor
            elif xor:
                acks[root] = xor
                begun[root] = spout
            elif spout in done:
                done[spout].append(root)
            else:
                done[spout] = [root]
        for root, xor in xors.items():
            if root in held:
                held_xors[root] = held_xors.get(root, 0) ^ xor
                continue
            acks[root] = xor
            spout = inits.pop(root, None)
            if spout is not None:
                begun[root] = spout
        for root, spout in inits.items():
            done.setdefault(spout, []).append(root)  # no component consumes it
        resets = list(dict.fromkeys(ledger.resets))
        ledger.clear()
        return Settlement(done, failed, acks, begun, fails, resets)

    def _make_young(self, *touched: Iterable[int]) -> None:
        for roots in touched:
            for root in roots:
                count = self._old_counts.pop(root, None)
                if count is not None:
                    self._counts[root] = count
                    xor = self._old_xors.pop(root, None)
                    if xor is not None:
                        self._xors[root] = xor

    def rotate(self) -> None:
        """Forget what nothing has touched since the last rotation but one."""
        self._old_counts, self._counts = self._counts, {}
        self._old_xors, self._xors = self._xors, {}


class AckerTable:
    """The roots of one acker task.

    Two generations: an entry that nothing has touched for one whole timeout, and at most two, is
    forgotten. The spout has long failed it by then; this only bounds the memory.
    """

    def __init__(self) -> None:
        self._xors: dict[int, int] = {}
        self._old_xors: dict[int, int] = {}
        self._owners: dict[int, int] = {}
        self._old_owners: dict[int, int] = {}
        # Roots that failed before their init came.
        self._failed: set[int] = set()
        self._old_failed: set[int] = set()

    def __len__(self) -> int:
        return len(self._xors) + len(self._old_xors) + len(self._failed) + len(self._old_failed)

    def apply(self, acks: dict[int, int], inits: dict[int, int]) -> tuple[Settled, Settled]:
        """Take XORs and inits (the caller's no more: it changes them) in one step. Returns the
        roots that are complete, and those that had failed before their init. An init's own XOR
        must be in the same `acks` or in earlier ones, else its root might look complete when it is
        not."""
        done: Settled = {}
        xors, old_xors, owners = self._xors, self._old_xors, self._owners
        pop = xors.pop
        failed = self._fail_late(acks, inits) if self._failed or self._old_failed else {}
        for root, xor in acks.items():
            if xors:
                xor ^= pop(root, 0)
            if old_xors:
                xor ^= old_xors.pop(root, 0)
            if xor:
                xors[root] = xor
                continue
            owner = inits.pop(root, None)
            if owner is None:
                owner = owners.pop(root, None)
                if owner is None:
                    owner = self._old_owners.pop(root, None)
            if owner is None:
                xors[root] = 0  # complete but for its init
            elif owner in done:
                done[owner].append(root)
            else:
                done[owner] = [root]
        for root, owner in inits.items():
            # Zero here: its own XOR came in an earlier call. (Not there: it has yet to come.)
            if xors.get(root, old_xors.get(root)) == 0:
                xors.pop(root, None)
                old_xors.pop(root, None)
                done.setdefault(owner, []).append(root)
            else:
                owners[root] = owner
        inits.clear()
        return done, failed

    def apply_remote(self, acks: dict[int, int], inits: dict[int, int]) -> tuple[Settled, Settled]:
        """`apply` what another worker sent. What repeats an init that is known is left out: its
        XOR, taken twice, would make a living tree look complete. (A repeated ack without an init
        leaves a number that is not zero, and the root times out.)"""
        for root in [r for r in inits if r in self._owners or r in self._old_owners]:
            del inits[root]
            acks.pop(root, None)
        return self.apply(acks, inits)

    def _fail_late(self, acks: dict[int, int], inits: dict[int, int]) -> Settled:
        """Take out the roots that failed before their init came."""
        known = [root for root in inits if root in self._failed or root in self._old_failed]
        self._failed.difference_update(known)
        self._old_failed.difference_update(known)
        for root in known:
            acks.pop(root, None)
            self._xors.pop(root, None)
            self._old_xors.pop(root, None)
        failed: Settled = {}
        for root in known:
            failed.setdefault(inits.pop(root), []).append(root)
        return failed

    def fail(self, roots: Iterable[int]) -> Settled:
        """These trees failed: forget them. Returns those whose spout is known; the others fail as
        soon as their init comes."""
        failed: Settled = {}
        for root in roots:
            owner = self._owners.pop(root, None)
            if owner is None:
                owner = self._old_owners.pop(root, None)
            self._xors.pop(root, None)
            self._old_xors.pop(root, None)
            if owner is None:
                self._failed.add(root)
            else:
                failed.setdefault(owner, []).append(root)
        return failed

    def known(self) -> list[int]:
        """The roots whose init has come."""
        return [*self._owners, *self._old_owners]

    def reset_timeout(self, roots: Iterable[int]) -> Settled:
        """Make these roots young again. Returns those whose spout is known (it must do the
        same)."""
        reset: Settled = {}
        for root in roots:
            xor = self._old_xors.pop(root, None)
            if xor is not None:
                self._xors[root] = self._xors.get(root, 0) ^ xor
            owner = self._old_owners.pop(root, None)
            if owner is not None:
                self._owners[root] = owner
            else:
                owner = self._owners.get(root)
            if owner is not None:
                reset.setdefault(owner, []).append(root)
        return reset

    def rotate(self) -> None:
        """One timeout has passed: forget the entries untouched since the last rotation."""
        self._old_xors, self._xors = self._xors, {}
        self._old_owners, self._owners = self._owners, {}
        self._old_failed, self._failed = self._failed, set()


class Taken:
    """Messages that a spout no longer waits for: their ids, oldest first, and by stream how many
    they are and for how many seconds it waited, altogether."""

    __slots__ = ("by_stream", "message_ids")

    def __init__(self) -> None:
        self.message_ids: list[object] = []
        self.by_stream: dict[str, tuple[int, float]] = {}

    def add(self, message_id: object, stream: str, secs: float) -> None:
        self.message_ids.append(message_id)
        count, total = self.by_stream.get(stream, (0, 0.0))
        self.by_stream[stream] = (count + 1, total + secs)


class Pending(msgspec.Struct, gc=False):
    """A root that a spout task waits for."""

    message_id: object
    stream: str
    emitted_at: float  # monotonic
    bucket: int  # the timeout bucket that it was emitted (or reset) in


class PendingRoots(dict[int, Pending]):
    """The roots that a spout task waits for, oldest bucket first (dicts keep their order).

    A root times out when the bucket that it lies in is more than `BUCKETS` old.
    """

    def put(self, root: int, message_id: object, stream: str, now: float, bucket: int) -> None:
        self[root] = Pending(message_id, stream, now, bucket)

    def take(self, roots: Iterable[int], now: float) -> Taken:
        """Wait for these roots no longer; those that are not waited for are left out."""
        taken = Taken()
        pop = self.pop
        found = [p for root in roots if (p := pop(root, None)) is not None]
        taken.message_ids = [p.message_id for p in found]
        streams = {p.stream for p in found}
        for stream in sorted(streams):
            some = found if len(streams) == 1 else [p for p in found if p.stream == stream]
            waited = now * len(some) - sum([p.emitted_at for p in some])
            taken.by_stream[stream] = (len(some), waited)
        return taken

    def take_completed(self, now: float) -> Taken | None:
        """What the ackers of this worker have completed without the engine (see `Trees.attach`;
        never here)."""
        return None

    def reset(self, root: int, bucket: int) -> None:
        """Start the timeout of a root again from now."""
        pending = self.pop(root, None)
        if pending is not None:
            pending.bucket = bucket
            self[root] = pending

    def expired(self, bucket: int) -> list[int]:
        """What has timed out when `bucket` is the present one."""
        limit = bucket - BUCKETS
        expired = []
        for root, pending in self.items():
            if pending.bucket >= limit:
                break
            expired.append(root)
        return expired

    def expire(self, bucket: int, now: float) -> Taken:
        """Take what has timed out when `bucket` is the present one."""
        return self.take(self.expired(bucket), now)

    def find_message(self, root: int) -> tuple[object] | None:
        """The id of the message whose root this is, alone in a tuple; None when it does not wait
        here. From any thread."""
        pending = self.get(root)
        return None if pending is None else (pending.message_id,)

    def oldest_first(self) -> Sequence[int]:
        return list(self)
