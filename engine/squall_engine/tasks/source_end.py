"""What a spout says about the end of its source: the answer of its `exhausted()`."""

from __future__ import annotations

ASK_SECS = 1.0  # at least, from one question to the next


class SourceEnd:
    """The last answer of a spout that defines `exhausted()`. Only the thread that calls the spout
    changes it; any thread may read it."""

    __slots__ = ("ask_at", "has_ended", "is_known")

    def __init__(self) -> None:
        self.is_known = True  # the spout does not answer that its source has no end (None)
        self.has_ended = False  # a spout that was not asked yet has not ended
        self.ask_at = 0.0  # when it may be asked again

    def answered(self, answer: object, now: float, *, has_replays: bool) -> None:
        """Take an answer. One that has messages to emit again has not ended, whatever it says."""
        self.ask_at = now + ASK_SECS
        self.is_known = answer is not None
        self.has_ended = bool(answer) and not has_replays

    def goes_on(self) -> None:
        """The spout has emitted, or a message has failed, which it may emit again: the answer may
        be wrong by now."""
        self.has_ended = False
