"""Any history of events keeps a topology's StormBase sound, and none is a dead end."""

from hypothesis import given
from hypothesis import strategies as st

from squall_common.cluster.values import RebalanceOptions, StormBase, TopologyStatus
from squall_nimbus.topologies.lifecycle import (
    Activate,
    Assign,
    Deactivate,
    DoRebalance,
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

_waits = st.none() | st.integers(0, 100)
_options = st.builds(
    RebalanceOptions,
    wait_secs=_waits,
    num_workers=st.none() | st.integers(1, 5),
    num_executors=st.dictionaries(st.sampled_from(["split", "count"]), st.integers(1, 4)),
)
_events = st.one_of(
    st.sampled_from([Activate(), Deactivate(), DoRebalance(), Remove()]),
    st.sampled_from([LeadershipGained(), MonitorDue()]),
    st.builds(Kill, _waits),
    st.builds(Rebalance, _options),
)


@given(st.sampled_from([TopologyStatus.ACTIVE, TopologyStatus.INACTIVE]), st.lists(_events))
def test_every_history_is_sound(initial, events) -> None:
    base = StormBase("wc", TopologyStatus.INACTIVE, 1, {"split": 1}, prev_status=initial)
    scheduled = None
    for event in events:
        before = base
        try:
            commands = decide(base, event, message_timeout_secs=30)
        except NoTransitionError:
            assert base == before
            continue
        for command in commands:
            if isinstance(command, WriteBase | Assign):
                base = command.base
                validate(base)
            elif isinstance(command, Schedule):
                scheduled = command
            else:
                assert isinstance(command, RemoveTopology)
                assert state_of(base) is State.KILLED
                return
        # What waits has its end scheduled, and a new leader would schedule the same again.
        if state_of(base) in {State.KILLED, State.REBALANCING}:
            assert scheduled is not None
            timeout = 30 if scheduled.or_drained else 99  # a time that was asked for stays
            again = decide(base, LeadershipGained(), message_timeout_secs=timeout)
            assert again == (scheduled,)
    # Whatever happened, it can be killed and removed.
    killed = decide(base, Kill(0), message_timeout_secs=30)[0]
    assert isinstance(killed, WriteBase)
    assert decide(killed.base, Remove(), message_timeout_secs=30) == (RemoveTopology(),)
