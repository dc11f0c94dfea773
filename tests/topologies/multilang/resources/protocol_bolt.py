"""A shell bolt that uses all of the protocol."""

import os
import sys

from squall.multilang import Bolt


class Everything(Bolt):
    def initialize(self, conf, context):
        self.first = self.emit(["initialized", self.task_id], need_task_ids=True)
        self.held = None

    def process(self, tup):
        what = tup["n"]
        if what == 0:
            self.log("at trace", "trace")
            self.log("at debug", "debug")
            self.log("at info", "info")
            self.log("at warn", "warn")
            self.log("at error", "error")
            sys.stderr.write("on stderr\n")
            print("printed")
        elif what == 1:
            self.report_metric("requests", 3)
            self.report_metric("requests", 4)
            self.report_metric("status", {"up": True})
        elif what == 2:
            self.report_error("its own error")
        elif what == 3:
            self.held = tup
            return
        elif what == 4:
            # One tuple from two, and one from a single anchor as bare text.
            self.emit(["joined", 2], anchors=[self.held, tup])
            self._send({"command": "emit", "anchors": tup.id, "tuple": ["bare", 1]})
            self._read_task_ids()
            self.ack(self.held)
        elif what == 5:
            (target,) = self.emit(["default", 0], anchors=[tup], need_task_ids=True)
            answers = self.emit([1], anchors=[tup], stream="chosen", task=target + 1)
            nobody = self.emit([1], anchors=[tup], stream="unheard", need_task_ids=True)
            self.emit(["answers", [self.first, [target], answers, nobody]], anchors=[tup])
        elif what == 6:
            self.emit(["cwd", os.path.basename(os.getcwd())], anchors=[tup])
            self.emit(["mine", os.environ.get("MINE")], anchors=[tup])
            self.emit(["unbuffered", os.environ.get("PYTHONUNBUFFERED")], anchors=[tup])
            self.emit(["conf", self.conf["topology.name"]], anchors=[tup])
            here = os.path.join(self.pid_dir, str(os.getpid()))
            self.emit(["pid file", os.path.exists(here)], anchors=[tup])
        elif what == 7:
            self.fail(tup)
            return
        self.ack(tup)

    def process_tick(self, tup):
        self.emit(["tick", tup.values])

    def _shake_hands(self):
        read = self._read

        def remembering():
            message = read()
            self.pid_dir = message["pidDir"]
            return message

        self._read = remembering
        super()._shake_hands()
        self._read = read


Everything().run()
