"""ZooKeeper as supervisors and workers of a secured cluster read it: only what is signed counts.

/storms/ID and /assignments/ID are read from the signed state of the topology
(`squall_common.security.topology_states`), whatever lies at those paths themselves; their mzxid is
the number of the state that changed them last. What Nimbus asks of daemons (`paths.is_notice`)
must be signed for its path, and an entry in /supervisors by its supervisor; a supervisor's own is
signed on its way out.

What is missing, forged or older than what was read before raises UnsignedError, which is no reason
to act: a reader goes on with what it knows. A notice that does not count is not there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from squall_common.cluster import paths
from squall_common.cluster.store import (
    Create,
    Delete,
    NoNodeError,
    Op,
    Set,
    Stat,
    Store,
    StoreError,
    Watcher,
)
from squall_common.cluster.stores.proxy import StoreProxy
from squall_common.daemon.logs import get_logger
from squall_common.security.records import RecordError
from squall_common.security.registrations import Registration
from squall_common.security.signing import Trust
from squall_common.security.topology_states import TopologyState, verify_notice
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

# No request to profile a worker counts for longer: one that is put back after a supervisor has
# forgotten that it was carried out does nothing after that.
REQUEST_SECS_MAX = 3_900.0
# A supervisor outlives its topologies. The states that were read last are kept, so that they are
# not verified again, and a number for each of many more, below which no state counts.
_STATES_MAX = 256
_FLOORS_MAX = 20_000
# Above so many, notices are forgotten that do not count any more by far: a clock may go back.
_NOTICES = 256
_FORGOTTEN_SECS = REQUEST_SECS_MAX + 86_400


class UnsignedError(StoreError):
    """What ZooKeeper has is not what Nimbus has signed last, as far as this process knows."""


class VerifiedStore(StoreProxy):
    """`floor`: the lowest number that counts, by topology. `sign_own(node, value)` signs what this
    process writes at /supervisors/NODE."""

    def __init__(
        self,
        inner: Store,
        trust: Trust,
        *,
        now: Callable[[], float],
        floor: dict[str, int] | None = None,
        sign_own: Callable[[str, bytes], bytes] | None = None,
    ) -> None:
        super().__init__(inner)
        self._trust = trust
        self._floor: OrderedDict[str, int] = OrderedDict(floor or {})  # the last read at the end
        self._sign_own = sign_own
        self._now = now
        # Notices that count, and those that were removed here: path -> number, when issued.
        self._seen: dict[str, tuple[int, float]] = {}
        self._done: dict[str, tuple[int, float]] = {}
        self._last: OrderedDict[str, tuple[bytes, TopologyState]] = OrderedDict()
        self._throttle = Throttle()

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        if (topology_id := paths.below(paths.STORMS, path)) is not None:
            state, stat = await self._state(topology_id, watch)
            return state.base, signed_stat(stat, state.base_number)
        if (topology_id := paths.below(paths.ASSIGNMENTS, path)) is not None:
            state, stat = await self._state(topology_id, watch)
            if state.assignment is None:
                raise NoNodeError(path)
            return state.assignment, signed_stat(stat, state.assignment_number)
        if (node := paths.below(paths.SUPERVISORS, path)) is not None:
            value, stat = await self.inner.get(path, watch)
            return self._registration(node, value), stat
        if paths.is_notice(path):
            value, stat = await self.inner.get(path, watch)
            return self._notice(path, value), stat
        return await self.inner.get(path, watch)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        for parent in (paths.STORMS, paths.ASSIGNMENTS):
            if paths.below(parent, path) is not None:
                try:
                    return (await self.get(path, watch))[1]
                except NoNodeError:
                    return None
        if paths.is_notice(path):
            try:
                value, stat = await self.inner.get(path, watch)
                self._notice(path, value)
            except NoNodeError:
                # It is not there, or does not count: the watch waits for another.
                await self.inner.exists(path, watch)
                return None
            return stat
        return await self.inner.exists(path, watch)

    async def transaction(self, ops: Sequence[Op]) -> None:
        await self.inner.transaction([self._signed(op) for op in ops])
        for op in ops:
            if isinstance(op, Delete) and (seen := self._seen.pop(op.path, None)) is not None:
                self._done[op.path] = seen

    def _forget_old(self) -> None:
        """Forget notices of long ago. Of those that were removed here only requests, which do not
        count any more, whoever puts them back."""
        before = self._now() - _FORGOTTEN_SECS
        if len(self._seen) > _NOTICES:
            self._seen = {path: one for path, one in self._seen.items() if one[1] >= before}
        if len(self._done) > _NOTICES:
            self._done = {
                path: one
                for path, one in self._done.items()
                if one[1] >= before or not path.startswith(paths.PROFILERCONFIGS)
            }

    def _signed(self, op: Op) -> Op:
        node = paths.below(paths.SUPERVISORS, op.path)
        if node is None or self._sign_own is None or not isinstance(op, Create | Set):
            return op
        value = self._sign_own(node, op.value)
        if isinstance(op, Create):
            return Create(op.path, value, op.ephemeral)
        return Set(op.path, value, op.version)

    def _registration(self, node: str, value: bytes) -> bytes:
        """A supervisor's own words; no bytes at all, which cannot be decoded, if they are not."""
        try:
            trust, now = self._trust, self._now()
            revoked = trust.revoked()
            return Registration.verify(value, node, trust.cluster, trust.ca, revoked, now).value
        except RecordError as error:
            self._log(node, error)
            return b""

    def _notice(self, path: str, value: bytes) -> bytes:
        """Raises NoNodeError for one that does not count."""
        try:
            notice = verify_notice(path, value, self._trust)
            if notice.number <= self._done.get(path, (0, 0.0))[0]:
                raise RecordError(f"{path}: it was put back after it was carried out")
            passing = path.startswith(paths.PROFILERCONFIGS)
            if passing and self._now() > notice.issued + REQUEST_SECS_MAX:
                raise RecordError(f"{path}: it is too old")
            self._forget_old()
            self._seen[path] = notice.number, notice.issued
            return notice.value
        except RecordError as error:
            self._log(path, error)
            raise NoNodeError(path) from error

    async def _state(self, topology_id: str, watch: Watcher | None) -> tuple[TopologyState, Stat]:
        """Raises UnsignedError and the inner store's errors."""
        path = paths.signed_state(topology_id)
        try:
            data, stat = await self.inner.get(path, watch)
        except NoNodeError:
            await self.inner.exists(path, watch)
            raise UnsignedError(f"{path} is missing") from None
        last = self._last.get(topology_id)
        if last is not None and last[0] == data:
            self._last.move_to_end(topology_id)
            return last[1], stat
        try:
            state = TopologyState.verify(data.decode("ascii", "replace"), self._trust, topology_id)
            if state.number < self._floor.get(topology_id, 0):
                raise RecordError(f"its number {state.number} is below {self._floor[topology_id]}")
        except RecordError as error:
            self._log(path, error)
            raise UnsignedError(f"{path}: {error}") from error
        self._floor[topology_id] = state.number
        self._floor.move_to_end(topology_id)
        self._last[topology_id] = (data, state)
        self._last.move_to_end(topology_id)
        if len(self._last) > _STATES_MAX:
            self._last.popitem(last=False)
        if len(self._floor) > _FLOORS_MAX:
            self._floor.popitem(last=False)
        return state, stat

    def _log(self, path: str, error: Exception) -> None:
        if (left_out := self._throttle.left_out(path)) is not None:
            log.error("unsigned_state_refused", path=path, reason=error, left_out=left_out)


def signed_stat(stat: Stat, number: int) -> Stat:
    """The stat of a value that a signed state carries."""
    return Stat(stat.version, number, number, 0, 0)
