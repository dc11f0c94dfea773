"""The life of a topology, as a table: what may happen in each state, and what Nimbus then does.

A topology's state is stored in its StormBase (/storms/ID). Nimbus feeds events to `decide`, which
changes nothing itself: it returns commands, and the shell (`lifecycle_shell`) carries them out in
order. Every command can be carried out again after a crash: the state that asked for it is still
there, and a new leader sends `LeadershipGained` to every topology.

Storm has four statuses; a fifth state, STARTING, is the time between the creation of a topology's
StormBase and its first assignment. It is stored as status INACTIVE with the requested initial
status as `prev_status`, so that Storm's own readers see a topology that is not active yet.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from squall_common.cluster.values import KillOptions, RebalanceOptions, StormBase, TopologyStatus


class State(enum.Enum):
    """The position of a topology in its life cycle."""

    STARTING = "start pending"  # created, but no assignment yet; workers would stay inactive
    ACTIVE = "active"  # spouts emit
    INACTIVE = "inactive"  # workers run, spouts do not emit
    REBALANCING = "rebalancing"  # spouts do not emit; a DoRebalance is pending
    KILLED = "killed"  # spouts do not emit; a Remove is pending


def state_of(base: StormBase) -> State:
    """Return the state that a stored StormBase represents."""
    if base.status is TopologyStatus.INACTIVE and base.prev_status is not None:
        return State.STARTING
    return _STATE_OF_STATUS[base.status]


_STATE_OF_STATUS = {
    TopologyStatus.ACTIVE: State.ACTIVE,
    TopologyStatus.INACTIVE: State.INACTIVE,
    TopologyStatus.REBALANCING: State.REBALANCING,
    TopologyStatus.KILLED: State.KILLED,
}


# Events


@dataclass(frozen=True, slots=True)
class Activate:
    """A user asks for spouts that emit."""


@dataclass(frozen=True, slots=True)
class Deactivate:
    """A user asks for spouts that do not emit."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A user asks for a different number of workers or executors, or only for an even spread."""

    options: RebalanceOptions


@dataclass(frozen=True, slots=True)
class DoRebalance:
    """The wait of a rebalance is over."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A user ends the topology. If `wait_secs` is None, the wait ends when the topology has
    drained, at its message timeout at the latest."""

    wait_secs: int | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """The wait of a kill is over."""


@dataclass(frozen=True, slots=True)
class DrainReported:
    """Every worker has reported once that it has drained: ask again (see `drain`)."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing of the topology is in flight any more."""


@dataclass(frozen=True, slots=True)
class LeadershipGained:
    """This Nimbus became the leader, and takes over what the last one had pending."""


@dataclass(frozen=True, slots=True)
class MonitorDue:
    """The periodic check of every topology."""


Event = (
    Activate
    | Deactivate
    | Rebalance
    | DoRebalance
    | Kill
    | Remove
    | DrainReported
    | Drained
    | LeadershipGained
    | MonitorDue
)


# Commands


@dataclass(frozen=True, slots=True)
class WriteBase:
    """Store the new StormBase."""

    base: StormBase


@dataclass(frozen=True, slots=True)
class Schedule:
    """Send `event` after `wait_secs`, in place of whatever was pending for the topology.
    `or_drained`: look meanwhile whether the topology has drained, and send DrainReported and
    Drained."""

    event: DoRebalance | Remove
    wait_secs: int
    or_drained: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    """Make an assignment for `base` and store both in one transaction. `spread`: also spread
    running executors evenly. `conf_overrides` (JSON) go into the topology's configuration first."""

    base: StormBase
    spread: bool = False
    conf_overrides: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopology:
    """Delete the topology's assignment, state, heartbeats, errors and blobs."""


Command = WriteBase | Schedule | Assign | RemoveTopology


class NoTransitionError(Exception):
    """The event is not allowed in the topology's state; nothing changed."""


# What an event does to its topology, after "cannot be": for users, and for Nimbus' log.
_DONE_TO_IT: dict[type[Event], str] = {
    Activate: "activated",
    Deactivate: "deactivated",
    Rebalance: "rebalanced",
    DoRebalance: "assigned again",
    Kill: "killed",
    Remove: "removed",
    DrainReported: "asked again whether it is drained",
    Drained: "taken as drained",
    LeadershipGained: "taken over",
    MonitorDue: "looked after",
}

# An effect gets the base, the event and the topology's message timeout in seconds.
_Effect = Callable[[StormBase, Event, int], tuple[Command, ...]]


