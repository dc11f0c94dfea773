"""What the commands ask of Nimbus, and what people and programs see of the answers."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_nimbus import FakeNimbus

from squall_cli.main import run
from squall_cli.programs.history_report import ReportOrder, run_report
from squall_common.config.options.typed import ClientOptions
from squall_thrift import storm
from squall_thrift.client import ApplicationErrorType, ThriftApplicationError


def asked(nimbus: FakeNimbus) -> list[tuple[str, tuple[Any, ...]]]:
    """What was asked beside the way to the leader."""
    return [call for call in nimbus.calls if call[0] != "getLeader"]


def summary(**changes: Any) -> storm.TopologySummary:
    values: dict[str, Any] = {
        "id": "wordcount-1-1700000000",
        "name": "wordcount",
        "num_tasks": 10,
        "num_executors": 9,
        "num_workers": 2,
        "uptime_secs": 95,
        "status": "ACTIVE",
        "owner": "ann",
        "health": "ok",
    }
    return storm.TopologySummary(**{**values, **changes})


def test_list_is_a_table(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getTopologySummaries"] = [
        summary(),
        summary(name="alarms", id="a-2-17", owner=None, health="crash loop"),
        summary(name="old", id="old-3-17", status="KILLED", health=None),
    ]
    assert command("list") == (
        0,
        "NAME       STATUS  HEALTH      EMITTED/S  ACKED/S  LATENCY  FAILED  RESTARTS  "
        "TASKS  EXECUTORS  WORKERS  UPTIME  ID                      OWNER\n"
        "alarms     ACTIVE  crash loop                                              0  "
        "   10          9        2  1m 35s  a-2-17                       \n"
        "old        KILLED                                                          0  "
        "   10          9        2  1m 35s  old-3-17                ann  \n"
        "wordcount  ACTIVE  ok                                                      0  "
        "   10          9        2  1m 35s  wordcount-1-1700000000  ann  \n"
        "\n"
        "PROBLEM  COMPONENT  AGO  REASON    \n"
        "alarms                   crash loop\n",
        "",
    )


def page(*, failed: int = 0) -> storm.TopologyPageInfo:
    """A topology whose oldest worker has run for 200 s."""
    workers = [storm.WorkerSummary(uptime_secs=secs) for secs in (50, 200)]
    stats = storm.TopologyStats(
        window_to_emitted={"600": 3000, ":all-time": 9999},
        window_to_acked={"600": 1000},
        window_to_failed={"600": failed},
        window_to_complete_latencies_ms={"600": 12.34},
    )
    return storm.TopologyPageInfo(id="wordcount-1-1", topology_stats=stats, workers=workers)


def test_list_shows_rates_failures_restarts_and_the_reason(
    nimbus: FakeNimbus, command: Any
) -> None:
    old = storm.ErrorInfo(error="OSError: old", error_time_secs=17)
    new = storm.ErrorInfo(
        error="Traceback (most recent call last):\n  x\nValueError: user u13\n",
        error_time_secs=int(time.time()) - 5,
    )
    nimbus.answers["getTopologySummaries"] = [summary(restarts=2)]
    nimbus.answers["getTopologyPageInfo"] = page(failed=7)
    nimbus.answers["getTopologyInfoWithOpts"] = storm.TopologyInfo(
        id="wordcount-1-1", name="wordcount", uptime_secs=1, executors=[], status="ACTIVE",
        errors={"split": [old], "count": [new]},
    )  # fmt: skip
    status, out, err = command("list")
    assert (status, err) == (0, "")
    heading, row, _, _, problem = out.splitlines()
    assert heading.split()[3:8] == ["EMITTED/S", "ACKED/S", "LATENCY", "FAILED", "RESTARTS"]
    assert row.split()[3:9] == ["15", "5", "12", "ms", "7", "2"]
    name, component, ago, reason = re.split(" {2,}", problem.strip())
    assert (name, component, reason) == ("wordcount", "count", "ValueError: user u13")
    assert int(ago.removesuffix("s")) >= 5
    (listed,) = json.loads(command("list", "--json")[1])
    assert listed["activity"] == {
        "secs": 200, "emitted_per_sec": 15.0, "acked_per_sec": 5.0, "failed": 7,
        "complete_ms": 12.3,
    }  # fmt: skip
    assert listed["restarts"] == 2
    assert listed["problem"]["component"] == "count"


def test_list_explains_missing_slots_without_any_error(nimbus: FakeNimbus, command: Any) -> None:
    why = "0 of 3 executors have a slot: not enough slots"
    nimbus.answers["getTopologySummaries"] = [
        summary(health="no free slot", num_workers=0, sched_status=why)
    ]
    nimbus.answers["getTopologyPageInfo"] = page()
    nimbus.answers["getTopologyInfoWithOpts"] = storm.TopologyInfo(
        id="w-1-1", name="w", uptime_secs=1, executors=[], status="ACTIVE", errors={}
    )
    (listed,) = json.loads(command("list", "--json")[1])
    assert listed["problem"] == {"reason": why, "component": None, "time_secs": None}


def test_a_healthy_topology_has_no_problem(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getTopologySummaries"] = [summary(restarts=0)]
    nimbus.answers["getTopologyPageInfo"] = page()
    assert "PROBLEM" not in command("list")[1]
    assert not nimbus.called("getTopologyInfoWithOpts")


def test_list_shows_the_last_unexpected_exit_of_a_worker(nimbus: FakeNimbus, command: Any) -> None:
    ended = storm.WorkerExit(
        time_secs=int(time.time()) - 95,
        host="node-1",
        port=6700,
        reason="killed by SIGSEGV",
        last_line="about to die of \x1b[7m",
    )
    nimbus.answers["getTopologySummaries"] = [
        summary(),
        summary(name="alarms", id="a-2-17", health="crash loop", last_exit=ended),
    ]
    status, out, err = command("list")
    assert (status, err) == (0, "")
    assert out.splitlines()[6:8] == [
        "",
        "UNEXPECTED EXIT  AGO     WORKER       REASON             LAST LINE              ",
    ]
    name, ago, *rest = re.split(" {2,}", out.splitlines()[8])
    assert name == "alarms"
    assert re.fullmatch("1m 3[5-9]s", ago)
    assert rest == ["node-1:6700", "killed by SIGSEGV", "about to die of \\x1b[7m"]
    (alarms, wordcount) = json.loads(command("list", "--json")[1])
    assert wordcount["last_exit"] is None
    assert alarms["last_exit"] == {
        "time_secs": ended.time_secs,
        "worker": "node-1:6700",
        "reason": "killed by SIGSEGV",
        "last_line": "about to die of \x1b[7m",
    }


def test_list_for_programs(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getTopologySummaries"] = [summary()]
    status, out, err = command("list", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == [
        {
            "name": "wordcount",
            "status": "ACTIVE",
            "health": "ok",
            "finished": None,
            "activity": None,
            "restarts": None,
            "problem": None,
            "last_exit": None,
            "tasks": 10,
            "executors": 9,
            "workers": 2,
            "uptime_secs": 95,
            "id": "wordcount-1-1700000000",
            "owner": "ann",
        }
    ]


def test_an_empty_list_says_so_on_stderr(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getTopologySummaries"] = []
    assert command("list") == (0, "", "No topologies are running.\n")
    assert command("list", "--json") == (0, "[]\n", "")


def test_names_are_shown_as_they_are(nimbus: FakeNimbus, command: Any) -> None:
    """Nothing in a name is taken for markup or reaches the terminal as a control character."""
    nimbus.answers["getTopologySummaries"] = [summary(name="[red]x[/red]:smile:\x1b[2J")]
    _, out, _ = command("list")
    assert "[red]x[/red]:smile:\\x1b[2J" in out


@pytest.mark.parametrize(
    ("options", "wait_secs", "when"),
    [
        ([], None, "when nothing is in flight"),
        (["-w", "0"], 0, "after 0 s"),
        (["--wait-time-secs", "7"], 7, "after 7 s"),
    ],
)
def test_kill(
    nimbus: FakeNimbus, command: Any, options: list[str], wait_secs: int | None, when: str
) -> None:
    nimbus.answers["killTopologyWithOpts"] = None
    assert command("kill", "wordcount", *options) == (
        0,
        "",
        f"Killed wordcount: its spouts have stopped, and it is removed {when}.\n",
    )
    assert asked(nimbus) == [
        ("killTopologyWithOpts", ("wordcount", storm.KillOptions(wait_secs=wait_secs)))
    ]


def test_kill_can_wait_until_the_topology_is_gone(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["killTopologyWithOpts"] = None
    looks = [summary(), summary(status="KILLED"), storm.NotAliveException(msg="it is gone")]

    def look(_name: str) -> storm.TopologySummary:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    nimbus.answers["getTopologySummaryByName"] = look
    status, out, err = command("kill", "wordcount", "--wait", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out).pop("gone_after_secs") >= 0
    assert not looks


def test_kill_does_not_wait_for_another_topology_of_that_name(
    nimbus: FakeNimbus, command: Any
) -> None:
    nimbus.answers["killTopologyWithOpts"] = None
    looks = [summary(), summary(id="wordcount-2-1700000009")]
    nimbus.answers["getTopologySummaryByName"] = lambda _name: looks.pop(0)
    status, _, err = command("kill", "wordcount", "--wait")
    assert status == 0
    assert "Removed wordcount after " in err


@pytest.mark.parametrize("verb", ["activate", "deactivate"])
def test_activate_and_deactivate(nimbus: FakeNimbus, command: Any, verb: str) -> None:
    nimbus.answers[verb] = None
    status, out, err = command(verb, "wordcount")
    assert (status, out) == (0, "")
    assert err.startswith(f"{verb.capitalize()}d wordcount: ")
    assert asked(nimbus) == [(verb, ("wordcount",))]
    assert json.loads(command(verb, "wordcount", "--json")[1]) == {
        "topology": "wordcount",
        "action": verb,
    }


def test_rebalance(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["rebalance"] = None
    status, _, err = command(
        "rebalance",
        "wordcount",
        "-w",
        "5",
        "-n",
        "3",
        "-e",
        "split=4",
        "-e",
        "a=b=2",
        "-t",
        '{"topology.max.spout.pending": 9}',
        "-r",
        '{"split": {"cpu.pcore.percent": 20}}',
    )
    pauses = "Rebalancing wordcount: its spouts pause, and it is redistributed after 5 s.\n"
    assert (status, err) == (0, pauses)
    ((method, (name, options)),) = [call for call in asked(nimbus) if call[0] == "rebalance"]
    assert (method, name) == ("rebalance", "wordcount")
    assert options.wait_secs == 5
    assert options.num_workers == 3
    assert options.num_executors == {"split": 4, "a=b": 2}
    assert json.loads(options.topology_conf_overrides) == {"topology.max.spout.pending": 9}
    assert options.topology_resources_overrides == {"split": {"cpu.pcore.percent": 20.0}}


@pytest.mark.parametrize(("workers", "free"), [(4, None), (5, 4), (40, 4)])
def test_rebalance_says_when_there_are_too_few_slots(
    nimbus: FakeNimbus, command: Any, workers: int, free: int | None
) -> None:
    """Six slots: three are used, one of them by the topology itself."""
    node = storm.SupervisorSummary(
        host="h", uptime_secs=1, num_workers=6, num_used_workers=3, supervisor_id="h"
    )
    nimbus.answers["rebalance"] = None
    nimbus.answers["getClusterInfo"] = storm.ClusterSummary(
        supervisors=[node], topologies=[summary(num_workers=1)], nimbuses=[]
    )
    status, _, err = command("rebalance", "wordcount", "-n", str(workers))
    assert status == 0
    if free is None:
        assert "warning" not in err
    else:
        said = f"{workers} workers were asked for, and wordcount can get {free} now"
        assert said in err
        assert "has 6 slots, and other topologies use 2" in err


def test_rebalance_sends_only_what_was_given(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["rebalance"] = None
    assert command("rebalance", "wordcount")[0] == 0
    assert asked(nimbus) == [("rebalance", ("wordcount", storm.RebalanceOptions()))]


def test_get_errors(nimbus: FakeNimbus, command: Any) -> None:
    now = int(time.time())

    def raised(line: int, message: str, ago: int, count: int | None = None) -> storm.ErrorInfo:
        text = (
            "Traceback (most recent call last):\n"
            f'  File "job.py", line {line}, in execute\n    work(tup)\nValueError: {message}\n'
        )
        return storm.ErrorInfo(
            error=text, error_time_secs=now - ago, host="h1", port=6700, count=count
        )

    newest = raised(7, "\x1b[31mno 3", 61, count=40)
    raised_text = newest.error
    newest.error = f"On a tuple of words (task 3), stream default, message id 17:\n{raised_text}"
    of_a_node = storm.ErrorInfo(error="no such package", error_time_secs=now - 61, host="h2")
    nimbus.answers["getTopologyInfoByNameWithOpts"] = storm.TopologyInfo(
        id="wordcount-1-1",
        name="wordcount",
        uptime_secs=1,
        executors=[],
        status="ACTIVE",
        errors={
            "split": [raised(7, "no 1", 3661), newest, raised(9, "other", 200)],
            "__system": [of_a_node],
            "count": [],
        },
    )
    status, out, err = command("get-errors", "wordcount")
    assert (status, err) == (0, "")
    rows = [re.split(" {2,}", line.strip()) for line in out.splitlines()[:4]]
    assert rows[0] == ["COMPONENT", "COUNT", "FIRST", "LAST", "WORKER", "ERROR"]
    assert rows[1][:2] + rows[1][4:] == ["__system", "1", "h2", "no such package"]
    assert rows[2][:2] + rows[2][4:] == ["split", "41", "h1:6700", "ValueError: \\x1b[31mno 3"]
    assert rows[2][2].startswith("1h 1m")
    assert rows[2][3].startswith("1m ")
    assert rows[3][:2] + rows[3][4:] == ["split", "1", "h1:6700", "ValueError: other"]
    assert out.splitlines()[4:10] == [
        "",
        "split, on a tuple of words (task 3), stream default, message id 17:",
        "  Traceback (most recent call last):",
        '    File "job.py", line 7, in execute',
        "      work(tup)",
        "  ValueError: \\x1b[31mno 3",
    ]
    assert "no 1" not in out
    printed = json.loads(command("get-errors", "wordcount", "--json")[1])
    assert printed["Topology Name"] == "wordcount"
    assert printed["Comp-Errors"] == {"__system": "no such package", "split": raised_text}
    assert printed["errors"][1] == {
        "component": "split",
        "count": 41,
        "first_secs": now - 3661,
        "last_secs": now - 61,
        "worker": "h1:6700",
        "source": "a tuple of words (task 3), stream default, message id 17",
        "error": raised_text,
    }


def test_get_errors_of_a_healthy_topology(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getTopologyInfoByNameWithOpts"] = storm.TopologyInfo(
        id="w-1-1", name="w", uptime_secs=1, executors=[], status="ACTIVE", errors={}
    )
    assert command("get-errors", "w") == (0, "", "w has reported no errors.\n")


def test_remoteconfvalue(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getNimbusConf"] = json.dumps({"nimbus.seeds": ["a", "b"], "storm.id": None})
    assert command("remoteconfvalue", "nimbus.seeds") == (0, 'nimbus.seeds: ["a", "b"]\n', "")
    assert command("remoteconfvalue", "storm.id", "--json") == (0, "null\n", "")
    assert command("remoteconfvalue", "no.such")[0] == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (storm.NotAliveException(msg="wordcount is not alive"), "error: wordcount is not alive\n"),
        (storm.AuthorizationException(msg="ann may not"), "error: not allowed: ann may not\n"),
    ],
)
def test_a_refusal_is_one_message(
    nimbus: FakeNimbus, command: Any, error: Exception, message: str
) -> None:
    nimbus.answers["killTopologyWithOpts"] = error
    status, out, err = command("kill", "wordcount")
    assert (status, out) == (1, "")
    assert err.startswith(message)


def test_an_invalid_rebalance_is_one_message(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["rebalance"] = storm.InvalidTopologyException(msg="no component 'x'")
    assert command("rebalance", "wordcount", "-e", "x=2") == (1, "", "error: no component 'x'\n")


def test_a_refusal_that_the_interface_does_not_declare_is_only_its_reason(
    nimbus: FakeNimbus, command: Any
) -> None:
    reason = "topology 'wordcount' cannot be rebalanced while it is REBALANCING"
    nimbus.answers["rebalance"] = ThriftApplicationError(
        ApplicationErrorType.INTERNAL_ERROR, reason
    )
    assert command("rebalance", "wordcount") == (1, "", f"error: {reason}\n")
    nimbus.answers["setLogConfig"] = storm.NotAliveException(msg="wordcount is not alive")
    found = command("set_log_level", "wordcount", "-l", "ROOT=INFO")
    assert found == (1, "", "error: wordcount is not alive\n")


def test_a_failure_inside_nimbus_is_one_message(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["activate"] = RuntimeError("no disk")
    status, out, err = command("activate", "wordcount")
    assert (status, out) == (1, "")
    assert err.startswith("error: the call activate failed in Nimbus: ")
    assert "Traceback" not in err


def test_a_wrong_address_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = run(
        [
            "list",
            "-c",
            "nimbus.seeds=[127.0.0.1]",
            "-c",
            "nimbus.thrift.port=1",
            "-c",
            "storm.nimbus.retry.times=0",
        ]
    )
    captured = capsys.readouterr()
    assert (status, captured.out) == (1, "")
    assert "127.0.0.1:1" in captured.err
    assert "hint: " in captured.err
    assert "Traceback" not in captured.err


def test_blobstore_list_shows_users_blobs_and_with_all_the_rest(
    nimbus: FakeNimbus, command: Any
) -> None:
    wheel = f"dep-{'a' * 64}-one-1.0-py3-none-any.whl"
    keys = ["model", "w-1-17-stormjar.jar", "w-1-17-stormconf.ser", wheel]
    nimbus.answers["listBlobs"] = lambda session: storm.ListBlobsResult(
        keys=[] if session else keys, session="more"
    )
    nimbus.answers["getBlobMeta"] = storm.ReadableBlobMeta(
        settable=storm.SettableBlobMeta(acl=[]), version=1
    )
    nimbus.answers["getBlobReplication"] = 2

    def shown(*options: str) -> list[str]:
        return [one["key"] for one in json.loads(command("blobstore", "list", *options)[1])]

    assert shown("--json") == ["model"]
    assert shown("--json", "--all") == keys
    assert shown("--json", wheel) == [wheel]
    keys.remove("model")
    assert command("blobstore", "list")[2] == "There are no blobs of users; --all lists all.\n"


# ---- rebalance --from-report ----

ID = "wordcount-1-1700000000"


def running(*components: tuple[str, int, int]) -> storm.TopologyInfo:
    """A topology of components with so many executors of so many tasks each."""
    executors, task = [], 1
    for component, count, tasks in components:
        for _ in range(count):
            executors.append(
                storm.ExecutorSummary(
                    executor_info=storm.ExecutorInfo(task_start=task, task_end=task + tasks - 1),
                    component_id=component,
                    host="h",
                    port=1,
                    uptime_secs=1,
                )
            )
            task += tasks
    return storm.TopologyInfo(
        id=ID, name="wordcount", uptime_secs=1, executors=executors, status="ACTIVE", errors={}
    )


def report_file(folder: Path, numbers: dict[str, int], **changes: Any) -> str:
    value = {
        "format": 1,
        "topology": {"id": ID, "name": "wordcount"},
        "to_ms": time.time() * 1000,
        "advice": [
            {"component": c, "now": 1, "recommended": n, "limit": None, "why": "because"}
            for c, n in numbers.items()
        ],
        **changes,
    }
    file = folder / "report.json"
    file.write_text(json.dumps(value))
    return str(file)


@pytest.fixture
def reported(nimbus: FakeNimbus) -> FakeNimbus:
    nimbus.answers["getTopologySummaryByName"] = summary()
    nimbus.answers["getTopologyInfoByName"] = running(
        ("split", 2, 2), ("count", 4, 1), ("__acker", 2, 1)
    )
    nimbus.answers["rebalance"] = None
    return nimbus


def rebalances(nimbus: FakeNimbus) -> list[Any]:
    return [arguments[1] for arguments in nimbus.called("rebalance")]


def test_a_report_is_shown_and_applied_within_the_number_of_tasks(
    reported: FakeNimbus, command: Any, tmp_path: Path
) -> None:
    file = report_file(tmp_path, {"split": 9, "count": 4, "gone": 3, "": 3})
    status, out, err = command("rebalance", "wordcount", "--from-report", file, "--yes")
    assert (status, len(rebalances(reported))) == (0, 1), err
    (options,) = rebalances(reported)
    assert options.num_executors == {"split": 4}
    assert options.num_workers == 3
    assert "because" in out
    assert "gone" not in out


def test_numbers_given_by_hand_win_over_the_report(
    reported: FakeNimbus, command: Any, tmp_path: Path
) -> None:
    file = report_file(tmp_path, {"split": 4, "count": 2, "": 3})
    command("rebalance", "wordcount", "--from-report", file, "-y", "-e", "split=3", "-n", "2")
    (options,) = rebalances(reported)
    assert options.num_executors == {"split": 3, "count": 2}
    assert options.num_workers == 2


def test_without_yes_and_a_terminal_nothing_is_changed(
    reported: FakeNimbus, command: Any, tmp_path: Path
) -> None:
    file = report_file(tmp_path, {"split": 4})
    status, out, err = command("rebalance", "wordcount", "--from-report", file)
    assert status == 2
    assert "--yes" in err
    assert "split" in out
    assert not rebalances(reported)


def test_a_report_without_a_change_changes_nothing(
    reported: FakeNimbus, command: Any, tmp_path: Path
) -> None:
    file = report_file(tmp_path, {"split": 2, "count": 4, "": 1})
    status, _, err = command("rebalance", "wordcount", "--from-report", file)
    assert status == 0
    assert "recommends no changes to wordcount" in err
    assert not rebalances(reported)
    status, out, _ = command("rebalance", "wordcount", "--from-report", file, "--json")
    assert (status, json.loads(out)["action"]) == (0, "none")


def advice(component: str, now: int, *, enough: bool) -> dict[str, Any]:
    return {
        "component": component, "now": now, "recommended": now, "limit": None, "why": "because",
        "enough": enough,
    }  # fmt: skip


def test_too_little_data_is_not_reported_as_no_change(
    reported: FakeNimbus, command: Any, tmp_path: Path
) -> None:
    little = [advice("split", 2, enough=False), advice("", 2, enough=True)]
    file = report_file(tmp_path, {}, advice=little)
    status, _, err = command("rebalance", "wordcount", "--from-report", file)
    assert status == 0
    # Of count there is no figure at all: its history lies elsewhere.
    assert "too little data to judge count, split" in err
    assert "no change" not in err
    assert not rebalances(reported)
    file = report_file(tmp_path, {"split": 4}, advice=[
        {**advice("split", 2, enough=True), "recommended": 4}, advice("count", 4, enough=False)
    ])  # fmt: skip
    _, _, err = command("rebalance", "wordcount", "--from-report", file, "--yes")
    assert "too little data to judge count, the workers" in err
    assert rebalances(reported)[0].num_executors == {"split": 4}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topology": {"id": "wordcount-7-1"}}, f"about wordcount-7-1, but {ID} is running"),
        ({"to_ms": (time.time() - 7200) * 1000}, "hours ago"),
        ({"format": 2}, "another version of squall"),
        ({"advice": [{"component": "split"}]}, "damaged"),
        ({"advice": ["split"]}, "damaged"),
        ({"advice": [{"component": "", "recommended": math.inf, "why": ""}]}, "damaged"),
        ({"to_ms": 10**400}, "damaged"),
        ({"to_ms": math.nan}, "damaged"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(
    reported: FakeNimbus, command: Any, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    file = report_file(tmp_path, {"split": 4}, **changes)
    status, _, err = command("rebalance", "wordcount", "--from-report", file, "--yes")
    assert status == 1
    assert said in err
    assert not rebalances(reported)


# In place of the program that needs Spark: says what it was asked, and does as it is told.
STANDIN = """
import json, os, pathlib, sys
asked = json.loads(os.environ["SQUALL_SPARK_REPORT"])
here = pathlib.Path(__file__).parent
(here / "asked.json").write_text(json.dumps(asked))
told = here / "told.json"
if not told.exists():
    sys.exit(3)
