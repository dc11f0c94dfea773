"""What counts no longer, as a daemon knows it that accepts tokens and reads no ZooKeeper: the UI,
the logviewer, a supervisor.

It asks Nimbus for the signed register of tokens every ten seconds, keeps the highest number on its
own disk, and refuses lower ones. While Nimbus is away the last one counts. Before the first one it
accepts no token. Where tokens are rarely shown and daemons are many, it asks only then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from squall_common.authentication.files import RevokedFile, Trusted
from squall_common.daemon.files import make_private_dirs, write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.errors import SquallError
from squall_common.security.jws import SignatureError
from squall_common.security.revocation import TokenRegister, newest
from squall_common.security.signing import Trust, is_by_newest
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

REFRESH_SECS = 10.0

# Asks Nimbus: the number of the register that is known -> the newer one's text, or "".
Fetch = Callable[[int], Awaitable[str]]


class FollowedRevocations:
    """Implements `authenticator.Revoked`. `revoked` is the path of the CA's own list, `folder` is
    where both are kept. With `on_demand`, Nimbus is asked when `ready` is called, and not again
    within ten seconds."""

    def __init__(
        self,
        trusted: Trusted,
        folder: Path,
        *,
        revoked: str | None,
        fetch: Fetch,
        on_demand: bool = False,
    ) -> None:
        self._on_demand = on_demand
        self._ask_again_at = 0.0  # monotonic
        self._folder = folder
        self._file = folder / "token-register.jws"
        self._certificates = RevokedFile(revoked, trusted, folder / "revoked-certificates.jws")
        self._trust = Trust(trusted.cluster, trusted.ca, self._certificates.serials)
        self._fetch = fetch
        self._register: TokenRegister | None = None
        self._trusted = trusted
        self._text = ""  # the register as it was signed
        self._throttle = Throttle()
        self._lock = asyncio.Lock()
        self._tasks = BackgroundTasks(
            lambda task, error: log.error("task_crashed", task=task, exc_info=error)
        )

    def serials(self) -> frozenset[int]:
        return self._certificates.serials()

    def tokens(self) -> TokenRegister | None:
        return self._register

    def open(self) -> None:
        """Read the disk. Raises SquallError: a daemon does not start without what it knew."""
        make_private_dirs(self._folder)
        self._certificates.open()
        if self._file.exists():
            try:
                # Also by a Nimbus that was revoked since: it was good when it was kept.
                past = Trust(self._trust.cluster, self._trust.ca)
                self._text = self._file.read_text("ascii")
                self._register = TokenRegister.verify(self._text, past)
            except (OSError, ValueError) as error:
                raise SquallError(
                    f"the register of tokens, {self._file}, cannot be read: {error}",
                    hint="Remove it to go by what Nimbus has.",
                ) from error

    def start(self) -> None:
        """Begin to follow them."""
        if self._on_demand:
            self._tasks.every("revoked certificates", REFRESH_SECS, self._refresh_unasked)
        else:
            self._tasks.start("first revocations", self.ready())
            self._tasks.every("revocations", REFRESH_SECS, self.refresh)

    async def close(self) -> None:
        """End that."""
        await self._tasks.close()

    async def refresh(self) -> None:
        """Ask once. Never raises for a Nimbus that is away, or a register that is refused."""
        async with self._lock:
            await self._refresh()

    async def ready(self) -> None:
        """Ask now if no register is known yet; with `on_demand`, if the last answer is old."""
        if not self._is_ready():
            async with self._lock:
                if not self._is_ready():
                    await self._refresh()
                    self._ask_again_at = time.monotonic() + REFRESH_SECS

    def _is_ready(self) -> bool:
        if self._on_demand:
            return time.monotonic() < self._ask_again_at
        return self._register is not None

    async def _refresh_unasked(self) -> None:
        """With `on_demand`: what cannot wait for a token. A register of a CA that does not stay
        could not be read after the next start."""
        await self._refresh_certificates()
        if self._text and not is_by_newest(self._text, self._trusted.ca):
            await self.refresh()

    async def _refresh_certificates(self) -> None:
        why = await asyncio.to_thread(self._certificates.refresh)
        if why is not None:
            self._complain("revoked_certificates_refused", why)

    async def _refresh(self) -> None:
        await self._refresh_certificates()
        known = -1 if self._register is None else self._register.number
        try:
            text = await self._fetch(known)
        except Exception as error:
            self._complain("token_register_not_read", error)
            return
        try:
            seen = TokenRegister.verify(text, self._trust) if text else TokenRegister()
        except SignatureError as error:
            self._complain("token_register_refused", error)
            return
        if seen.number < known or (not text and known >= 0):
            return  # nothing new
        self._register = seen if self._register is None else newest(self._register, seen)
        if text:
            self._text = text
            try:
                await asyncio.to_thread(write_atomic, self._file, text.encode(), mode=0o600)
            except OSError as error:
                self._complain("token_register_not_written", error)

    def _complain(self, event: str, reason: object) -> None:
        left_out = self._throttle.left_out(event)
        if left_out is not None:
            log.error(event, reason=reason, left_out=left_out)
