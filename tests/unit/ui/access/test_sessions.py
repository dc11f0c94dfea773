"""Sessions and codes, with a clock of the test's."""

from __future__ import annotations

from squall_common.authentication.authenticator import Proved
from squall_common.security.identity import Channel, Principal, Role
from squall_ui.access.sessions import (
    CODE_SECS,
    IDLE_SECS,
    SESSIONS_MAX,
    SESSIONS_OF_USER_MAX,
    Sessions,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def proved(user: str, expires: float | None = None) -> Proved:
    return Proved(Principal(Role.USER, user, Channel.TOKEN, expires=expires))


def test_a_session_ends_when_it_is_not_used() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    identifier = sessions.begin(proved("alice"), "token")
    for _ in range(3):
        clock.now += IDLE_SECS - 1
        assert sessions.find(identifier) is not None
    clock.now += IDLE_SECS + 1
    assert sessions.find(identifier) is None
    assert not sessions.lives(identifier)


def test_a_session_ends_with_its_token_however_much_it_is_used() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    identifier = sessions.begin(proved("alice", clock.now + 100), "token")
    clock.now += 99
    assert sessions.find(identifier) is not None
    clock.now += 1
    assert sessions.find(identifier) is None


def test_sessions_are_bounded_for_each_user_and_in_all() -> None:
    sessions = Sessions(Clock())
    bob = sessions.begin(proved("bob"), "token")
    alices = [sessions.begin(proved("alice"), "token") for _ in range(SESSIONS_OF_USER_MAX + 1)]
    assert not sessions.lives(alices[0])
    assert sessions.lives(alices[1])
    assert sessions.lives(bob)
    for n in range(SESSIONS_MAX):
        sessions.begin(proved(f"user{n}"), "token")
    assert not sessions.lives(bob)


def test_a_session_that_was_ended_or_never_began_is_none() -> None:
    sessions = Sessions(Clock())
    identifier = sessions.begin(proved("alice"), "token")
    sessions.end(identifier)
    assert sessions.find(identifier) is None
    assert sessions.find("") is None
    assert sessions.find("\udcff") is None


def test_a_code_counts_once_and_for_a_minute() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    code = sessions.make_code(proved("alice"), "token")
    assert sessions.of_code(code, use=False) is not None
    assert sessions.of_code(code, use=True) is not None
    assert sessions.of_code(code, use=True) is None
    late = sessions.make_code(proved("alice"), "token")
    clock.now += CODE_SECS + 1
    assert sessions.of_code(late, use=True) is None
