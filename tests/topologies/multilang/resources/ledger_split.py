"""The ledger's splitter as a shell bolt. It ignores SIGTERM and the end of its input, and starts a
process of its own: none of that may outlive the topology."""

import os
import signal
import subprocess
import time

from squall.multilang import BasicBolt


class Split(BasicBolt):
    def initialize(self, conf, context):
        if os.environ.get("STUBBORN"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.grandchild = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)

    def process(self, tup):
        for place, word in enumerate(tup["line"].split()):
            self.emit([tup["number"], place, word])


if __name__ == "__main__":
    Split().run()
    while os.environ.get("STUBBORN"):
        time.sleep(1)
