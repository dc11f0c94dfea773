"""The server's side of a SASL exchange, as a table: what may follow what.

    AWAITING_START --start--> AWAITING_RESPONSE --response--> DECIDING --accepted--> ACCEPTED
                                      ^                          |  +----refused---> REFUSED
                                      +-------challenged---------+

The peer answers until the mechanism has decided, `RESPONSES_MAX` times at the most. Nothing here
reads, writes or waits: `serving.authentication` does.
"""

from __future__ import annotations

import enum
from typing import Final

from squall_thrift.protocol.sasl import SaslError, Status

# DIGEST-MD5 takes two responses, GSSAPI three, and four where the client's context needs a reply.
RESPONSES_MAX: Final = 6


class State(enum.Enum):
    """How far an exchange is."""

    AWAITING_START = enum.auto()  # the peer has not named its mechanism
    AWAITING_RESPONSE = enum.auto()  # it is the peer's turn
    DECIDING = enum.auto()  # it is the mechanism's turn
    ACCEPTED = enum.auto()  # the peer has proved who it is
    REFUSED = enum.auto()  # it has not, and nothing more is read from it


class Event(enum.Enum):
    """What happens to an exchange."""

    STARTED = enum.auto()
    RESPONDED = enum.auto()
    CHALLENGED = enum.auto()
    ACCEPTED = enum.auto()
    REFUSED = enum.auto()


# The next state, and the status that the server sends then.
TABLE: Final[dict[tuple[State, Event], tuple[State, Status | None]]] = {
    (State.AWAITING_START, Event.STARTED): (State.AWAITING_RESPONSE, None),
    (State.AWAITING_RESPONSE, Event.RESPONDED): (State.DECIDING, None),
    (State.DECIDING, Event.CHALLENGED): (State.AWAITING_RESPONSE, Status.OK),
    (State.DECIDING, Event.ACCEPTED): (State.ACCEPTED, Status.COMPLETE),
    (State.DECIDING, Event.REFUSED): (State.REFUSED, Status.BAD),
}


class Exchange:
    """One exchange with one peer."""

    __slots__ = ("challenges", "responses", "state")

    def __init__(self) -> None:
        self.state = State.AWAITING_START
        self.responses = 0
        self.challenges = 0

    @property
    def decided(self) -> bool:
        """Whether nothing more is read."""
        return self.state in (State.ACCEPTED, State.REFUSED)

    def received(self, status: Status) -> None:
        """A message of the peer's. Raises SaslError for one that may not come now."""
        if self.state is State.AWAITING_START:
            if status is not Status.START:
                raise SaslError(f"SASL begins with START, not with {status.name}")
            self.step(Event.STARTED)
            return
        if status not in (Status.OK, Status.COMPLETE):
            raise SaslError(f"the peer gave up: {status.name}")
        if self.responses >= RESPONSES_MAX:
            raise SaslError(f"the peer has not proved who it is in {RESPONSES_MAX} responses")
        self.step(Event.RESPONDED)

    def step(self, event: Event) -> Status | None:
        """Go on; returns what the server says. Raises SaslError, and changes nothing, where the
        table has no such step."""
        found = TABLE.get((self.state, event))
        if found is None:
            raise SaslError(f"{event.name} does not follow {self.state.name}")
        self.state, status = found
        self.responses += event is Event.RESPONDED
        self.challenges += event is Event.CHALLENGED
        return status

    def validate(self) -> None:
        """Assert what always holds."""
        assert 0 <= self.responses <= RESPONSES_MAX
        match self.state:
            case State.AWAITING_START:
                assert self.responses == self.challenges == 0
            case State.AWAITING_RESPONSE:
                assert self.challenges == self.responses
            case State.DECIDING | State.ACCEPTED | State.REFUSED:
                assert self.challenges == self.responses - 1
