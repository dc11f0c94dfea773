"""Watches the log files of services, and raises an alert when one has too many errors.

    lines --shuffle--> parse --fields: service--> errors --global--> alerts

`errors` counts the errors of each service in slices of a second, over the last `window` seconds. An
alert is raised when the count passes `threshold`, and taken back when it falls below half of it, so
that a service near the threshold does not flap.
"""

import argparse
import json
import os
import re
from collections import deque
from pathlib import Path

from squall import Bolt, ReplayingSpout, TopologyBuilder, submit_topology

LINE = re.compile(r"(?P<at>\S+) (?P<level>[A-Z]+) (?P<message>.*)")


class LogLines(ReplayingSpout):
    """New lines of all `*.log` files of a folder, also of files that appear later. With several
    tasks, each takes its share of the files. A service is a file's name."""

    outputs = ["service", "line"]

    def __init__(self, folder):
        self.folder = folder

    def open(self, conf, context):
        self.tasks = len(context.component_tasks(context.this_component_id))
        self.index = context.this_task_index
        self.files = {}
        self.turn = deque()

    def next_message(self):
        if not self.turn:
            self.turn.extend(self.mine())
        for _ in range(len(self.turn)):
            service = self.turn[0]
            line = self.read_line(service)
            if line is not None:
                return [service, line]
            self.turn.popleft()
        return None

    def mine(self):
        for path in sorted(Path(self.folder).glob("*.log")):
            if sum(path.stem.encode()) % self.tasks == self.index:
                if path.stem not in self.files:
                    file = path.open(encoding="utf-8", errors="replace")
                    self.files[path.stem] = [file, ""]
                yield path.stem

    def read_line(self, service):
        file, part = self.files[service]
        part += file.readline()
        if part.endswith("\n"):
            self.files[service][1] = ""
            return part.rstrip("\n")
        self.files[service][1] = part  # the rest is not written yet
        return None

    def close(self):
        for file, _ in self.files.values():
            file.close()


class Parse(Bolt):
    """A line to its level and message; lines of a traceback have no level, and are left out."""

    outputs = ["service", "level", "message"]
    stateless = True

    def execute(self, tup):
        found = LINE.fullmatch(tup["line"])
        if found is not None:
            self.emit([tup["service"], found["level"], found["message"][:500]])


class Errors(Bolt):
    """Raises and takes back alerts."""

    outputs = ["service", "state", "errors", "example"]
    component_conf = {"topology.tick.tuple.freq.secs": 1}

    def __init__(self, window, threshold):
        self.window = window
        self.threshold = threshold

    def prepare(self, conf, context):
        self.slices = {}  # service -> errors of each of the last seconds, the newest last
        self.alerted = set()
        self.example = {}

    def execute(self, tup):
        if tup.is_tick:
            for service in list(self.slices):
                self.next_second(service)
            return
        if tup["level"] not in ("ERROR", "CRITICAL"):
            return
        service = tup["service"]
        slices = self.slices.setdefault(service, deque([0], maxlen=self.window))
        slices[-1] += 1
        self.example[service] = tup["message"]
        if service not in self.alerted and sum(slices) >= self.threshold:
            self.alerted.add(service)
            self.emit([service, "firing", sum(slices), self.example[service]])

    def next_second(self, service):
        slices = self.slices[service]
        slices.append(0)
        count = sum(slices)
        if service in self.alerted and count < self.threshold / 2:
            self.alerted.remove(service)
            self.emit([service, "resolved", count, ""])
        if count == 0 and service not in self.alerted:
            del self.slices[service], self.example[service]


class Alerts(Bolt):
    """Writes alerts, a line of JSON each. Here one would call a pager, with `async def execute`."""

    def __init__(self, path):
        self.path = path

    def prepare(self, conf, context):
        self.file = open(self.path, "a", encoding="utf-8", buffering=1)

    def execute(self, tup):
        alert = dict(zip(tup.fields, tup.values, strict=True))
        self.log.warning("%(service)s is %(state)s: %(errors)d errors", alert)
        self.file.write(json.dumps(alert) + "\n")

    def cleanup(self):
        self.file.close()


def build(folder, alerts, window=10, threshold=5):
    """The topology."""
    builder = TopologyBuilder()
    builder.spout("lines", LogLines(folder))
    builder.bolt("parse", Parse(), parallelism=2).shuffle("lines")
    builder.bolt("errors", Errors(window, threshold), parallelism=2, tasks=8).fields(
        "parse", "service"
    )
    builder.bolt("alerts", Alerts(alerts)).global_("errors")
    return builder.build()


def main():
    parser = argparse.ArgumentParser(description="Alerts from log files.")
    parser.add_argument("folder", help="folder with *.log files, on every node")
    parser.add_argument("alerts", help="file for the alerts")
    parser.add_argument("--window", type=int, default=10, help="seconds that count")
    parser.add_argument("--threshold", type=int, default=5, help="errors that raise an alert")
    options = parser.parse_args()
    folder, alerts = os.path.abspath(options.folder), os.path.abspath(options.alerts)
    topology = build(folder, alerts, options.window, options.threshold)
    submit_topology("logwatch", {"topology.max.spout.pending": 1000}, topology)


if __name__ == "__main__":
    main()
