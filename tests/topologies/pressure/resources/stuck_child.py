"""A shell bolt that does nothing until `go` is there."""

import os
import time
from pathlib import Path

from squall.multilang import BasicBolt

FOLDER = Path(os.environ["FOLDER"])


class Stuck(BasicBolt):
    def initialize(self, conf, context):
        self.numbers = set()
        self.reported_at = 0.0

    def process(self, tup):
        while not (FOLDER / "go").exists():
            time.sleep(0.05)
        self.numbers.add(tup.values[0])
        if time.monotonic() - self.reported_at > 0.2:
            self.report()

    def process_tick(self, tup):
        self.report()

    def report(self):
        self.reported_at = time.monotonic()
        if self.numbers:
            whole = len(self.numbers) == max(self.numbers) + 1
            (FOLDER / "child").write_text(f"{len(self.numbers)} {'whole' if whole else 'gaps'}")


if __name__ == "__main__":
    Stuck().run()
