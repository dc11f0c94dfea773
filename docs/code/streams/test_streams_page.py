import pytest
from orders import build
from squall import InvalidTopologyError, StreamBuilder
from squall.testing import FeederSpout, TopologyTest
from words import build as build_words


class Lines(FeederSpout):
    outputs = ["text", "at"]


def test_words_of_each_minute(capsys):
    with TopologyTest(build_words(Lines()).to_topology_builder()) as test:
        test.feed("lines", ["to be or not to be", 1_000], message_id=1)
        test.feed("lines", ["that is the question", 90_000], message_id=2)
        test.run_for(2)  # the watermark is advanced each second
        assert test.acked("lines") == [1]
    assert "Windowed(key='be', value=2, start_ms=0, end_ms=60000)\n" in capsys.readouterr().out


def test_orders_are_added_up_by_user():
    with TopologyTest(build().to_topology_builder()) as test:
        for cents in (0, 500, 2_000):
            test.feed("orders", ["ann", cents, 1_000], message_id=cents)
            test.run_for(1)  # not until idle: windows hold their values
        assert [e.values for e in test.emitted("totals")] == [["ann", 500], ["ann", 2_500]]
        assert [e.values for e in test.emitted("welcome")] == [["welcome, ann"]]
        assert [e.values for e in test.emitted("large_orders")] == [["ann", 2_000, 1_000]]


def test_the_plan_says_what_is_fused():
    rows = {row[0]: row for row in build().plan().rows}
    assert "filter(at_least), event_time(attrgetter('at')), key_by" in rows["by_user"][2]
    assert rows["totals"][3] == "<- spent (by key)"


def test_a_lambda_is_refused_with_the_line_that_has_it():
    builder = StreamBuilder()
    builder.source("lines", Lines()).map(lambda line: line["text"]).print()
    with pytest.raises(InvalidTopologyError, match=r"test_streams_page.py:\d+: map\(<lambda>\)"):
        builder.build()
