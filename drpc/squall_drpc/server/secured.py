"""What a DRPC server of a secured cluster has besides: who calls, and who may do what.

Callers are users, by certificate or token; those who serve functions are workers, by their tokens.
It needs no ZooKeeper: what was revoked, and which slots their topologies have left, it asks Nimbus
every ten seconds. While Nimbus is away, the last answer counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from squall_common.authentication.authenticator import PeerAuthenticator
from squall_common.authentication.files import Trusted
from squall_common.authentication.followed import REFRESH_SECS, FollowedRevocations
from squall_common.authentication.groups import Groups, groups_source
from squall_common.authentication.programs import ProgramPeers
from squall_common.authentication.provider import provider_of
from squall_common.client.nimbus import NimbusClient
from squall_common.config.options.typed import ClientOptions, DrpcOptions
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.security.access import SecuredAccess
from squall_common.security.acl import ClusterAcl, Members, impersonation_of
from squall_common.security.audit import AuditFile, AuditLog
from squall_common.security.worker_tokens import WorkerToken, worker_name
from squall_drpc.server.functions import FunctionLists
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

_CALL_SECS = 10.0
_READY_SECS = 5.0
_SLOTS_MAX = 50_000
_ASKED_MAX = 1_000


class LiveSlots:
    """Of the slots whose workers have shown a token: those that are no longer their topologies',
    which have moved or ended. `fetch` asks Nimbus: names (`worker_name`) -> those that live."""

    def __init__(self, fetch: Callable[[Sequence[str]], Awaitable[Sequence[str]]]) -> None:
        self._fetch = fetch
        self._seen: OrderedDict[str, bool] = OrderedDict()  # whether it has ended
        # Ended, and a token was shown again: a topology can come back to a slot.
        self._again: set[str] = set()

    def ended(self, token: WorkerToken) -> str | None:
        """Why a worker's token counts no longer, or None."""
        name = worker_name(token)
        if name not in self._seen:
            self._seen[name] = False
            if len(self._seen) > _SLOTS_MAX:
                self._again.discard(self._seen.popitem(last=False)[0])
        self._seen.move_to_end(name)
        if not self._seen[name]:
            return None
        self._again.add(name)
        return f"{token.topology_id} is no longer on {token.node}:{token.port}"

    async def refresh(self) -> None:
        """Ask once. Raises what `fetch` does."""
        names = [name for name, ended in self._seen.items() if not ended or name in self._again]
        self._again.clear()
        for begin in range(0, len(names), _ASKED_MAX):
            asked = names[begin : begin + _ASKED_MAX]
            live = set(await self._fetch(asked))
            for name in asked:
                if name in self._seen:
                    self._seen[name] = name not in live


class SecuredDrpc:
    """The parts, put together. Raises ConfigError, OSError."""

    def __init__(
        self,
        trusted: Trusted,
        options: DrpcOptions,
        client: ClientOptions,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._now = now
        self.functions = FunctionLists(
            options.drpc_authorizer_acl_filename, strict=options.drpc_authorizer_acl_strict
        )
        self.functions.open()
        local = Path(options.storm_local_dir)
        self.revocations = FollowedRevocations(
            trusted,
            local / "drpc" / "security",
            revoked=options.storm_security_revoked,
            fetch=self._register,
        )
        self.revocations.open()
        self.slots = LiveSlots(self._live)
        acls = ClusterAcl(
            admins=Members.of(options.nimbus_admins, options.nimbus_admins_groups),
            users=Members.of(options.nimbus_users, options.nimbus_groups),
            impersonation=impersonation_of(options.nimbus_impersonation_acl),
        )
        logs = Path(options.storm_log_dir) if options.storm_log_dir else local / "logs"
        self._file = AuditFile(logs / "drpc-audit.log")
        audit = AuditLog(self._file, now)
        self.peers = PeerAuthenticator(
            trusted,
            acls=acls,
            groups=Groups(groups_source(options)),
            revoked=self.revocations,
            audit=audit,
            now=now,
            worker_ended=self.slots.ended,
            provider=provider_of(options),
        )
        self.web_peers = ProgramPeers(self.peers, self.ended, ready=self.revocations.ready)
        self.access = SecuredAccess(acls, audit, ended=self.ended, now=now)
        self._throttle = Throttle()
        self._tasks = BackgroundTasks(
            lambda task, error: log.error("task_crashed", task=task, exc_info=error)
        )

    def ended(self, proved: Any) -> str | None:
        """Why what a peer has proved counts no longer, or None."""
        ends = proved.caller.expires
        if ends is not None and self._now() >= ends:
            return f"the proof of {proved.caller} has ended"
        return self.peers.ended(proved)

    async def start(self) -> None:
        """Begin to follow what is revoked, and the file of functions. Waits a moment for the first
        register of tokens: without it no user's token counts."""
        self.revocations.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_SECS):
                await self.revocations.ready()
        self._tasks.every("live slots", REFRESH_SECS, self._look_at_slots)
        self._tasks.every("functions", REFRESH_SECS, self._look_at_functions)

    async def close(self) -> None:
        """End that."""
        await self._tasks.close()
        await self.revocations.close()
        self._file.close()

    async def _look_at_functions(self) -> None:
        why = await asyncio.to_thread(self.functions.refresh)
        if why is not None:
            self._complain("drpc_functions_refused", why)

    async def _look_at_slots(self) -> None:
        try:
            await self.slots.refresh()
        except Exception as error:
            self._complain("live_slots_not_read", error)

    def _complain(self, event: str, reason: object) -> None:
        if (left_out := self._throttle.left_out(event)) is not None:
            log.error(event, reason=reason, left_out=left_out)

    async def _register(self, known: int) -> str:
        found: str = await self._ask("getTokenRegister", known)
        return found

    async def _live(self, names: Sequence[str]) -> Sequence[str]:
        found: list[str] = await self._ask("getLiveSlots", list(names))
        return found

    async def _ask(self, method: str, *arguments: Any) -> Any:
        async with await NimbusClient.connect(self._client) as nimbus:
            return await nimbus.call(method, *arguments, timeout_secs=_CALL_SECS)
