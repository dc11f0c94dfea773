"""Gives workers of a secured cluster the tokens by which they prove who they are.

Nimbus issues them for the slots that it has assigned to this node. A worker starts without one and
gets it within some seconds, since launches do not wait for Nimbus; while Nimbus is away, the last
one counts until it ends. The file lies in the worker's folder (`give_file`), and has all that a
client needs: the token, and the CA by whose certificate it knows the servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from squall_common.authentication.worker_identity import identity_json
from squall_common.client.reporting import Connect
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import NimbusError
from squall_common.security.certificates import Authorities, CertificateError
from squall_common.security.signing import is_by_newest
from squall_common.security.worker_tokens import RENEW_SECS, slot_named
from squall_common.worker_files.launch_spec import IDENTITY_FILE
from squall_supervisor.blobs.credentials import give_file
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

LOOK_SECS = 1.0
# Between two questions for a token in place of one that stands on a CA that goes.
PASSING_SECS = 15.0
_PAUSE_SECS, _PAUSE_SECS_MAX = 2.0, 30.0
_CALL_SECS = 10.0
_TOPOLOGIES_A_CALL = 500
_SEEN_MAX = 1_000

# A slot: its port, and the topology on it.
Slot = tuple[int, str]


class Passing:
    """Which tokens stand on a CA that does not stay. Looks at each token once for each CA."""

    def __init__(self) -> None:
        self._ca: tuple[str, Authorities | None] = ("", None)
        self._seen: dict[str, bool] = {}

    def is_passing(self, token: str, ca: str) -> bool:
        """`ca` is the certificate of the CA, or those of two, in PEM."""
        if ca != self._ca[0] or len(self._seen) > _SEEN_MAX:
            self._seen.clear()
            try:
                self._ca = (ca, Authorities.read(ca.encode()))
            except CertificateError:
                self._ca = (ca, None)
        if self._ca[1] is None:
            return False
        if token not in self._seen:
            self._seen[token] = not is_by_newest(token, self._ca[1])
        return self._seen[token]


class WorkerTokens:
    """`running()` returns the folders of the workers that run now, by slot; `ca` returns
    the certificate of the cluster's CA, in PEM; two while the CA's key turns. A token that stands
    on the one that goes is replaced as soon as Nimbus has a certificate of the one that stays."""

    def __init__(
        self,
        connect: Connect,
        supervisor_id: str,
        *,
        ca: Callable[[], str],
        running: Callable[[], Mapping[Slot, Path]],
        clock: Clock,
    ) -> None:
        self._connect = connect
        self._supervisor_id = supervisor_id
        self._ca = ca
        self._running = running
        self._clock = clock
        self._tokens: dict[Slot, tuple[str, float]] = {}  # with the time when it came
        self._given: dict[Path, tuple[str, str]] = {}  # token and CA by the worker's folder
        self._passing = Passing()
        self._next_try = 0.0
        self._pause_secs = _PAUSE_SECS
        self._throttle = Throttle()

    async def look(self) -> None:
        """Get the tokens that are missing or old, and give them to the workers; once each
        `LOOK_SECS`."""
        running = dict(self._running())
        self._tokens = {slot: one for slot, one in self._tokens.items() if slot in running}
        self._given = {
            folder: text for folder, text in self._given.items() if folder in set(running.values())
        }
        now, ca = self._clock.monotonic(), self._ca()
        due = {
            slot
            for slot in running
            if slot not in self._tokens or now - self._tokens[slot][1] >= self._renew_secs(slot, ca)
        }
        if due and now >= self._next_try:
            await self._fetch(due, now)
        for slot, folder in running.items():
            token = self._tokens.get(slot)
            if token is not None and self._given.get(folder) != (token[0], ca):
                await asyncio.to_thread(self._give, folder, token[0], ca)

    def _renew_secs(self, slot: Slot, ca: str) -> float:
        return PASSING_SECS if self._passing.is_passing(self._tokens[slot][0], ca) else RENEW_SECS

    async def _fetch(self, due: set[Slot], now: float) -> None:
        topologies = sorted({topology_id for _, topology_id in due})
        try:
            async with asyncio.timeout(_CALL_SECS):
                connection = await self._connect()
                try:
                    for begin in range(0, len(topologies), _TOPOLOGIES_A_CALL):
                        asked = topologies[begin : begin + _TOPOLOGIES_A_CALL]
                        found = await connection.call("getWorkerTokens", self._supervisor_id, asked)
                        for text in found.values():
                            # While a topology follows another one on a port, both run: each gets
                            # what names it.
                            slot = slot_named(text)
                            if slot is not None and slot in due:
                                self._tokens[slot] = (text, now)
                finally:
                    await connection.close()
        except (
            NimbusError,
            ThriftApplicationError,
            storm.AuthorizationException,
            TimeoutError,
        ) as error:
            self._complain("worker_tokens_not_fetched", str(error) or "no answer in time")
        if due <= self._tokens.keys() and all(self._tokens[one][1] == now for one in due):
            self._pause_secs = _PAUSE_SECS
            return
        # Nimbus is away, or does not know yet that it has assigned them.
        self._next_try = now + self._pause_secs
        self._pause_secs = min(2 * self._pause_secs, _PAUSE_SECS_MAX)

    def _give(self, folder: Path, token: str, ca: str) -> None:
        try:
            give_file(folder, IDENTITY_FILE, identity_json(token, ca))
        except OSError as error:  # its worker has just ended, or the disk is full
            self._complain("worker_token_not_given", error, folder.name)
        else:
            self._given[folder] = (token, ca)

    def _complain(self, event: str, error: object, worker_id: str = "") -> None:
        if (left_out := self._throttle.left_out((event, worker_id))) is not None:
            log.warning(event, worker_id=worker_id, error=error, left_out=left_out)
