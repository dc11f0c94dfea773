"""Holds secrets in every place where a topology may have one, and raises one in an error."""

import os
import sys
import time

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Ticks(Spout):
    outputs = ["n"]

    def next_tuple(self):
        self.emit([1])
        time.sleep(0.2)


class Fails(Bolt):
    blocking = True

    def prepare(self, conf, context):
        self.secret = conf["my.database.password"]
        has = bool(self.secret and os.environ["PLAIN_NAME"] and context.credentials)
        self.log.info("canaries are here: %s", has)
        self.log.info("connecting with password=%s", self.secret)

    def execute(self, tup):
        raise RuntimeError(f"cannot log in: password={self.secret}")


if __name__ == "__main__":
    of_conf, of_url, of_environment = sys.argv[2:5]
    builder = TopologyBuilder()
    builder.spout("ticks", Ticks())
    builder.bolt("fails", Fails()).shuffle("ticks")
    conf = {
        "my.database.password": of_conf,
        "topology.worker.childopts": f"-Ddb.url=postgres://app:{of_url}@db/x",
        "topology.environment": {"PLAIN_NAME": of_environment},
    }
    submit_topology(sys.argv[1], conf, builder.build())
