from slow import Fast
from squall.testing import BoltTest


def test_numbers_are_passed_on():
    with BoltTest(Fast(), {"numbers": ["n"]}) as test:
        assert test.execute([3]).emitted[0].values == [3]
