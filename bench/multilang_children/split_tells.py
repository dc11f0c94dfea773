"""A splitter that asks for no task ids, as pystorm's bolts do."""

from squall.multilang import BasicBolt


class Split(BasicBolt):
    def process(self, tup):
        for word in tup.values[0].split(" "):
            self.emit([word])


if __name__ == "__main__":
    Split().run()
