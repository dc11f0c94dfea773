"""Byte credit: what one worker may send to the tasks of another. Pure: no socket, no clock.

The receiver has an `Account` for each (sending worker, own task) and grants a limit: the bytes that
the task has taken out of its inbox, plus a window. The sender has an `Allowance` for each task
elsewhere, and sends while the bytes sent are below the limit; the last tuple may exceed it, so any
tuple can be sent, whatever its size. Both count bytes since their pair of sessions began, so a
grant that arrives twice, late or out of order does no harm, and the next one replaces one that is
lost. A link delivers once and in order, so both ends have the same counts.

    sender                                   receiver
    sent 0, limit FLOOR                      window W: grants 0 + W
                <...................... W
    sent s <= W + a tuple  ............>     waits in the inbox of the task, encoded
                                             the task takes c: grants c + W
                <.................. c + W

The windows of a worker add up to its budget (`topology.worker.buffer.bytes`, half of it; the other
half is for tuples that wait decoded, see `flow`). They are fixed shares, not one pool: if another
task could use up a window, chains that alternate between two workers could deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from squall_common.topology.model import WorkerSlot
from squall_engine.transport import FEATURES_TASK, Grant

# A sender has this much before the first grant, so no window is smaller.
FLOOR_BYTES = 16 * 1024
# More gains nothing (a window crosses in a few turns), and makes tuples old before they are run.
WINDOW_BYTES_MAX = 4 * 1024 * 1024
# What a section, and a tuple in it, cost a receiver in addition to their bytes.
SECTION_BYTES = 128
TUPLE_BYTES = 64


def charge(section_bytes: int, tuples: int) -> int:
    """The credit that a section of that many bytes and tuples uses."""
    return section_bytes + SECTION_BYTES + TUPLE_BYTES * tuples


def section_bytes(used: int, tuples: int) -> int:
    """The bytes of a section that used that much credit."""
    return max(0, used - SECTION_BYTES - TUPLE_BYTES * tuples)


def window_bytes(budget_bytes: int, pairs: int) -> int:
    """The window for each of `pairs` pairs of a sending worker and a task here."""
    return max(FLOOR_BYTES, min(WINDOW_BYTES_MAX, budget_bytes // max(1, pairs)))


class Allowance:
    """A sender's side: what it may send to one task of another worker."""

    __slots__ = ("limit", "load", "sent", "task")

    def __init__(self, task: int) -> None:
        self.task = task
        self.sent = 0
        self.limit = FLOOR_BYTES
        self.load = 0  # 0 to LOAD_MAX

    @property
    def left(self) -> int:
        """Bytes; anything above zero permits one more tuple."""
        return self.limit - self.sent


class Outflow:
    """All allowances of a worker."""

    def __init__(self) -> None:
        self._allowances: dict[WorkerSlot, dict[int, Allowance]] = {}

    def allowance(self, slot: WorkerSlot, task: int) -> Allowance:
        """The allowance for a task of a worker."""
        of_slot = self._allowances.setdefault(slot, {})
        if task not in of_slot:
            of_slot[task] = Allowance(task)
        return of_slot[task]

    def session_began(self, slot: WorkerSlot, waiting: Iterable[tuple[int, int]]) -> None:
        """Count from zero for a new pair of sessions, plus the (task, bytes) that wait for it."""
        for allowance in self._allowances.get(slot, {}).values():
            allowance.sent = allowance.load = 0
            allowance.limit = FLOOR_BYTES
        for task, size in waiting:
            self.allowance(slot, task).sent += size

    def granted(self, slot: WorkerSlot, grants: Iterable[Grant]) -> None:
        """Apply grants of a worker for its tasks. Limits only grow."""
        for grant in grants:
            if grant.task == FEATURES_TASK:
                continue
            allowance = self.allowance(slot, grant.task)
            allowance.load = grant.load
            if grant.limit > allowance.limit:
                allowance.limit = grant.limit


class Account:
    """A receiver's side: what one worker sends to one task here."""

    __slots__ = ("_due", "granted", "load", "received", "taken", "task", "window")

    def __init__(self, task: int, window: int, due: dict[int, Account]) -> None:
        self.task = task
        self.window = window
        self.received = 0
        self.taken = 0
        self.granted = FLOOR_BYTES  # the limit that the sender knows
        self.load = 0  # likewise
        self._due = due

    @property
    def waiting(self) -> int:
        """Bytes that the task has not taken."""
        return self.received - self.taken

    def take(self, size: int) -> None:
        """The task has taken `size` bytes out of its inbox."""
        self.taken += size
        # Not for every section, but long before the sender has used up its limit. (A frame that
        # carries a grant costs ten times as much as one that does not.)
        if self.taken + self.window - self.granted >= self.window >> 2:
            self._due[self.task] = self

    def grant(self, load: int) -> Grant:
        """The grant to send now. A limit that was granted is never reduced."""
        self.granted = max(self.granted, self.taken + self.window)
        self.load = load
        return Grant(self.task, self.granted, load)


class Accounts(dict[int, Account]):
    """The accounts of one worker, in one pair of sessions, by task here. Each is made when it is
    first asked for."""

    __slots__ = ("due", "sessions", "windows")

    def __init__(self, sessions: object) -> None:
        self.sessions = sessions
        self.windows: Mapping[int, int] = {}  # in bytes, by task
        self.due: dict[int, Account] = {}  # those for which a grant is due

    def __missing__(self, task: int) -> Account:
        account = Account(task, self.windows.get(task, FLOOR_BYTES), self.due)
        self[task] = account
        return account

    def set_windows(self, windows: Mapping[int, int]) -> None:
        self.windows = windows
        for task, window in windows.items():
            account = self[task]
            account.window = window
            if account.taken + window > account.granted:
                self.due[task] = account


class Inflow:
    """All accounts of a worker."""

    def __init__(self) -> None:
        self._windows: Mapping[WorkerSlot, Mapping[int, int]] = {}
        self._accounts: dict[WorkerSlot, Accounts] = {}

    def set_windows(self, windows: Mapping[WorkerSlot, Mapping[int, int]]) -> None:
        """Set the windows, in bytes by sending worker and task here."""
        self._windows = windows
        # Those of workers that are gone stay: a worker may come back with its link still open.
        for slot, accounts in self._accounts.items():
            accounts.set_windows(windows.get(slot, {}))

    def session_began(self, slot: WorkerSlot, sessions: object) -> None:
        """Count from zero for a new pair of sessions with a worker. What came in the previous pair
        keeps its account, which is no longer granted from."""
        accounts = self._accounts[slot] = Accounts(sessions)
        accounts.set_windows(self._windows.get(slot, {}))

    def accounts_of(self, slot: WorkerSlot, sessions: object) -> Accounts:
        """Where to count what has arrived from a worker in a pair of sessions. Those of a previous
        pair are not kept, and nothing is granted from them."""
        accounts = self._accounts.get(slot)
        if accounts is not None and accounts.sessions == sessions:
            return accounts
        return Accounts(sessions)

    def due(self) -> Iterable[tuple[WorkerSlot, list[Account]]]:
        """The accounts for which a grant is due now."""
        for slot, of_slot in self._accounts.items():
            if of_slot.due:
                accounts = list(of_slot.due.values())
                of_slot.due.clear()
                yield slot, accounts

    def accounts(self) -> Iterable[tuple[WorkerSlot, list[Account]]]:
        """All accounts for which grants can be sent."""
        for slot, accounts in self._accounts.items():
            if accounts:
                yield slot, list(accounts.values())
