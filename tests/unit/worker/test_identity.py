"""A worker gets its identity tokens from Nimbus, and renews them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from squall_common.daemon.clock import ManualClock
from squall_common.errors import IdentityTokenError, NimbusConnectionError
from squall_thrift import storm
from squall_thrift.protocol.messages import ApplicationErrorType, ThriftApplicationError
from squall_worker import identity
from squall_worker.identity import IdentityTokens, expiry_of

A, B = "https://a", "https://b"
ID = "words-1-17"


class Nimbus:
    """Issues numbered tokens for an hour."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.error: Exception | None = None
        self.refused: set[str] = set()
        self.asked: list[str] = []
        self.open = 0

    async def connect(self) -> Any:
        if isinstance(self.error, NimbusConnectionError):
            raise self.error
        self.open += 1
        return self

    async def call(self, method: str, topology_id: str, audience: str) -> str:
        assert (method, topology_id) == ("getIdentityToken", ID)
        self.asked.append(audience)
        if self.error is not None:
            raise self.error
        if audience in self.refused:
            raise ThriftApplicationError(ApplicationErrorType.INTERNAL_ERROR, "not declared")
        return token(self.clock.time() + 3_600, len(self.asked))

    async def close(self) -> None:
        self.open -= 1


def token(expires: float, number: int) -> str:
    body = json.dumps({"exp": int(expires), "number": number}).encode()
    return f"head.{base64.urlsafe_b64encode(body).rstrip(b'=').decode()}.signature"


def number_of(text: str) -> int:
    body = text.split(".")[1]
    return int(json.loads(base64.urlsafe_b64decode(body + "==="))["number"])


async def test_it_asks_once_for_each_audience_and_again_when_a_third_is_left() -> None:
    clock = ManualClock()
    nimbus = Nimbus(clock)
    tokens = IdentityTokens([A, B], ID, nimbus.connect, clock)
    await tokens.first()
    for _ in range(3):
        await tokens.look()
    assert nimbus.asked == [A, B]
    assert number_of(tokens.held.get(A)) == 1
    clock.advance(2_399)
    await tokens.look()
    assert nimbus.asked == [A, B]
    clock.advance(2)
    await tokens.look()
    assert nimbus.asked == [A, B, A, B]
    assert number_of(tokens.held.get(A)) == 3
    assert nimbus.open == 0


@pytest.mark.parametrize(
    "error",
    [
        NimbusConnectionError("Nimbus is away"),
        storm.AuthorizationException(msg="Nimbus is away"),
        storm.NotAliveException(msg="Nimbus is away"),
        ThriftApplicationError(ApplicationErrorType.INTERNAL_ERROR, "Nimbus is away"),
    ],
)
async def test_while_nimbus_refuses_it_asks_less_often_and_says_why(error: Exception) -> None:
    clock = ManualClock()
    nimbus = Nimbus(clock)
    tokens = IdentityTokens([A], ID, nimbus.connect, clock)
    await tokens.look()
    first = tokens.held.get(A)
    nimbus.error = error
    clock.advance(2_401)
    attempts = 0
    for _ in range(1_100):
        before = len(nimbus.asked)
        await tokens.look()
        attempts += len(nimbus.asked) - before
        clock.advance(1)
    assert attempts < 60
    assert tokens.held.get(A) == first
    clock.advance(120)
    with pytest.raises(IdentityTokenError, match=r"ended.*Nimbus is away"):
        tokens.held.get(A)
    nimbus.error = None
    clock.advance(31)
    await tokens.look()
    assert tokens.held.get(A) != first
    assert nimbus.open == 0


async def test_one_audience_that_is_refused_keeps_no_other_from_its_token() -> None:
    clock = ManualClock()
    nimbus = Nimbus(clock)
    nimbus.refused = {A}
    tokens = IdentityTokens([A, B], ID, nimbus.connect, clock)
    await tokens.look()
    assert tokens.held.get(B)
    with pytest.raises(IdentityTokenError, match="not declared"):
        tokens.held.get(A)


async def test_a_start_waits_for_the_first_ones_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    nimbus = Nimbus(clock)
    nimbus.error = NimbusConnectionError("Nimbus is away")
    slept = []

    async def sleep(secs: float) -> None:
        slept.append(secs)
        clock.advance(secs)

    monkeypatch.setattr(identity.asyncio, "sleep", sleep)
    tokens = IdentityTokens([A], ID, nimbus.connect, clock)
    await tokens.first()
    assert sum(slept) == pytest.approx(identity.FIRST_SECS)
    with pytest.raises(IdentityTokenError, match="yet: Nimbus is away"):
        tokens.held.get(A)


@pytest.mark.parametrize("text", ["", "a.b", "a.!.c", "a.e30.c", "a.W10.c"])
def test_what_is_not_a_token_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="not an identity token") as refused:
        expiry_of(text)
    assert refused.value.__cause__ is None
