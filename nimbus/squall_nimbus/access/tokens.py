"""The tokens of the cluster: the leader issues and revokes them, every Nimbus verifies them.

The register (`squall_common.security.revocation`) is signed, and published in ZooKeeper. Each
Nimbus looks there every ten seconds, and keeps the highest number that it has seen on its own disk:
a ZooKeeper that is rolled back, or emptied, revives no token.

When the certificate of the Nimbus that signed it is revoked, the register on a Nimbus' own disk
counts on: it was good when it was kept. In ZooKeeper it is refused, and the leader publishes its
own in its place. A Nimbus that knows no register goes by what a revoked one has revoked: it can
only deny.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from pathlib import Path

from squall_common.authentication.files import RevokedFile, Trusted
from squall_common.cluster.leader import Fence, NotLeaderError
from squall_common.cluster.state import ClusterState
from squall_common.daemon.clock import Clock
from squall_common.daemon.files import write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.security.jws import SignatureError
from squall_common.security.revocation import TokenRegister, newest
from squall_common.security.signing import Trust, Use, is_by_newest
from squall_common.security.tokens import Token, TokenError, make_token, sign_token
from squall_common.security.worker_tokens import make_worker_token, sign_worker_token
from squall_nimbus.access.keys import SigningKeys
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)


class Tokens:
    """Implements `squall_common.authentication.authenticator.Revoked`."""

    def __init__(
        self,
        trusted: Trusted,
        state: ClusterState,
        folder: Path,
        *,
        revoked: RevokedFile,
        fence: Callable[[], Awaitable[Fence]],
        clock: Clock,
        keys: SigningKeys,
    ) -> None:
        self._state = state
        self._file = folder / "token-register.jws"
        self._revoked = revoked
        self._fence = fence
        self._clock = clock
        self._trust = Trust(trusted.cluster, trusted.ca, revoked.serials)
        self._past = Trust(trusted.cluster, trusted.ca)  # by Nimbus nodes that were revoked, too
        self._trusted = trusted
        self._refused = False  # what is in ZooKeeper
        self._is_passing = False  # it stands on a CA that does not stay
        self._register = TokenRegister()
        self._signed = ""  # the register's text
        self._unwritten: bytes | None = None  # a register that could not be written to the disk yet
        self._keys = keys
        self._lock = asyncio.Lock()
        self._throttle = Throttle()

    def serials(self) -> Collection[int]:
        """Of certificates that were revoked."""
        return self._revoked.serials()

    def tokens(self) -> TokenRegister:
        """The newest register that this Nimbus knows."""
        return self._register

    def signed(self, known: int) -> str:
        """The newest register as it was signed, for another verifier; empty if its number is not
        higher than `known`."""
        return self._signed if self._register.number > known else ""

    def open(self) -> None:
        """Read the disk. Raises SquallError: without what it has revoked, Nimbus does not start."""
        self._revoked.open()
        if self._file.exists():
            try:
                text = self._file.read_text("ascii")
                self._register, self._signed = TokenRegister.verify(text, self._past), text
            except (OSError, ValueError) as error:
                raise SquallError(
                    f"the register of tokens, {self._file}, cannot be read: {error}",
                    hint="Remove it to go by what ZooKeeper has.",
                ) from error

    async def refresh(self) -> None:
        """Look at what was revoked, by the CA and by the leader. Raises StoreError."""
        why = await asyncio.to_thread(self._revoked.refresh)
        if why is not None and (left_out := self._throttle.left_out("revoked")) is not None:
            log.error("revoked_certificates_refused", reason=why, left_out=left_out)
        async with self._lock:
            await self._look()
        if (self._refused or self._is_passing) and self._register.number:
            try:
                await self._change(lambda register: replace(register, number=register.number + 1))
            except (NotLeaderError, SquallError, SignatureError) as error:
                log.debug("token_register_not_replaced", error=error)  # the leader does it

    async def _look(self) -> None:
        await self._write()
        found = await self._state.token_register()
        self._refused = self._is_passing = False
        if found is None:
            return
        text = found.decode("ascii", "replace")
        try:
            seen = TokenRegister.verify(text, self._trust)
        except SignatureError as error:
            self._refused = True
            if (left_out := self._throttle.left_out("register")) is not None:
                log.error("token_register_refused", reason=error, left_out=left_out)
            if self._register.number:
                return
            try:
                seen = TokenRegister.verify(text, self._past)
            except SignatureError:
                return
        self._is_passing = self._trusted.is_of_newest and not is_by_newest(text, self._trusted.ca)
        if seen.number < self._register.number:
            if (left_out := self._throttle.left_out("rolled back")) is not None:
                log.error(
                    "token_register_rolled_back",
                    number=seen.number,
                    kept=self._register.number,
                    left_out=left_out,
                )
            return
        register = newest(self._register, seen)
        if register != self._register:
            await self._keep(register, found)

    async def create(
        self,
        user: str,
        lifetime_secs: int,
        label: str,
        actions: Collection[str] | None,
        topologies: Collection[str] | None,
    ) -> str:
        """Issue a token, and return its text. Raises SquallError, NotLeaderError, StoreError."""
        now = self._clock.time()
        key = self._keys.key(Use.TOKEN)
        try:
            token = make_token(
                user, lifetime_secs, now, label=label, actions=actions, topologies=topologies
            )
            token = replace(token, authority=self._trusted.generation)
            await self._change(lambda register: register.with_token(token, now))
        except TokenError as error:
            raise SquallError(str(error)) from error
        return sign_token(token, key)

    def of_worker(self, topology_id: str, owner: str, node: str, port: int) -> str:
        """A token for the worker of a slot; it is in no register: it ends with its slot. Raises
        SquallError."""
        try:
            token = make_worker_token(topology_id, owner, node, port, self._clock.time())
        except TokenError as error:
            raise SquallError(str(error)) from error
        return sign_worker_token(token, self._keys.key(Use.TOKEN))

    def issued(self, user: str | None) -> list[Token]:
        """The tokens that live, of one user or of all, the oldest first."""
        now = self._clock.time()
        return sorted(
            (
                one
                for one in self._register.issued.values()
                if one.expires > now and user in (None, one.user)
            ),
            key=lambda one: one.issued,
        )

    def owner(self, token_id: str) -> str | None:
        """Whose token it is; None if there is none."""
        token = self._register.issued.get(token_id)
        return None if token is None else token.user

    async def revoke(self, token_id: str) -> None:
        """Raises as `create` does."""
        try:
            await self._change(
                lambda register: register.without_token(token_id, self._clock.time())
            )
        except TokenError as error:
            raise SquallError(str(error)) from error

    async def revoke_user(self, user: str) -> None:
        """Revoke all tokens of a user. Raises as `create` does."""
        await self._change(lambda register: register.without_user(user, self._clock.time()))

    async def _change(self, change: Callable[[TokenRegister], TokenRegister]) -> None:
        """Publish the next register, then keep it: what was answered is known to all."""
        async with self._lock:
            fence = await self._fence()
            await self._look()
            register = change(self._register)
            text = register.sign(self._keys.key(Use.RECORD), self._clock.time()).encode()
            await self._state.put_token_register(text, guard=fence)
            await self._keep(register, text)

    async def _keep(self, register: TokenRegister, text: bytes) -> None:
        self._register, self._unwritten, self._signed = register, text, text.decode("ascii")
        await self._write()

    async def _write(self) -> None:
        """Write what could not be written before. It counts meanwhile: a full disk revives no
        token."""
        if self._unwritten is None:
            return
        try:
            await asyncio.to_thread(write_atomic, self._file, self._unwritten, mode=0o600)
        except OSError as error:
            if (left_out := self._throttle.left_out("not written")) is not None:
                log.error("token_register_not_written", error=error, left_out=left_out)
            return
        self._unwritten = None
