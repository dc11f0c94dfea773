"""The steps from an open cluster to a secured one: which may follow which, and what each needs."""

from __future__ import annotations

import itertools

import pytest

from squall_cli.secure.securing import TABLE, Event, Found, Node, Procedure, State, next_state
from squall_common.errors import SquallError

WORDS = Found.of("words-1-1700000000", "anonymous", {"k": "0" * 64}, b"base")
LINES = Found.of("lines-2-1700000000", "carol", {}, b"base")
NODES = (Node("n1", "host1"),)
NIMBUSES = ("nimbus1:6627",)


def begun(**named: str) -> Procedure:
    found = Procedure().begun((WORDS, LINES), NODES, NIMBUSES, named)
    found.validate()
    return found


def test_every_step_that_is_not_in_the_table_is_refused_in_words() -> None:
    refused = 0
    for state, event in itertools.product(State, Event):
        if (state, event) in TABLE:
            assert next_state(state, event) is TABLE[state, event]
            continue
        refused += 1
        with pytest.raises(SquallError, match=r"\w+ \w+"):
            next_state(state, event)
    assert refused == len(State) * len(Event) - len(TABLE)
    assert {event for state, event in TABLE if state is State.DONE} == {Event.TAKEN_OVER}


def test_each_topology_needs_an_owner() -> None:
    found = begun()
    assert found.without_owner() == [WORDS.id]
    with pytest.raises(SquallError, match=f"who owns {WORDS.id}"):
        found.confirmed((WORDS, LINES), ())
    named = found.begun((WORDS, LINES), NODES, NIMBUSES, {"words": "alice"})
    assert named.confirmed((WORDS, LINES), ()).state is State.CONFIRMED
    assert [named.owner(one) for one in (WORDS, LINES)] == ["alice", "carol"]
    # It counts on when the cluster is read again, for as long as the topology is there.
    again = named.begun((WORDS,), NODES, NIMBUSES, {})
    assert again.owners == {WORDS.id: "alice"}
    assert again.begun((LINES,), NODES, NIMBUSES, {}).owners == {}


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ({"x": "alice"}, "no topology 'x'"),
        ({"words": "anonymous"}, "reserved"),
        ({"words": "a b"}, "not a name"),
    ],
)
def test_an_owner_who_cannot_be_is_refused(named: dict[str, str], why: str) -> None:
    with pytest.raises(SquallError, match=why):
        begun(**named)


def test_nothing_is_confirmed_while_nimbus_could_change_it() -> None:
    with pytest.raises(SquallError, match="Nimbus still runs at nimbus1:6627"):
        begun(words="alice").confirmed((WORDS, LINES), NIMBUSES)


def test_what_was_not_shown_is_not_confirmed() -> None:
    """A topology more, one less, and one that is another now."""
    other = Found.of(WORDS.id, WORDS.owner, WORDS.hashes, b"another base")
    new = Found.of("new-3-1700000000", "dave", {}, b"base")
    for now, which in (((WORDS, LINES, new), new), ((LINES,), WORDS), ((other, LINES), WORDS)):
        with pytest.raises(SquallError, match=f"{which.id} is not as 'begin' has shown it"):
            begun(words="alice").confirmed(now, ())


def test_the_file_keeps_all_of_it() -> None:
    found = begun(words="alice").confirmed((WORDS, LINES), ())
    found.validate()
    assert Procedure.from_json(found.to_json()) == found
    for text in ("", "{}", '{"state": "king"}', "[]"):
        with pytest.raises(ValueError, match=r".*"):
            Procedure.from_json(text)
