"""The topology state machine: every row of its table, and nothing else."""

from dataclasses import replace

import pytest

from squall_common.cluster.values import KillOptions, RebalanceOptions, StormBase, TopologyStatus
from squall_nimbus.topologies.lifecycle import (
    TRANSITIONS,
    Activate,
    Assign,
    Deactivate,
    DoRebalance,
    Drained,
    DrainReported,
    Event,
    Kill,
    LeadershipGained,
    MonitorDue,
    NoTransitionError,
    Rebalance,
    Remove,
    RemoveTopology,
    Schedule,
    State,
    WriteBase,
    decide,
    state_of,
    validate,
)

TIMEOUT_SECS = 30
ACTIVE = StormBase("wc", TopologyStatus.ACTIVE, 2, {"split": 2, "count": 2})
INACTIVE = replace(ACTIVE, status=TopologyStatus.INACTIVE)
STARTING = replace(INACTIVE, prev_status=TopologyStatus.ACTIVE)
OPTIONS = RebalanceOptions(wait_secs=7, num_workers=3, num_executors={"split": 4})
REBALANCING = replace(
    ACTIVE,
    status=TopologyStatus.REBALANCING,
    prev_status=TopologyStatus.INACTIVE,
    action_options=OPTIONS,
)
KILLED = replace(ACTIVE, status=TopologyStatus.KILLED, action_options=KillOptions(5))
BASES = {
    State.STARTING: STARTING,
    State.ACTIVE: ACTIVE,
    State.INACTIVE: INACTIVE,
    State.REBALANCING: REBALANCING,
    State.KILLED: KILLED,
}
EVENTS: list[Event] = [
    Activate(),
    Deactivate(),
    Rebalance(OPTIONS),
    DoRebalance(),
    Kill(3),
    Remove(),
    DrainReported(),
    Drained(),
    LeadershipGained(),
    MonitorDue(),
]


def run(base: StormBase, event: Event):
    return decide(base, event, message_timeout_secs=TIMEOUT_SECS)


def after(base: StormBase, event: Event) -> StormBase:
    """Return the StormBase that the commands leave behind."""
    for command in run(base, event):
        if isinstance(command, WriteBase | Assign):
            base = command.base
    return base


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("state", list(State), ids=lambda s: s.name)
def test_every_pair_is_in_the_table_or_refused(state: State, event: Event) -> None:
    base = BASES[state]
    assert state_of(base) is state
    row = TRANSITIONS.get((state, type(event)))
    if row is None:
        with pytest.raises(NoTransitionError, match=r"cannot be .+ while it is [A-Z]+$"):
            run(base, event)
        return
    new = after(base, event)
    validate(new)
    if row[0] is not None:
        assert state_of(new) is row[0]


def test_the_refusal_names_event_status_and_topology() -> None:
    with pytest.raises(NoTransitionError) as caught:
        run(KILLED, Activate())
    assert str(caught.value) == ("topology 'wc' cannot be activated while it is KILLED")


def test_a_start_makes_an_assignment_and_takes_the_requested_status() -> None:
    for status in (TopologyStatus.ACTIVE, TopologyStatus.INACTIVE):
        base = replace(STARTING, prev_status=status)
        for event in (MonitorDue(), LeadershipGained()):
            assert run(base, event) == (Assign(replace(base, status=status, prev_status=None)),)


def test_activating_a_starting_topology_changes_its_initial_status() -> None:
    assert after(STARTING, Deactivate()).prev_status is TopologyStatus.INACTIVE
    pending = replace(STARTING, prev_status=TopologyStatus.INACTIVE)
    assert after(pending, Activate()).prev_status is TopologyStatus.ACTIVE


def test_activate_and_deactivate_in_the_same_state_write_nothing() -> None:
    assert run(ACTIVE, Activate()) == ()
    assert run(INACTIVE, Deactivate()) == ()


def test_kill_waits_by_default_until_drained_and_at_most_the_message_timeout() -> None:
    assert run(ACTIVE, Kill())[1] == Schedule(Remove(), TIMEOUT_SECS, or_drained=True)
    killed = after(ACTIVE, Kill(0))
    assert killed.action_options == KillOptions(0)
    assert run(ACTIVE, Kill(0))[1] == Schedule(Remove(), 0)


def test_a_second_kill_restarts_the_wait() -> None:
    write, schedule = run(KILLED, Kill(60))
    assert isinstance(write, WriteBase)
    assert write.base.action_options == KillOptions(60)
    assert schedule == Schedule(Remove(), 60)


def test_kill_ends_a_pending_rebalance() -> None:
    commands = run(REBALANCING, Kill(4))
    assert commands[1] == Schedule(Remove(), 4)  # replaces the pending DoRebalance
    assert after(REBALANCING, Kill(4)).prev_status is None


def test_a_new_leader_schedules_pending_events() -> None:
    assert run(KILLED, LeadershipGained()) == (Schedule(Remove(), 5),)
    assert run(REBALANCING, LeadershipGained()) == (Schedule(DoRebalance(), 7),)


@pytest.mark.parametrize(
    ("base", "event"), [(KILLED, Remove()), (REBALANCING, DoRebalance())], ids=["kill", "rebalance"]
)
def test_a_drained_topology_ends_only_a_wait_without_a_time(
    base: StormBase, event: Remove | DoRebalance
) -> None:
    assert run(base, Drained()) == ()  # somebody asked for a time: it is waited in full
    assert base.action_options is not None
    open_end = replace(base, action_options=replace(base.action_options, wait_secs=None))
    assert run(open_end, Drained()) == (Schedule(event, 0),)
    assert run(open_end, LeadershipGained()) == (Schedule(event, TIMEOUT_SECS, or_drained=True),)
    # The workers are asked again by writing the same status anew.
    assert run(open_end, DrainReported()) == (WriteBase(open_end),)


def test_remove_removes() -> None:
    assert run(KILLED, Remove()) == (RemoveTopology(),)


def test_a_rebalance_remembers_the_status_and_its_options() -> None:
    for base in (ACTIVE, INACTIVE):
        write, schedule = run(base, Rebalance(OPTIONS))
        assert isinstance(write, WriteBase)
        assert write.base.prev_status is base.status
        assert write.base.action_options == OPTIONS
        assert schedule == Schedule(DoRebalance(), 7)


def test_a_rebalance_waits_by_default_until_drained_and_at_most_the_message_timeout() -> None:
    write, schedule = run(ACTIVE, Rebalance(RebalanceOptions()))
    assert schedule == Schedule(DoRebalance(), TIMEOUT_SECS, or_drained=True)
    assert isinstance(write, WriteBase)
    assert write.base.action_options == RebalanceOptions()


def test_do_rebalance_applies_the_numbers_and_restores_the_status() -> None:
    (command,) = run(REBALANCING, DoRebalance())
    assert isinstance(command, Assign)
    assert command.spread
    assert command.base == StormBase("wc", TopologyStatus.INACTIVE, 3, {"split": 4, "count": 2})


def test_a_topology_rebalanced_while_it_starts_still_takes_its_initial_status() -> None:
    rebalancing = after(STARTING, Rebalance(OPTIONS))
    assert after(rebalancing, DoRebalance()).status is TopologyStatus.ACTIVE