def _nothing(_base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    return ()


def _activate(base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    return (WriteBase(replace(base, status=TopologyStatus.ACTIVE)),)


def _deactivate(base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    return (WriteBase(replace(base, status=TopologyStatus.INACTIVE)),)


def _start_active(base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    return (WriteBase(replace(base, prev_status=TopologyStatus.ACTIVE)),)


def _start_inactive(base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    return (WriteBase(replace(base, prev_status=TopologyStatus.INACTIVE)),)


def _start(base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    assert base.prev_status is not None
    return (Assign(replace(base, status=base.prev_status, prev_status=None)),)


def _kill(base: StormBase, event: Event, message_timeout_secs: int) -> tuple[Command, ...]:
    assert isinstance(event, Kill)
    killed = replace(
        base,
        status=TopologyStatus.KILLED,
        prev_status=None,
        action_options=KillOptions(event.wait_secs),
    )
    return WriteBase(killed), _after(Remove(), event.wait_secs, message_timeout_secs)


def _after(
    event: DoRebalance | Remove, asked_secs: int | None, message_timeout_secs: int
) -> Schedule:
    """The end of a wait: as long as a user asked for, or until the topology has drained, but at
    most its message timeout."""
    if asked_secs is None:
        return Schedule(event, message_timeout_secs, or_drained=True)
    return Schedule(event, asked_secs)


def _asked_secs(base: StormBase) -> int | None:
    """How long a user asked to wait."""
    return None if base.action_options is None else base.action_options.wait_secs


def _schedule_remove(base: StormBase, _event: Event, wait: int) -> tuple[Command, ...]:
    return (_after(Remove(), _asked_secs(base), wait),)


def _ask_again(base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    return (WriteBase(base),)


def _remove_if_drained(base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    return (Schedule(Remove(), 0),) if _asked_secs(base) is None else ()


def _rebalance_if_drained(base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    return (Schedule(DoRebalance(), 0),) if _asked_secs(base) is None else ()


def _remove(_base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    return (RemoveTopology(),)


def _rebalance(base: StormBase, event: Event, message_timeout_secs: int) -> tuple[Command, ...]:
    assert isinstance(event, Rebalance)
    # A topology whose start is pending goes to its initial status afterwards.
    rebalancing = replace(
        base,
        status=TopologyStatus.REBALANCING,
        prev_status=base.prev_status or base.status,
        action_options=event.options,
    )
    end = _after(DoRebalance(), event.options.wait_secs, message_timeout_secs)
    return WriteBase(rebalancing), end


def _schedule_rebalance(base: StormBase, _event: Event, wait: int) -> tuple[Command, ...]:
    return (_after(DoRebalance(), _asked_secs(base), wait),)


def _do_rebalance(base: StormBase, _event: Event, _wait: int) -> tuple[Command, ...]:
    options = base.action_options
    if not isinstance(options, RebalanceOptions):
        options = RebalanceOptions()
    rebalanced = replace(
        base,
        status=base.prev_status or TopologyStatus.ACTIVE,
        prev_status=None,
        action_options=None,
        num_workers=base.num_workers if options.num_workers is None else options.num_workers,
        component_executors={**base.component_executors, **options.num_executors},
    )
    return (Assign(rebalanced, spread=True, conf_overrides=options.topology_conf_overrides),)


_S = State
# (state, event): (next state, effect). STARTING's next state after Assign is the initial status,
# REBALANCING's is the status before: None stands for both.
TRANSITIONS: dict[tuple[State, type[Event]], tuple[State | None, _Effect]] = {
    (_S.STARTING, Activate): (_S.STARTING, _start_active),
    (_S.STARTING, Deactivate): (_S.STARTING, _start_inactive),
    (_S.STARTING, Rebalance): (_S.REBALANCING, _rebalance),
    (_S.STARTING, Kill): (_S.KILLED, _kill),
    (_S.STARTING, LeadershipGained): (None, _start),
    (_S.STARTING, MonitorDue): (None, _start),
    #
    (_S.ACTIVE, Activate): (_S.ACTIVE, _nothing),
    (_S.ACTIVE, Deactivate): (_S.INACTIVE, _deactivate),
    (_S.ACTIVE, Rebalance): (_S.REBALANCING, _rebalance),
    (_S.ACTIVE, Kill): (_S.KILLED, _kill),
    (_S.ACTIVE, LeadershipGained): (_S.ACTIVE, _nothing),
    #
    (_S.INACTIVE, Activate): (_S.ACTIVE, _activate),
    (_S.INACTIVE, Deactivate): (_S.INACTIVE, _nothing),
    (_S.INACTIVE, Rebalance): (_S.REBALANCING, _rebalance),
    (_S.INACTIVE, Kill): (_S.KILLED, _kill),
    (_S.INACTIVE, LeadershipGained): (_S.INACTIVE, _nothing),
    #
    (_S.REBALANCING, DoRebalance): (None, _do_rebalance),
    (_S.REBALANCING, DrainReported): (_S.REBALANCING, _ask_again),
    (_S.REBALANCING, Drained): (_S.REBALANCING, _rebalance_if_drained),
    (_S.REBALANCING, Kill): (_S.KILLED, _kill),
    (_S.REBALANCING, LeadershipGained): (_S.REBALANCING, _schedule_rebalance),
    #
    (_S.KILLED, Kill): (_S.KILLED, _kill),
    (_S.KILLED, Remove): (None, _remove),
    (_S.KILLED, DrainReported): (_S.KILLED, _ask_again),
    (_S.KILLED, Drained): (_S.KILLED, _remove_if_drained),
    (_S.KILLED, LeadershipGained): (_S.KILLED, _schedule_remove),
}


def decide(base: StormBase, event: Event, *, message_timeout_secs: int) -> tuple[Command, ...]:
    """Return the commands for `event` on a topology; () if there is nothing to do.

    Raises NoTransitionError for a pair of state and event that is not in the table.
    """
    state = state_of(base)
    row = TRANSITIONS.get((state, type(event)))
    if row is None:
        raise NoTransitionError(
            f"topology {base.name!r} cannot be {_DONE_TO_IT[type(event)]} "
            f"while it is {base.status.name}"
        )
    commands = row[1](base, event, message_timeout_secs)
    for command in commands:
        if isinstance(command, WriteBase | Assign):
            validate(command.base)
    return commands


def validate(base: StormBase) -> None:
    """Assert the invariants of every StormBase that Nimbus writes."""
    state = state_of(base)
    assert base.num_workers >= 1
    assert (base.prev_status is not None) == (state in {State.STARTING, State.REBALANCING})
    assert base.prev_status in {None, TopologyStatus.ACTIVE, TopologyStatus.INACTIVE}
    if state is State.KILLED:
        assert isinstance(base.action_options, KillOptions)
    elif state is State.REBALANCING:
        assert isinstance(base.action_options, RebalanceOptions)
    else:
        assert base.action_options is None
