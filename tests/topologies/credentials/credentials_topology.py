"""Logs a hash of its credentials, and never a value."""

import hashlib
import json
import sys
import time

from squall import Bolt, Spout, TopologyBuilder, submit_topology


def digest(credentials):
    return hashlib.sha256(json.dumps(dict(credentials), sort_keys=True).encode()).hexdigest()


class Watches:
    def begin(self):
        self.log.info("opened with %s", digest(self.context.credentials))

    def credentials_updated(self, credentials):
        assert credentials == self.context.credentials
        self.log.info("updated to %s", digest(credentials))


class Ticks(Watches, Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.begin()

    def next_tuple(self):
        time.sleep(0.01)


class Waits(Watches, Bolt):
    blocking = True

    def prepare(self, conf, context):
        self.begin()

    def execute(self, tup):
        pass


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("ticks", Ticks())
    builder.bolt("waits", Waits()).shuffle("ticks")
    submit_topology(sys.argv[1], {"topology.workers": 2}, builder.build())
