"""Errors of clients, in words that name the server and say what to do."""

from __future__ import annotations

import socket
import ssl

import pytest

from squall_common.errors import InvalidTopologyError
from squall_connectors.base.outages import (
    OutageError,
    explained,
    outage_line,
    shown_server,
    shown_servers,
)

SERVER = "redis://cache.example:6379"


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('10.0.0.7', 6379)"), "is the server"),
        (Exception("failed: Connection refused (after 0ms in state CONNECT)"), "is the server"),
        (socket.gaierror(-2, "Name or service not known"), "DNS"),
        (Exception('could not translate host name "x" to address'), "DNS"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "speak TLS"),
        (Exception("received invalid response to SSL negotiation: H"), "speak TLS"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed: unable to get"), "ca_file"),
        (
            ssl.SSLCertVerificationError(1, "certificate verify failed: Hostname mismatch"),
            "another name",
        ),
        (Exception("WRONGPASS invalid username-password pair"), "the password"),
        (Exception("https://search.example:9200 answers 401"), "the password"),
        (Exception("Invalid response size 1213486160 (0..100000000)"), "another protocol"),
        (Exception("KafkaError{code=UNSUPPORTED_VERSION}"), "docs/connectors.md"),
        (ConnectionResetError(104, "Connection reset by peer"), "ended the connection"),
        (Exception("SSL error: unexpected eof while reading"), "ended the connection"),
        (Exception("terminating connection due to administrator command"), "ended the connection"),
        (TimeoutError(), "in time"),
        (ConnectionError("the connection is lost: Keep alive timeout"), "in time"),
    ],
)
def test_an_outage_names_the_server_the_error_and_what_to_do(error: Exception, hint: str) -> None:
    found = explained(raised(error), SERVER)
    assert isinstance(found, OutageError)
    assert found.message.startswith(f"{SERVER}: {type(error).__name__}")
    assert str(error) in found.message
    assert found.hint is not None
    assert hint in found.hint
    assert found.__traceback__ is error.__traceback__


def test_the_cause_of_an_error_counts() -> None:
    """Clients wrap what the operating system said in errors of their own."""
    try:
        try:
            raise ConnectionRefusedError(111, "no")
        except ConnectionRefusedError as inner:
            raise RuntimeError("cannot connect") from inner
    except RuntimeError as error:
        found = explained(error, SERVER)
    assert isinstance(found, OutageError)
    assert found.hint is not None
    assert "is the server running" in found.hint


def test_a_server_that_the_error_names_is_not_named_twice() -> None:
    error = ConnectionRefusedError(f"{SERVER} refused")
    assert str(explained(error, SERVER)).count(SERVER) == 1


def test_an_error_of_unknown_cause_keeps_its_words_and_gets_the_server() -> None:
    found = explained(ValueError("odd"), SERVER)
    assert isinstance(found, OutageError)
    assert (found.message, found.hint) == (f"{SERVER}: ValueError: odd", None)


def test_an_error_to_which_nothing_can_be_added_stays_as_it_is() -> None:
    odd, ours = ValueError("odd"), InvalidTopologyError("timeout is -1", hint="give a positive one")
    assert explained(odd, None) is odd
    assert explained(ours, SERVER) is ours


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert "one" in str(explained(one, SERVER))


def test_a_line_for_logs_has_no_line_break() -> None:
    line = outage_line(TimeoutError(), SERVER)
    assert "\n" not in line
    assert line.startswith(f"OutageError: {SERVER}: TimeoutError No answer came in time")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("redis://ann:secret@cache.example:6379/0?password=secret", "redis://cache.example:6379"),
        ("redis://ann:se@cret@cache.example", "redis://cache.example"),
        ("redis://:se,cret@cache.example:6379/0", "redis://cache.example:6379"),
        ("redis://:se/c?ret@cache.example:6379", "redis://cache.example:6379"),
        ("redis://:se://cret@cache.example", "redis://cache.example"),
        ("unix:///run/redis.sock?password=secret", "unix://"),
        ("", ""),
    ],
)
def test_a_server_is_shown_without_what_may_be_secret(given: str, shown: str) -> None:
    assert shown_server(given) == shown


def test_several_servers_are_shown_one_by_one() -> None:
    shown = shown_servers("nats://a:secret@one:4222, b:secret@two:4222")
    assert shown == "nats://one:4222,two:4222"
    assert shown_servers("broker1:9092,broker2:9092") == "broker1:9092,broker2:9092"
