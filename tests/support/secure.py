"""What connectors promise of TLS and passwords, for the tests of each against its own server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from squall import Bolt, Spout
from squall.testing.connectors import SinkContract, SourceContract, wait_until

#: The environment variable of the worker that holds the password.
VARIABLE = "CONNECTOR_PASSWORD"
WRONG = "p4ssw0rd"


class _Values(SourceContract, SinkContract):
    def __init__(self, record_field: str) -> None:
        # Of this object: what is under test differs in it.
        self.record_field = record_field  # type: ignore[misc]


def check_writes(sink: Bolt, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink connects with TLS and the right password, and writes the value "1"."""
    monkeypatch.setenv(VARIABLE, password)
    with SinkContract().running_sink(sink, fields=["value"]) as (feeder, run):
        feeder.feed(["1"], 1)
        wait_until("the ack", lambda: feeder.acked == [1] or run.errors)
        assert not run.errors


def check_reads(
    source: Spout,
    password: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    field: str = "value",
    put: Callable[[], None] = lambda: None,
) -> None:
    """The source connects with TLS and the right password, and reads the record "1"."""
    monkeypatch.setenv(VARIABLE, password)
    with _Values(field).running_source(source) as (bolt, run, _):
        put()
        wait_until("the record", lambda: bolt.got == ["1"] or run.errors)
        assert not run.errors


def check_refusal(
    component: Spout | Bolt,
    monkeypatch: pytest.MonkeyPatch,
    *,
    password: str = WRONG,
    says: str = "",
) -> None:
    """A wrong password, or an authority that is not trusted, is an error of the topology that does
    not show the password."""
    monkeypatch.setenv(VARIABLE, password)
    values = _Values("value")
    running = (
        values.running_source(component)
        if isinstance(component, Spout)
        else values.running_sink(component, fields=["value"])
    )
    with running as found:
        run = found[1]
        if isinstance(component, Bolt):
            found[0].feed(["1"], 1)
        wait_until("an error", lambda: run.errors)
        text = " ".join(map(str, run.errors))
    assert says.lower() in text.lower(), text
    assert password not in text
