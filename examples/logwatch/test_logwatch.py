import json

from logwatch import Errors, Parse, build
from squall.testing import BoltTest, TopologyTest

PARSED = {"parse": ["service", "level", "message"]}


def test_a_line_has_a_level_and_a_message():
    with BoltTest(Parse(), {"lines": ["service", "line"]}) as test:
        done = test.execute(["shop", "2026-01-31T09:00:00 ERROR out of stock"])
        assert [e.values for e in done.emitted] == [["shop", "ERROR", "out of stock"]]
        traceback = test.execute(["shop", '  File "x.py", line 3'])
        assert traceback.emitted == []
        assert traceback.acked


def test_an_alert_is_raised_once_and_taken_back_when_it_is_calm():
    with BoltTest(Errors(window=10, threshold=3), PARSED) as test:
        emitted = []
        for _ in range(6):
            emitted += test.execute(["shop", "ERROR", "boom"]).emitted
        assert [e.values for e in emitted] == [["shop", "firing", 3, "boom"]]
        assert [e.values for e in test.run_for(15)] == [["shop", "resolved", 0, ""]]


def test_errors_that_are_far_apart_raise_none():
    with BoltTest(Errors(window=5, threshold=2), PARSED) as test:
        assert test.execute(["shop", "ERROR", "a"]).emitted == []
        test.run_for(8)
        assert test.execute(["shop", "ERROR", "b"]).emitted == []


def test_services_are_counted_apart():
    with BoltTest(Errors(window=5, threshold=2), PARSED) as test:
        assert test.execute(["shop", "ERROR", "a"]).emitted == []
        assert test.execute(["mail", "ERROR", "a"]).emitted == []
        assert test.execute(["mail", "INFO", "a"]).emitted == []


def test_alerts_are_written(tmp_path):
    logs, alerts = tmp_path / "logs", tmp_path / "alerts.jsonl"
    logs.mkdir()
    (logs / "calm.log").write_text("2026-01-31T09:00:00 INFO started\n")
    (logs / "shop.log").write_text("2026-01-31T09:00:00 ERROR no route\n" * 7)
    with TopologyTest(build(str(logs), str(alerts))) as test:
        test.run_for(2)
        with (logs / "late.log").open("w") as late:  # a file that appears later
            late.write("2026-01-31T09:00:02 CRITICAL disk\n" * 5 + "2026-01-31T09:00:02 ERR")
        test.run_for(20)
        assert not test.errors
    found = [json.loads(line) for line in alerts.read_text().splitlines()]
    states = [(alert["service"], alert["state"]) for alert in found]
    assert sorted(states) == [
        ("late", "firing"),
        ("late", "resolved"),
        ("shop", "firing"),
        ("shop", "resolved"),
    ]
