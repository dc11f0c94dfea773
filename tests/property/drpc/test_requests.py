"""Whatever callers, workers and the clock do, each request ends exactly once and leaves nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall_drpc.requests import Bounds, BusyError, Failure, Outcome, Reason, Requests

FUNCTIONS = ("f", "g")
BOUNDS = Bounds(waiting=3, requests=5, peer_percent=70)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(FUNCTIONS), st.sampled_from(["p1", "p2"])),
        st.tuples(
            st.just("take"),
            st.sampled_from(FUNCTIONS),
            st.integers(0, 3),
            st.sampled_from([None, "t1", "t2"]),
            st.booleans(),
        ),
        st.tuples(st.just("settle"), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("withdraw"), st.integers(0, 30)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 4.0, 11.0])),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_request_ends_once_and_leaves_nothing(steps: list[tuple[object, ...]]) -> None:
    requests = Requests("s", timeout_secs=10, taker_timeout_secs=5, bounds=BOUNDS)
    now = 0.0
    ends: dict[str, list[Outcome]] = {}
    withdrawn: set[str] = set()
    ids: list[str] = []
    have = {"t1": 0, "t2": 0}
    received: dict[str, set[str]] = {"t1": set(), "t2": set()}

    for step in steps:
        match step:
            case ("add", str(function), str(peer)):
                outcomes: list[Outcome] = []
                try:
                    request = requests.add(function, "args", now, outcomes.append, peer)
                except BusyError:
                    continue
                ids.append(request.id)
                ends[request.id] = outcomes
            case ("take", str(function), int(most), taker, bool(lost)):
                name = taker if isinstance(taker, str) else None
                batch = requests.take(function, most, now, name, have[name] if name else 0)
                assert all(not ends[r.id] and r.id not in withdrawn for r in batch.requests)
                if name is not None and not lost:
                    if batch.number != have[name]:
                        # Nothing is given twice to a worker that says what it has.
                        assert not received[name] & {r.id for r in batch.requests}
                    have[name] = batch.number
                    received[name] |= {r.id for r in batch.requests}
            case ("settle", int(number), bool(well)) if ids:
                request_id = ids[number % len(ids)]
                open_before = not ends[request_id] and request_id not in withdrawn
                outcome = "r" if well else Failure(Reason.FAILED_REQUEST, "no")
                assert requests.settle(request_id, outcome) is open_before
            case ("withdraw", int(number)) if ids:
                request_id = ids[number % len(ids)]
                requests.withdraw(request_id)
                if not ends[request_id]:
                    withdrawn.add(request_id)
            case ("wait", float(secs)):
                now += secs
                requests.expire(now)
            case _:
                continue
        requests.validate()
        assert len(requests) <= 5
        assert all(len(outcomes) <= 1 for outcomes in ends.values())

    requests.expire(now + 11)
    assert len(requests) == 0
    assert requests.waiting_functions == []
    assert requests.next_expiry() is None
    for request_id, outcomes in ends.items():
        assert len(outcomes) == (0 if request_id in withdrawn else 1)
