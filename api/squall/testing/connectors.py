"""The contract of sources and sinks, as test classes to derive from.

    class TestOrders(SourceContract):
        def make_source(self, **options):
            return OrdersSpout(URL, **options)

        def put(self, records):
            for record in records:
                client.send(URL, record)

    class TestStore(SinkContract):
        fields = ("name",)

        def make_sink(self, **options):
            return StoreBolt(URL, **options)

        def stored(self):
            return client.read_all(URL)

pytest finds the tests in the derived class. They run the spout or bolt in the engine of a worker,
in real time, against the system that it connects to; each test needs that system empty, so let a
fixture make a new topic, table or folder for each. Tests of outages need `server`: an object whose
`kill()` and `restart()` end and start the system, with its data. Tests that kill the worker run the
topology in a child process, which imports the component's class by its name; they are left out
(`importable = False`) for a class inside a test.

Records are strings such as "17"; `records` and `kills` set how hard the tests try.
"""

from squall.testing._contract_parts import DeadLetterBolt, ServerControl
from squall.testing._runs import wait_until
from squall.testing._sink_contract import SinkContract
from squall.testing._source_contract import SourceContract
from squall.testing._transactional_contract import TransactionalSinkContract

__all__ = [
    "DeadLetterBolt",
    "ServerControl",
    "SinkContract",
    "SourceContract",
    "TransactionalSinkContract",
    "wait_until",
]
