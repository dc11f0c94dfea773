"""A shell spout that shows what it was told: by squall.multilang, under any interpreter."""

from squall.multilang import Spout


class Ids(Spout):
    """Emits one message for each kind of id, counts from 0, and tells each command that it gets."""

    IDS = (0, 1, "0", "text", 2.5, 12345678901234567890, None)

    def initialize(self, conf, context):
        self.left = list(self.IDS)
        self.failed = False
        self.emit(["told", "initialize"])

    def next_tuple(self):
        if self.left:
            message_id = self.left.pop(0)
            self.emit(["message", repr(message_id)], id=message_id)

    def ack(self, message_id):
        self.emit(["told", "ack " + repr(message_id)])

    def fail(self, message_id):
        self.emit(["told", "fail " + repr(message_id)])
        self.emit(["message", repr(message_id)], id=message_id)

    def activate(self):
        self.emit(["told", "activate"])

    def deactivate(self):
        self.emit(["told", "deactivate"])


Ids().run()
