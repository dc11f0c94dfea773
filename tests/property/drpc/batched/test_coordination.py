"""Any interleaving of reports, tuples, failures and timeouts ends each request exactly once."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from squall_drpc.batched.coordination import Coordination, Verdict

TIMEOUT = 30.0


class Task:
    """A task of a CoordinatedBolt as the shell drives it, with what came of each request."""

    def __init__(self, reports: int, sources: list[int], needs_id: bool) -> None:
        self.book = Coordination(
            sources=sources, reports=reports, needs_id=needs_id, timeout_secs=TIMEOUT
        )
        self.ends: Counter[Any] = Counter()
        self.finished: set[Any] = set()
        self.taken: Counter[Any] = Counter()
        self.let_go: Counter[Any] = Counter()
        self.now = 0.0

    def take(self, event: tuple[Any, ...]) -> None:
        match event:
            case ("tuple", request, source):
                if self.book.arrived(request, self.now) is Verdict.WAIT:
                    self._then(request, self.book.settled(request, source, self.now))
            case ("report", request, source, count):
                held = ("report", request)
                self._hold(
                    request, held, self.book.reported(request, source, count, self.now, held)
                )
            case ("id", request, home):
                held = ("id", request)
                self._hold(request, held, self.book.id_came(request, home, self.now, held))
            case ("fail", request):
                if self.book.arrived(request, self.now) is Verdict.WAIT:
                    ended = self.book.failed(request, self.now)
                    assert ended is not None
                    self._over(ended)
            case ("wait", secs):
                self.now += secs
                for ended in self.book.expire(self.now):
                    self._over(ended)
        self.book.validate()

    def _hold(self, request: Any, held: Any, verdict: Verdict) -> None:
        if verdict is not Verdict.LATE:
            self.taken[held] += 1
        self._then(request, verdict)

    def _then(self, request: Any, verdict: Verdict) -> None:
        if verdict is Verdict.COMPLETE:
            done = self.book.finish(request)
            assert done is not None
            self.ends[request] += 1
            self.finished.add(request)
            self.let_go.update(done.held)

    def _over(self, ended: Any) -> None:
        self.ends[ended.id] += 1
        self.let_go.update(ended.held)


@st.composite
def _runs(draw: st.DrawFn) -> tuple[int, list[int], bool, dict[int, bool], list[Any]]:
    """What one task is sent for some requests, in any order; whether each request is whole."""
    sources = draw(st.sampled_from([[], [1], [1, 2], [1, 2, 3]]))
    reporters = sources[: draw(st.integers(1, 3))]
    needs_id = draw(st.booleans()) and bool(sources)
    events: list[Any] = []
    whole: dict[int, bool] = {}
    for request in range(draw(st.integers(1, 4))):
        mine: list[Any] = []
        if not sources:
            mine.append(("tuple", request, 9))
        for source in reporters:
            count = draw(st.integers(0, 3))
            mine += [("tuple", request, source)] * count
            mine.append(("report", request, source, count))
        if needs_id:
            mine.append(("id", request, draw(st.booleans())))
        lost = draw(st.booleans())
        whole[request] = not lost
        if lost:
            del mine[draw(st.integers(0, len(mine) - 1))]
        tuples = [i for i, event in enumerate(mine) if event[0] == "tuple"]
        if tuples and draw(st.integers(0, 3)) == 0:
            mine[draw(st.sampled_from(tuples))] = ("fail", request)
            whole[request] = False
        elif lost and mine and draw(st.booleans()):
            # A report that comes twice does not stand for the one that is missing.
            reports = [event for event in mine if event[0] == "report"]
            mine += reports[:1]
        events += mine
    for _ in range(draw(st.integers(0, 1))):
        events.append(("wait", draw(st.sampled_from([1.0, 14.0, 29.0, 31.0]))))
    random.Random(draw(st.integers(0, 2**32))).shuffle(events)
    return len(reporters), sources, needs_id, whole, events


@given(_runs())
def test_each_request_ends_exactly_once(
    run: tuple[int, list[int], bool, dict[int, bool], list[Any]],
) -> None:
    reports, sources, needs_id, whole, events = run
    task = Task(reports, sources, needs_id)
    seen = set()
    for event in events:
        task.take(event)
        if event[0] != "wait":
            seen.add(event[1])
        assert all(count == 1 for count in task.ends.values())
    waited = any(event[0] == "wait" for event in events)
    for request, is_whole in whole.items():
        if is_whole and not waited:
            assert request in task.finished, "all of it came, in whatever order"
        if not is_whole and ("fail", request) not in events:
            assert request not in task.finished, "something is missing"
    for _ in range(3):
        task.take(("wait", TIMEOUT))
    assert task.ends == Counter(seen)
    assert len(task.book) == task.book.remembered == 0
    assert task.taken == task.let_go, "what was held is let go, once"


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 1)), min_size=1, max_size=3))
def test_a_loss_and_a_duplicate_do_not_cancel_out(
    changes: list[tuple[int, int]],
) -> None:
    counts = {1: 2, 2: 2, 3: 2}
    came = dict(counts)
    for source, change in changes:
        came[source] += change
    book = Coordination(sources=[1, 2, 3], reports=3, timeout_secs=TIMEOUT)
    verdicts = []
    for source, count in counts.items():
        verdicts += [book.settled("r", source, 0) for _ in range(came[source])]
        verdicts.append(book.reported("r", source, count, 0))
    assert (Verdict.COMPLETE in verdicts) is (came == counts)
