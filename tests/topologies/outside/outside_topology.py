"""Logs in to a foreign party with the topology's identity token, again and again."""

import json
import sys
import time
import urllib.request

from squall import Bolt, IdentityTokenError, Spout, TopologyBuilder, submit_topology


class Ticks(Spout):
    outputs = ["n"]

    def next_tuple(self):
        self.emit([1])
        time.sleep(0.2)


class LogsIn(Bolt):
    blocking = True

    def prepare(self, conf, context):
        self.url, self.audience = conf["party.url"], conf["party.audience"]
        self.log_in("prepare")
        try:
            self.context.identity_token("https://undeclared.example.org")
        except IdentityTokenError as error:
            self.say({"refused": error.message})

    def execute(self, tup):
        self.log_in("execute")

    def log_in(self, where):
        try:
            token = self.context.identity_token(self.audience)
        except IdentityTokenError as error:
            self.say({"error": error.message, "in": where})
        else:
            self.say({"token": token, "in": where})

    def say(self, value):
        data = json.dumps(value).encode()
        with urllib.request.urlopen(self.url, data=data, timeout=10):
            pass


if __name__ == "__main__":
    name, url, audience = sys.argv[1:4]
    builder = TopologyBuilder()
    builder.spout("ticks", Ticks())
    builder.bolt("logs-in", LogsIn()).shuffle("ticks")
    conf = {
        "party.url": url,
        "party.audience": audience,
        "topology.identity.audiences": [audience],
    }
    submit_topology(name, conf, builder.build())
