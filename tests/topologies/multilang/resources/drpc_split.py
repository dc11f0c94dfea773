"""A step of a linear DRPC topology: the words of a request, each with the request's id."""

import os

from squall.multilang import BasicBolt


class Split(BasicBolt):
    def process(self, tup):
        request, text = tup.values
        if text == "bad":
            raise ValueError("bad text")
        if text == "die":
            os._exit(3)
        for word in text.split():
            self.emit([request, word.upper()])


Split().run()
