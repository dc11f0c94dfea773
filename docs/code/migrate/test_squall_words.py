from squall.testing import TopologyTest
from squall_words import build


def test_words_are_counted():
    with TopologyTest(build(["to be", "or not to be"])) as test:
        test.run_until_idle()
        found = dict(e.values for e in test.emitted("count"))
    assert found == {"to": 2, "be": 2, "or": 1, "not": 1}