pathlib.Path(asked["json_file"]).write_bytes(told.read_bytes())
"""


@pytest.fixture
def spark_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stand-in."""
    folder = tmp_path / "standin" / "squall_spark" / "report"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    (folder / "main.py").write_text(STANDIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "standin"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


@pytest.mark.parametrize("options", [("--yes",), ("--yes", "--json")])
def test_without_a_file_a_report_is_made_now(
    reported: FakeNimbus,
    command: Any,
    tmp_path: Path,
    spark_report: Path,
    options: tuple[str, ...],
) -> None:
    Path(report_file(spark_report, {"split": 4, "": 3})).rename(spark_report / "told.json")
    history = ("-c", f"storm.history.dir={tmp_path / 'history'}")
    status, out, err = command(*history, "rebalance", "wordcount", "--from-report", *options)
    assert status == 0, err
    (rebalance,) = rebalances(reported)
    assert (rebalance.num_executors, rebalance.num_workers) == ({"split": 4}, 3)
    asked = json.loads((spark_report / "asked.json").read_text())
    assert asked["topology"] == ID  # not the name, which another may have had before
    assert (asked["history"], asked["since"]) == (str(tmp_path / "history"), "1d")
    assert asked["quiet"]  # the changes are shown, not the report
    if "--json" in options:
        assert json.loads(out)["num_executors"] == {"split": 4}
    else:
        assert "because" in out
    assert not Path(asked["json_file"]).parent.exists()


def test_without_a_report_nothing_is_changed(
    reported: FakeNimbus, command: Any, spark_report: Path
) -> None:
    status, out, err = command("rebalance", "wordcount", "--from-report", "--yes")
    assert (status, out, err) == (3, "", "")  # the report's own process has said why
    assert (spark_report / "asked.json").exists()
    assert not rebalances(reported)


def test_an_old_report_can_be_forced(reported: FakeNimbus, command: Any, tmp_path: Path) -> None:
    file = report_file(tmp_path, {"split": 4}, to_ms=1.0)
    assert command("rebalance", "wordcount", "--from-report", file, "--yes", "--force")[0] == 0
    assert len(rebalances(reported)) == 1


def test_a_file_that_is_not_a_report_is_named(
    reported: FakeNimbus, command: Any, tmp_path: Path
) -> None:
    file = tmp_path / "x.json"
    for content, said in (
        ("{", "is not JSON"),
        ("[1]", "is not a report"),
        ("{}", "is not a report"),
    ):
        file.write_text(content)
        status, _, err = command("rebalance", "wordcount", "--from-report", str(file), "--yes")
        assert status == 1
        assert said in err
    status, _, err = command("rebalance", "wordcount", "--from-report", str(tmp_path / "none"))
    assert status == 1
    assert "cannot read the report" in err
    status, _, err = command("rebalance", "wordcount", "--yes")
    assert status == 2


# ---- spark report ----


def test_a_history_is_looked_for_where_this_machine_or_else_nimbus_says(
    nimbus: FakeNimbus, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[str] = []

    class Child:
        def __init__(self, argv: list[str], env: dict[str, str], **_: Any) -> None:
            asked_for.append(json.loads(env["SQUALL_SPARK_REPORT"])["history"])

    monkeypatch.setattr("squall_cli.programs.history_report.subprocess.Popen", Child)
    monkeypatch.setattr("squall_cli.programs.entry.wait_for_child", lambda child: 0)
    conf = {**nimbus.conf, "storm.nimbus.retry.times": 0, "storm.local.dir": "/here"}
    here = ClientOptions.read(conf)
    set_here = ClientOptions.read({**conf, "storm.history.dir": "/mine"})
    nimbus.answers["getNimbusConf"] = json.dumps({"storm.local.dir": "/of/nimbus"})
    run_report(set_here, ReportOrder("t"))
    run_report(set_here, ReportOrder("t", history="s3://b/h"))
    assert not nimbus.calls
    run_report(here, ReportOrder("t"))
    run_report(ClientOptions.read({**conf, "nimbus.thrift.port": 1}), ReportOrder("t"))
    assert asked_for == ["/mine", "s3://b/h", "/of/nimbus/history", "/here/history"]
