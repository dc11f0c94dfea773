"""Viewers of users, without a Nimbus: which of them stay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web

from squall_common.authentication.authenticator import Proved
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon import web as listener
from squall_common.security.identity import Channel, Principal, Role
from squall_thrift.serving.authorization import Call
from squall_ui.access.authenticator import Visitor
from squall_ui.access.secured import SecuredWeb
from squall_ui.live.hub import Hub
from squall_ui.nimbus.gateway import NimbusGateway
from squall_ui.viewers import UserViewers, Viewer


class FakeHub:
    def __init__(self) -> None:
        self.reads = False
        self.at_stop: Callable[[], Awaitable[None]] | None = None

    def start(self) -> None:
        self.reads = True

    async def stop(self) -> None:
        self.reads = False
        if self.at_stop is not None:
            await self.at_stop()


class FakeSecured:
    """Every proof counts."""

    @property
    def own(self) -> FakeSecured:
        return self

    peers = own

    def for_user(self, token: str | None, user: str) -> None:
        return None

    def ended(self, visitor: Visitor) -> None:
        return None


def viewers_of(most: int) -> UserViewers:
    def make_hub(nimbus: NimbusGateway) -> Hub:
        return cast(Hub, FakeHub())

    secured = cast(SecuredWeb, FakeSecured())
    return UserViewers(secured, ClientOptions(), make_hub, most=most)


def visit(viewers: UserViewers, user: str) -> Viewer:
    proved = Proved(Principal(Role.USER, user, Channel.CERTIFICATE), serial=1)
    listener._CALL.set(Call("GET /", "127.0.0.1:1", user, Visitor(proved)))
    return viewers.of(cast(web.Request, None))


async def test_a_viewer_that_takes_the_place_of_one_while_others_are_closed_stays() -> None:
    viewers = viewers_of(most=2)
    alice, bob = visit(viewers, "alice"), visit(viewers, "bob")
    long_ago = time.monotonic() - 10_000
    alice.used = bob.used = long_ago
    found: list[Viewer] = []

    async def others_come() -> None:
        carol = visit(viewers, "carol")
        visit(viewers, "dave")  # bob's makes room
        carol.used = long_ago
        found.append(visit(viewers, "bob"))  # carol's makes room

    hub: Any = alice.hub
    hub.at_stop = others_come
    async with asyncio.timeout(20):
        await viewers._look()
    (again,) = found
    assert again is not bob
    assert visit(viewers, "bob") is again, "it is found"
    assert cast(Any, again.hub).reads
    async with asyncio.timeout(20):
        await viewers.close()
    assert not cast(Any, again.hub).reads, "and closed with the others"
