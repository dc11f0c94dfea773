from squall.testing import BoltTest
from visits import CONF, Visits, topology
from squall.testing import TopologyTest


def test_visits_are_counted_by_user():
    with BoltTest(Visits(), {"requests": ["user", "page"]}) as test:
        rows = (["ann", "/"], ["bob", "/"], ["ann", "/cart"])
        emitted = [row for given in rows for row in test.execute(given).emitted]
        assert [list(one.values) for one in emitted] == [
            ["ann", 1, None],
            ["bob", 1, None],
            ["ann", 2, "/"],
        ]


def test_state_is_found_again(tmp_path):
    conf = {**CONF, "topology.state.url": str(tmp_path)}
    for expected in (2, 4):
        with TopologyTest(topology(), conf) as test:
            test.run_for(5)
            last = {one.values[0]: one.values[1] for one in test.emitted("visits")}
            assert last["ann"] == expected
