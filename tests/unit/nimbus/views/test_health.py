"""The health of a topology, in a word."""

import pytest

from squall_common.cluster import worker_exits
from squall_common.cluster.slot_reports import (
    META_KEY,
    Condition,
    SlotReport,
    digest,
    parse,
    serialize,
)
from squall_common.cluster.values import Assignment, StormBase, SupervisorInfo, TopologyStatus
from squall_common.cluster.worker_exits import WorkerExit
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.views.health import Slots, health

ID = "words-1-1700000000"
ONE, TWO = Executor(1, 1), Executor(2, 2)
A, B = WorkerSlot("sup-a", 6700), WorkerSlot("sup-a", 6701)


NOW = 1_700_001_000


def supervisor(
    reports: dict[int, SlotReport] | None, ports=(6700, 6701), *, restarts=0, last_exit=0
) -> SupervisorInfo:
    meta = {} if reports is None else {META_KEY: serialize(reports)}
    if restarts:
        last = WorkerExit(last_exit, "host-a", 6700, "exited with status 1", "")
        meta[worker_exits.META_KEY] = worker_exits.serialize({ID: last})
        meta[worker_exits.COUNTS_KEY] = worker_exits.serialize_counts({ID: restarts})
    return SupervisorInfo(0, "host-a", "sup-a", meta=ports, scheduler_meta=meta)


def report(condition: Condition, *executors: Executor, topology_id: str = ID) -> SlotReport:
    return SlotReport(topology_id, digest(executors), condition)


def word(
    placement: dict[Executor, WorkerSlot],
    reports: dict[int, SlotReport] | None,
    *,
    status: TopologyStatus = TopologyStatus.ACTIVE,
    supervisors: dict[str, SupervisorInfo] | None = None,
    others: tuple[Assignment, ...] = (),
) -> str:
    base = StormBase("words", status, 2, {"count": 2})
    mine = Assignment("", executor_slot=placement)
    found = {"sup-a": supervisor(reports)} if supervisors is None else supervisors
    return health(ID, base, mine.slots(), Slots.of(found, [mine, *others], NOW))


def test_all_is_well_when_every_slot_runs_what_is_assigned_to_it() -> None:
    running = {6700: report(Condition.RUNNING, ONE), 6701: report(Condition.RUNNING, TWO)}
    assert word({ONE: A, TWO: B}, running) == "ok"


@pytest.mark.parametrize("condition", [one for one in Condition if one is not Condition.RUNNING])
def test_one_slot_in_trouble_sets_the_topologys_health(condition: Condition) -> None:
    reports = {6700: report(Condition.RUNNING, ONE), 6701: report(condition, TWO)}
    assert word({ONE: A, TWO: B}, reports) == condition.value


def test_conditions_that_need_a_person_come_first() -> None:
    reports = {6700: report(Condition.CRASH_LOOP, ONE), 6701: report(Condition.STARTING, TWO)}
    assert word({ONE: A, TWO: B}, reports) == "crash loop"


@pytest.mark.parametrize(
    ("restarts", "last_exit", "says"),
    [(2, NOW - 60, "crash loop"), (2, NOW - 180, "starting"), (1, NOW - 1, "starting")],
    ids=["crashed just now", "calm since", "crashed once"],
)
def test_a_crash_loop_stays_one_while_it_moves_to_another_slot(
    restarts: int, last_exit: int, says: str
) -> None:
    fresh = {6700: report(Condition.STARTING, ONE, TWO)}
    supervisors = {"sup-a": supervisor(fresh, restarts=restarts, last_exit=last_exit)}
    assert word({ONE: A, TWO: A}, None, supervisors=supervisors) == says
    assert word({}, None, supervisors=supervisors) == says  # between two slots
    running = {6700: report(Condition.RUNNING, ONE, TWO)}
    supervisors = {"sup-a": supervisor(running, restarts=restarts, last_exit=last_exit)}
    assert word({ONE: A, TWO: A}, None, supervisors=supervisors) == "ok"


@pytest.mark.parametrize(
    "stale",
    [
        {},
        {6700: report(Condition.RUNNING, ONE)},
        {6700: report(Condition.RUNNING, ONE, TWO, topology_id="other-2-17")},
    ],
    ids=["no report yet", "of other executors", "of another topology"],
)
def test_a_report_about_something_else_does_not_count(stale: dict[int, SlotReport]) -> None:
    assert word({ONE: A, TWO: A}, stale) == "starting"


def test_without_a_slot_it_depends_on_whether_one_is_free() -> None:
    assert word({}, {}) == "starting"
    other = Assignment("", executor_slot={Executor(7, 7): A, Executor(8, 8): B})
    assert word({}, {}, others=(other,)) == "no free slot"
    assert word({}, None, supervisors={}) == "no supervisor"


def test_a_topology_without_all_its_slots_is_not_ok() -> None:
    running = {6700: report(Condition.RUNNING, ONE)}
    taken = Assignment("", executor_slot={Executor(7, 7): B})
    assert word({ONE: A}, running, others=(taken,)) == "no free slot"


def test_a_supervisor_that_is_away_is_named() -> None:
    other = SupervisorInfo(0, "host-b", "sup-b", meta=(6700,))
    assert word({ONE: A, TWO: A}, None, supervisors={"sup-b": other}) == "supervisor away"


def test_an_older_supervisor_without_reports_counts_as_ok() -> None:
    assert word({ONE: A, TWO: A}, None) == "ok"


def test_a_killed_topology_has_no_health() -> None:
    assert word({}, {}, status=TopologyStatus.KILLED) == ""


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"6700": 1}', '{"x": ["a", 1, "running"]}', '{"1": ["a", null, "running"]}'],
)
def test_unreadable_reports_count_as_missing(text: str) -> None:
    assert parse(text) is None


def test_an_unknown_condition_of_a_later_version_is_ignored() -> None:
    assert parse('{"1": ["a", 1, "running"], "2": ["b", 1, "dancing"]}') == {
        1: SlotReport("a", 1, Condition.RUNNING)
    }
