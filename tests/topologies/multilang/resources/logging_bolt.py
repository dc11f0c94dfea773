"""Logs each number, then emits it."""

from squall.multilang import BasicBolt


class Logs(BasicBolt):
    def process(self, tup):
        level = ("trace", "debug", "info", "warn", "error")[tup.values[0] % 5]
        self.log(f"number {tup.values[0]}", level)
        self.emit(tup.values)


if __name__ == "__main__":
    Logs().run()
