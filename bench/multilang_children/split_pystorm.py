"""pystorm's own splitter (needs pystorm: `pip install pystorm`)."""

from pystorm import Bolt


class Split(Bolt):
    def process(self, tup):
        for word in tup.values[0].split(" "):
            self.emit([word])


if __name__ == "__main__":
    Split().run()
