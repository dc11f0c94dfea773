"""Who looks at the UI's pages: in an open cluster everyone alike, in a secured one each user apart.

A viewer has connections to Nimbus of its own, which call as the user, and a hub that reads through
them. So Nimbus decides about everything that a page shows, no answer for one user is ever shown to
another, and what is revoked at Nimbus ends here at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from squall_common.client.nimbus import NimbusClient
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.daemon.web import HttpError, call_of
from squall_common.security.identity import Principal, Role
from squall_thrift import storm
from squall_thrift.serving.authentication import Credentials
from squall_thrift.serving.authorization import PUBLIC, Call
from squall_ui.access.authenticator import Visitor
from squall_ui.access.secured import SecuredWeb
from squall_ui.live.hub import Hub
from squall_ui.nimbus.gateway import Connection, NimbusGateway

_IDLE_SECS = 120.0
_LOOK_SECS = 5.0
VIEWERS_MAX = 200


@dataclass(slots=True)
class Viewer:
    """What the routes use for one user."""

    nimbus: NimbusGateway
    hub: Hub
    visitor: Visitor | None = None  # None: the cluster is open
    used: float = field(default_factory=time.monotonic)
    closed: bool = False

    def touch(self) -> None:
        """It is used now."""
        self.used = time.monotonic()

    async def close(self) -> None:
        """Stop reading, and close the connections. Streams of it end soon."""
        self.closed = True
        await self.hub.stop()
        await self.nimbus.close()


class Viewers(Protocol):
    """Finds the viewer of a request."""

    def of(self, request: web.Request) -> Viewer:
        """Raises HttpError."""
        ...


class OneViewer:
    """In an open cluster."""

    def __init__(self, nimbus: NimbusGateway, hub: Hub) -> None:
        self._viewer = Viewer(nimbus, hub)

    def of(self, request: web.Request) -> Viewer:
        return self._viewer

    def start(self) -> None:
        """Begin to read the cluster."""
        self._viewer.hub.start()

    async def close(self) -> None:
        """End that."""
        await self._viewer.close()


class UserViewers:
    """In a secured cluster: one for each token or certificate. One that is not used is closed."""

    def __init__(
        self,
        secured: SecuredWeb,
        client: ClientOptions,
        make_hub: Callable[[NimbusGateway], Hub],
        *,
        most: int = VIEWERS_MAX,
    ) -> None:
        self._secured = secured
        self._client = client
        self._make_hub = make_hub
        self._most = most
        self._viewers: OrderedDict[Hashable, Viewer] = OrderedDict()  # longest unused first
        self._tasks = BackgroundTasks()

    def of(self, request: web.Request) -> Viewer:
        visitor: Visitor = call_of(request).identity
        key = _key(visitor)
        viewer = self._viewers.get(key)
        if viewer is None:
            viewer = self._make(visitor)
            self._viewers[key] = viewer
            viewer.hub.start()
        viewer.touch()
        self._viewers.move_to_end(key)
        return viewer

    def start(self) -> None:
        """Begin to close viewers that are not used."""
        self._tasks.every("viewers", _LOOK_SECS, self._look)

    async def close(self) -> None:
        """Close all."""
        await self._tasks.close()
        await asyncio.gather(*(one.close() for one in self._viewers.values()))
        self._viewers.clear()

    def _make(self, visitor: Visitor) -> Viewer:
        while len(self._viewers) >= self._most:
            key = next(iter(self._viewers))
            if time.monotonic() - self._viewers[key].used < 1.0:
                raise HttpError(503, "503 Service Unavailable", "too many users look at the pages")
            self._tasks.start("viewer", self._viewers.pop(key).close())
        user = visitor.caller.user
        assert user is not None
        credentials: Credentials = self._secured.own.for_user(visitor.token, user)

        async def connect(options: ClientOptions) -> Connection:
            return await NimbusClient.connect(options, credentials=credentials)

        nimbus = NimbusGateway(self._client, connect=connect)
        return Viewer(nimbus, self._make_hub(nimbus), visitor)

    async def _look(self) -> None:
        now = time.monotonic()
        for key, viewer in list(self._viewers.items()):
            if self._viewers.get(key) is not viewer:
                continue  # it made room while another was closed, and its user may have a new one
            assert viewer.visitor is not None
            # Of its proof, not of one of its sessions.
            proof = Visitor(viewer.visitor.proved, viewer.visitor.token)
            if now - viewer.used > _IDLE_SECS or self._secured.peers.ended(proof) is not None:
                self._viewers.pop(key, None)
                await viewer.close()


def _key(visitor: Visitor) -> Hashable:
    proved = visitor.proved
    if proved.token is not None:
        return ("token", proved.token.id, proved.principal)
    return ("certificate", proved.serial, proved.principal)


class SignedIn:
    """The UI's authorizer: a user, within its token's limits. What the user may see or do is
    decided by Nimbus, which each route asks as this user."""

    authenticates = True

    def authorize(self, call: Call, permission: str) -> None:
        """Raises AuthorizationException."""
        if permission == PUBLIC:
            return
        caller: Principal | None = None if call.identity is None else call.identity.caller
        if caller is None or caller.role is not Role.USER:
            raise storm.AuthorizationException(msg="the pages are for users")
        if caller.scope.actions is not None and permission not in caller.scope.actions:
            raise storm.AuthorizationException(msg=f"this token is not for {permission}")
