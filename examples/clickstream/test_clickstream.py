import json
import sqlite3
from collections import Counter

import pytest
from clickstream import Parse, Sessions, Store, build, read_click
from generate import clicks
from squall.testing import BoltTest, TopologyTest
from squall.windows import session

CLICKS = {"parse": ["user", "at", "page"]}


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "3", '{"user": "u"}', '{"user": 1, "at": 1, "page": "/"}']
    + ['{"user": "u", "at": "noon", "page": "/"}', '{"user": "u", "at": NaN, "page": "/"}'],
)
def test_what_is_not_a_click_is_refused(line):
    with pytest.raises(ValueError):
        read_click(line)


def test_an_invalid_line_goes_to_its_own_stream_and_is_acked():
    with BoltTest(Parse(), {"clicks": ["line"]}) as test:
        done = test.execute(["nonsense"])
    (emitted,) = done.emitted
    assert emitted.stream == "invalid"
    assert emitted.values[0] == "nonsense"
    assert done.acked


def test_a_session_ends_after_the_gap_and_only_then_acks_its_clicks():
    with BoltTest(Sessions(), CLICKS, windows=session(gap_secs=5, key="user")) as test:
        first = test.execute(["ann", 10.0, "/"])
        assert test.run_for(3) == []
        second = test.execute(["ann", 13.0, "/cart"])
        assert test.run_for(4) == []
        assert not first.acked
        (found,) = test.run_for(3)
        assert found.values == ["ann", 10.0, 13.0, 2, ["/", "/cart"]]
        assert first.acked
        assert second.acked


def test_a_session_longer_than_the_message_timeout_does_not_fail():
    conf = {"topology.message.timeout.secs": 5}
    with BoltTest(Sessions(), CLICKS, conf, windows=session(gap_secs=10, key="user")) as test:
        first = test.execute(["ann", 10.0, "/"])
        assert len(test.run_for(20)) == 1
        assert first.acked
        assert not first.failed


def test_a_click_that_comes_again_counts_once():
    with BoltTest(Sessions(), CLICKS, windows=session(gap_secs=5, key="user")) as test:
        for click in (["ann", 13.0, "/cart"], ["ann", 10.0, "/"], ["ann", 13.0, "/cart"]):
            test.execute(click)
        (found,) = test.run_for(6)
        assert found.values == ["ann", 10.0, 13.0, 2, ["/", "/cart"]]


class StoreAtOnce(Store):
    blocking = False  # on the test's clock, not on a thread of its own


def test_every_click_is_in_a_session_and_none_is_in_two(tmp_path):
    source, database = tmp_path / "clicks.jsonl", tmp_path / "sessions.db"
    expected = clicks(users=40)
    lines = [json.dumps(click) for click in expected]
    source.write_text("".join(f"{line}\n" for line in [*lines, "broken"]))
    topology = build(str(source), str(database), gap=5)
    with TopologyTest(topology, objects={"store": StoreAtOnce(str(database))}) as test:
        test.run_for(20)
        assert not test.errors
        assert not test.failed("clicks")
        assert len(test.acked("clicks")) == len(expected) + 1
    with sqlite3.connect(database) as connection:
        stored = dict(connection.execute("SELECT user, sum(clicks) FROM sessions GROUP BY user"))
        invalid = connection.execute("SELECT line FROM invalid").fetchall()
    connection.close()
    assert stored == Counter(click["user"] for click in expected)
    assert invalid == [("broken",)]


def test_a_part_of_a_session_that_is_stored_is_not_another_one(tmp_path):
    database = tmp_path / "sessions.db"
    whole = ["ann", 10.0, 19.0, 3, ["/", "/shoes", "/cart"]]
    inputs = {"sessions": Sessions.outputs}
    with BoltTest(StoreAtOnce(str(database)), inputs) as test:
        test.execute(["ann", 10.0, 13.0, 2, ["/", "/shoes"]])
        for row in (whole, ["ann", 13.0, 19.0, 2, ["/shoes", "/cart"]], whole):
            test.execute(row)
        test.execute(["bob", 13.0, 19.0, 1, ["/"]])
    with sqlite3.connect(database) as connection:
        stored = connection.execute("SELECT user, first, clicks FROM sessions").fetchall()
    connection.close()
    assert stored == [("ann", 10.0, 3), ("bob", 13.0, 1)]
