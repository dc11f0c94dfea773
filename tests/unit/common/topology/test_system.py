"""The compiled topology: Storm's system streams, the numbering of tasks, the split in executors."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import InvalidTopologyError
from squall_common.topology.model import (
    Component,
    ComponentKind,
    Executor,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
    StreamInfo,
    Topology,
)
from squall_common.topology.prepared import prepare
from squall_common.topology.system import (
    TASKS_MAX,
    component_parallelism,
    component_tasks,
    compute_executors,
    consumer_ids,
    num_ackers,
    system_topology,
    validate_topology,
)

OBJECT = PythonObject("m:C", b"")
SHUFFLE = Grouping(GroupingKind.SHUFFLE)
DIRECT = Grouping(GroupingKind.DIRECT)
BY_ID = Grouping(GroupingKind.FIELDS, fields=("id",))


def component(kind, component_id, inputs=(), **more):
    more.setdefault("streams", {"default": StreamInfo(("word",))})
    return Component(
        id=component_id,
        kind=kind,
        object=OBJECT,
        inputs={GlobalStreamId(source): SHUFFLE for source in inputs},
        **more,
    )


def topology(*components):
    return Topology({c.id: c for c in components})


def spout(component_id="s", **more):
    return component(ComponentKind.SPOUT, component_id, **more)


def bolt(component_id="b", inputs=("s",), **more):
    return component(ComponentKind.BOLT, component_id, inputs, **more)


def test_the_acker_is_wired_as_storms():
    """StormCommon.addAcker: inputs fields-grouped by id, answers on direct streams."""
    compiled = system_topology(
        topology(spout(), bolt()), TopologyOptions.read({"topology.workers": 2})
    ).components
    acker = compiled["__acker"]
    assert acker.inputs == {
        GlobalStreamId("s", "__ack_init"): BY_ID,
        GlobalStreamId("b", "__ack_ack"): BY_ID,
        GlobalStreamId("b", "__ack_fail"): BY_ID,
        GlobalStreamId("b", "__ack_reset_timeout"): BY_ID,
    }
    answer = StreamInfo(("id", "time-delta-ms"), direct=True)
    for stream in ("__ack_ack", "__ack_fail", "__ack_reset_timeout"):
        assert acker.streams[stream] == answer
        assert compiled["s"].inputs[GlobalStreamId("__acker", stream)] == DIRECT
    assert compiled["s"].streams["__ack_init"].fields == ("id", "init-val", "spout-task")
    assert compiled["b"].streams["__ack_ack"].fields == ("id", "ack-val")
    assert compiled["b"].streams["__ack_fail"].fields == ("id",)
    assert compiled["b"].streams["__ack_reset_timeout"].fields == ("id",)
    assert acker.parallelism == 2


def test_every_component_has_the_system_and_the_metrics_stream():
    compiled = system_topology(topology(spout(), bolt()), TopologyOptions.read({})).components
    assert set(compiled) == {"s", "b", "__acker", "__system"}
    for part in compiled.values():
        assert part.streams["__system"].fields == ("event",)
        assert part.streams["__metrics"].fields == ("task-info", "data-points")
    assert compiled["__system"].streams["__tick"].fields == ("rate_secs",)


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({}, 1),
        ({"topology.workers": 3}, 3),
        ({"topology.workers": 3, "topology.acker.executors": None}, 3),
        ({"topology.workers": 3, "topology.acker.executors": 2}, 2),
        ({"topology.workers": 3, "topology.acker.executors": 0}, 0),
    ],
)
def test_one_acker_a_worker_unless_the_conf_says_otherwise(conf, expected):
    assert num_ackers(TopologyOptions.read(conf)) == expected
    tasks = component_tasks(topology(spout(), bolt()), TopologyOptions.read(conf))
    assert sum(1 for c in tasks.values() if c == "__acker") == expected


def test_no_ackers_no_acking_streams():
    compiled = system_topology(
        topology(spout(), bolt()), TopologyOptions.read({"topology.acker.executors": 0})
    )
    assert "__acker" not in compiled.components
    assert "__ack_init" not in compiled.components["s"].streams
    assert compiled.components["s"].inputs == {}


def test_event_loggers_get_every_component_by_component():
    conf = {"topology.eventlogger.executors": 2}
    compiled = system_topology(topology(spout(), bolt()), TopologyOptions.read(conf)).components
    logger = compiled["__eventlogger"]
    assert set(logger.inputs) == {
        GlobalStreamId("s", "__eventlog"),
        GlobalStreamId("b", "__eventlog"),
    }
    assert compiled["s"].streams["__eventlog"].fields == ("component", "messageId", "ts", "values")
    assert "__eventlog" not in compiled["__acker"].streams
    assert (
        component_parallelism(topology(spout(), bolt()), TopologyOptions.read(conf))[
            "__eventlogger"
        ]
        == 2
    )


def test_compiling_twice_changes_nothing():
    conf = {"topology.workers": 2}
    once = system_topology(topology(spout(), bolt()), TopologyOptions.read(conf))
    assert system_topology(once, TopologyOptions.read(conf)) is once
    assert component_tasks(once, TopologyOptions.read(conf)) == component_tasks(
        topology(spout(), bolt()), TopologyOptions.read(conf)
    )


def test_tasks_are_numbered_from_one_by_sorted_component():
    parts = topology(
        spout("z", parallelism=2),
        bolt("a", inputs=("z",), parallelism=2, conf={"topology.tasks": 3}),
    )
    assert component_tasks(parts, TopologyOptions()) == {
        1: "__acker",
        2: "a",
        3: "a",
        4: "a",
        5: "z",
        6: "z",
    }
    assert component_parallelism(parts, TopologyOptions()) == {"__acker": 1, "a": 2, "z": 2}


@pytest.mark.parametrize(
    ("own", "conf", "tasks", "executors"),
    [
        ({}, {}, 4, 4),
        ({}, {"topology.tasks": 2}, 2, 2),
        ({"topology.tasks": 9}, {"topology.tasks": 2}, 9, 4),
        ({}, {"topology.max.task.parallelism": 3}, 3, 3),
        ({"topology.max.task.parallelism": 1}, {"topology.max.task.parallelism": 3}, 1, 1),
        ({"topology.tasks": 2}, {}, 2, 2),
    ],
)
def test_tasks_and_executors_follow_conf_and_limits(own, conf, tasks, executors):
    parts = topology(spout(), bolt(parallelism=4, conf=own))
    counted = list(component_tasks(parts, TopologyOptions.read(conf)).values())
    assert counted.count("b") == tasks
    assert component_parallelism(parts, TopologyOptions.read(conf))["b"] == executors
    assert counted.count("__acker") == 1


def test_the_ackers_are_as_many_as_the_conf_says_whatever_limits_tasks():
    conf = {"topology.acker.executors": 5, "topology.max.task.parallelism": 2, "topology.tasks": 1}
    assert (
        list(component_tasks(topology(spout()), TopologyOptions.read(conf)).values()).count(
            "__acker"
        )
        == 5
    )


def test_executors_split_tasks_evenly_larger_first():
    tasks = {1: "a", 2: "a", 3: "a", 4: "a", 5: "a", 6: "b"}
    assert compute_executors(tasks, {"a": 2, "b": 4}) == [
        Executor(1, 3),
        Executor(4, 5),
        Executor(6, 6),
    ]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 20)), min_size=1, max_size=6))
def test_executors_cover_each_task_once_and_never_mix_components(sizes):
    tasks, wanted, number = {}, {}, 1
    for index, (count, executors) in enumerate(sizes):
        wanted[f"c{index}"] = executors
        for _ in range(count):
            tasks[number] = f"c{index}"
            number += 1
    found = compute_executors(tasks, wanted)
    assert [task for executor in found for task in executor.tasks] == list(tasks)
    for executor in found:
        assert len({tasks[task] for task in executor.tasks}) == 1
    for index, (count, executors) in enumerate(sizes):
        mine = [e for e in found if tasks[e.task_start] == f"c{index}"]
        assert len(mine) == min(max(executors, 1), count)
        lengths = [len(e.tasks) for e in mine]
        assert max(lengths) - min(lengths) <= 1


def refusal(*components, options=None):
    with pytest.raises(InvalidTopologyError) as caught:
        validate_topology(topology(*components), options)
    return caught.value.problems


def test_a_topology_of_two_billion_tasks_is_refused_without_building_a_table():
    assert f"the limit is {TASKS_MAX}" in refusal(spout(parallelism=2**31 - 1))[0]
    assert (
        f"the limit is {TASKS_MAX}"
        in refusal(spout(), options=TopologyOptions(topology_tasks=10**9))[0]
    )


def test_of_a_bolt_whose_state_is_stored_each_key_has_a_task():
    stateful = bolt("count", conf={"topology.state.max.parallelism": 128}, parallelism=200)
    plain = bolt("print")
    stored = TopologyOptions(topology_state_provider="store", topology_state_url="/state")
    assert refusal(spout(), stateful, plain, options=stored) == (
        "bolt 'count': its state is stored, but it subscribes to 's' by a grouping (shuffle) that "
        "does not give each key a task of its own; subscribe by the fields of the key, or globally",
        "bolt 'count': it has 200 tasks and only 128 key groups; raise "
        "topology.state.max.parallelism of the bolt",
    )
    redis = TopologyOptions(topology_state_provider="redis")
    assert len(refusal(spout(), stateful, options=redis)) == 2
    unset = TopologyOptions(topology_state_provider="store")
    assert len(refusal(spout(), stateful, options=unset)) == 2, "its URL may be the cluster's"
    validate_topology(topology(spout(), plain), unset)
    validate_topology(topology(spout(), stateful), TopologyOptions())


@pytest.mark.parametrize("tasks", [0, -1, "many", 1.5, True])
def test_tasks_must_be_a_positive_whole_number(tasks):
    (problem,) = refusal(spout(conf={"topology.tasks": tasks}))
    assert "topology.tasks" in problem


def test_a_subscription_to_the_system_is_refused():
    (problem,) = refusal(spout(), bolt(inputs=("__system",)))
    assert problem == "bolt 'b': subscribes to '__system', which is the system's"


def test_a_spout_with_inputs_is_refused():
    first = component(ComponentKind.SPOUT, "s", inputs=("t",))
    assert refusal(first, spout("t")) == ("spout 's': a spout has no inputs",)


def test_zero_components_are_not_a_topology():
    assert refusal() == ("the topology has no spout: nothing would ever flow",)


def test_every_metrics_consumer_with_a_hint_gets_an_id_of_its_own_in_linear_time():
    def ids(*paths):
        register = [{"class": path, "parallelism.hint": 1} for path in paths]
        conf = normalize_topology_conf(
            {"topology.metrics.consumer.register": register}, default_conf()
        )
        return consumer_ids(TopologyOptions.read(conf))

    assert ids("m:A", "m:B", "m:A") == ["__metrics_m:A", "__metrics_m:B", "__metrics_m:A#2"]
    assert ids("a#b", "a#b") == ["__metrics_a#b", "__metrics_a#b#2"]
    began = time.process_time()
    assert len(set(ids(*["m:A"] * 20_000))) == 20_000
    assert time.process_time() - began < 5  # a minute when each was compared with those before it


def test_metrics_consumers_do_not_multiply_the_streams_of_a_topology_without_end():
    def options(count):
        register = [{"class": "m:A", "parallelism.hint": 1}] * count
        conf = {"topology.metrics.consumer.register": register}
        return TopologyOptions.read(normalize_topology_conf(conf, default_conf()))

    validate_topology(topology(spout()), options(100))
    assert refusal(spout(), options=options(101)) == (
        "topology.metrics.consumer.register has 101 consumers with parallelism.hint; "
        "the limit is 100",
    )


def test_a_hint_that_was_ignored_when_a_topology_was_submitted_adds_no_tasks():
    """Its workers run on with the numbers that they know."""
    entry = {"class": "m:A", "parallelism.hint": 2}
    stored = {**default_conf(), "topology.metrics.consumer.register": [entry]}
    assert "__metrics_m:A" not in prepare(topology(spout()), stored).task_to_component.values()
    again = normalize_topology_conf({}, stored)
    numbered = prepare(topology(spout()), again).task_to_component
    assert list(numbered.values()).count("__metrics_m:A") == 2


def test_the_systems_tasks_count():
    """One acker for each worker makes more tasks than the components have."""
    assert refusal(spout(), options=TopologyOptions(topology_workers=TASKS_MAX)) == (
        f"the topology has 1 tasks and {TASKS_MAX} of the system "
        f"(ackers, event loggers, consumers); the limit is {TASKS_MAX}",
    )
    with pytest.raises(InvalidTopologyError, match="the limit is"):
        component_tasks(topology(spout()), TopologyOptions(topology_acker_executors=2**31))


def test_of_many_faults_a_hundred_are_listed_and_ten_get_a_suggestion():
    bolts = [bolt(f"bolt-{n}", inputs=(f"bolt-{n}x",)) for n in range(300)]
    problems = refusal(spout(), *bolts)
    assert len(problems) == 101
    assert problems[-1] == "and 200 more"
    assert sum("did you mean" in problem for problem in problems) == 10


def test_a_message_about_faults_is_short_whatever_they_quote():
    long = "x" * 100_000
    wide = StreamInfo(tuple(f"field-{n}" for n in range(5_000)))
    by_none = {GlobalStreamId("s"): Grouping(GroupingKind.FIELDS, fields=("none", long))}
    problems = refusal(
        spout(streams={"default": wide, long: wide}, conf={"a": {1, 2}, long: long}),
        bolt("b", inputs=(long,)),
        Component(id="c", kind=ComponentKind.BOLT, object=OBJECT, inputs=by_none),
        bolt(long),
    )
    assert len(problems) == 5
    assert all(len(problem) <= 1_000 for problem in problems)


def test_the_cost_of_a_check_grows_with_the_topology_and_no_faster():
    """What a frame of 1 MiB can hold of each: fields, streams, wrong sources, dead letters."""

    def work(size: int) -> float:
        fields = tuple(f"field-{n}" for n in range(size))
        by_field = {GlobalStreamId("s"): Grouping(GroupingKind.FIELDS, fields=fields[-1:])}
        spouts = [spout(f"s-{n}") for n in range(size // 4)]
        parts = [
            spout(streams={"default": StreamInfo(fields)}),
            *(
                Component(id=f"b-{n}", kind=ComponentKind.BOLT, object=OBJECT, inputs=by_field)
                for n in range(size // 4)
            ),
            *(bolt(f"w-{n}", inputs=(f"no such {n}",)) for n in range(size // 4)),
        ]
        began = time.thread_time()
        refusal(*parts, *spouts)
        system_topology(topology(*parts, *spouts), TopologyOptions())
        return time.thread_time() - began

    small, large = work(1_000), work(8_000)
    assert large < 30 * small + 0.5  # eight times; 64 where something is quadratic
