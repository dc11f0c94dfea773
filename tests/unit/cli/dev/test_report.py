"""What `storm dev` tells a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall_cli.dev.plan import make_plan
from squall_cli.dev.report import print_report


def test_the_report_says_where_everything_is(capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan(
        data_dir=Path("/data"),
        supervisors=2,
        slots=3,
        free_ports=None,
        is_free=lambda _port: True,
        site_conf={},
        overrides={},
    )
    supervisors = [
        {"id": "a", "pid": 13, "port": 5, "slots": [6700, 6701, 6702]},
        {"id": "b", "pid": 14, "port": 6, "slots": [6703, 6705, 6709]},
    ]
    state = {
        "zookeeper": {"host": "127.0.0.1", "port": 2181, "pid": 11},
        "nimbus": {"host": "127.0.0.1", "port": 6627, "pid": 12},
        "drpc": {"host": "127.0.0.1", "port": 3772, "pid": 15},
        "ui": {"host": "127.0.0.1", "port": 8080, "pid": 16},
        "logviewer": {"host": "127.0.0.1", "port": 8000, "pid": 17},
        "supervisors": supervisors,
    }
    print_report(plan, state)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "The cluster is up.",
        "",
        "PART          ADDRESS               PROCESS  LOG",
        "zookeeper     127.0.0.1:2181        11       /data/logs/zookeeper.out",
        "nimbus        127.0.0.1:6627        12       /data/logs/nimbus.log",
        "drpc          127.0.0.1:3772        15       /data/logs/drpc.log",
        "ui            127.0.0.1:8080        16       /data/logs/ui.log",
        "logviewer     127.0.0.1:8000        17       /data/logs/logviewer.log",
        "supervisor-1  slots 6700-6702       13       /data/logs/supervisor-1/supervisor.log",
        "supervisor-2  slots 6703,6705,6709  14       /data/logs/supervisor-2/supervisor.log",
        "",
        "Web UI          http://127.0.0.1:8080/",
        "Workers log to  /data/logs/supervisor-N/workers-artifacts/TOPOLOGY/PORT/worker.log",
        "DRPC over HTTP  http://127.0.0.1:3774/drpc/FUNCTION/ARGUMENTS",
        "Configuration   /data/storm.yaml",
        "",
        "In another terminal:",
        "  export STORM_CONF_DIR=/data",
        "  storm jar examples/wordcount wordcount ...   # see examples/wordcount/README.md",
        "  storm list                                   # check that it runs",
        "  storm kill wordcount -w 0                    # stop it",
        "",
        "Ctrl-C here stops the cluster, including its workers, and keeps its data.",
    ]
