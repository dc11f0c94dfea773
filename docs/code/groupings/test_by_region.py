from by_region import ByRegion
from squall import Bolt, TopologyBuilder
from squall.testing import FeederSpout, TopologyTest


class Users(FeederSpout):
    outputs = ["user", "region"]


class Seen(Bolt):
    outputs = ["task", "user"]

    def execute(self, tup):
        self.emit([self.context.this_task_index, tup["user"]])


def test_europe_has_tasks_of_its_own():
    builder = TopologyBuilder()
    builder.spout("users", Users())
    builder.bolt("seen", Seen(), parallelism=4).custom("users", ByRegion("region"))
    with TopologyTest(builder) as test:
        for number in range(20):
            test.feed("users", [f"u{number}", "EU" if number % 2 else "US"], number)
        test.run_until_idle()
        seen = [e.values for e in test.emitted("seen")]
    assert {task for task, user in seen if int(user[1:]) % 2} <= {0, 1}
    assert {task for task, user in seen if not int(user[1:]) % 2} <= {2, 3}
    assert len(seen) == 20
