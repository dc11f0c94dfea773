"""What Nimbus has signed for this node in a secured cluster: all that it runs, and of what hashes.

    {storm.local.dir}/supervisor/security/manifest.json   the newest bundle that was taken

A bundle (`squall_common.security.records`) is on the disk before anything is done because of it.
So neither a ZooKeeper that was rolled back, nor a restart, takes this node back to an older one.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from squall_common.authentication.files import Trusted
from squall_common.cluster.store import Store
from squall_common.cluster.stores.verified import VerifiedStore
from squall_common.daemon.clock import Clock
from squall_common.daemon.files import make_private_dirs, write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.errors import ConfigError
from squall_common.security.records import Bundle, ManifestGate, RecordError, next_sequence
from squall_common.security.registrations import Registration
from squall_common.security.signing import Trust
from squall_common.topology.model import Executor
from squall_supervisor.records.assignments import Desired, PortAssignment
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)


class SignedWork:
    """`revoked()` returns the serial numbers of revoked certificates. Call `open` first."""

    def __init__(
        self,
        trusted: Trusted,
        node: str,
        folder: Path,
        *,
        revoked: Callable[[], Collection[int]],
        clock: Clock,
    ) -> None:
        self._trusted = trusted
        self._node = node
        self._file = folder / "manifest.json"
        self._clock = clock
        self._trust = Trust(trusted.cluster, trusted.ca, revoked)
        self._gate = ManifestGate(node, self._trust)
        self._taken = b""  # the bundle of the gate's manifest
        self._is_written = True
        self._last_number = 0
        self._throttle = Throttle()

    def open(self) -> None:
        """Read the disk. Raises ConfigError: a node that forgets what it has seen could be taken
        back to an older manifest."""
        make_private_dirs(self._file.parent)
        try:
            value = json.loads(self._file.read_bytes())
            data = base64.b64decode(value["bundle"], validate=True)
            past = Trust(self._trusted.cluster, self._trusted.ca)
            self._gate.restore(Bundle.from_bytes(data), value["known"], past)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"the newest manifest of this node, {self._file}, cannot be read: {error}",
                hint="Remove it to go by what ZooKeeper has.",
            ) from error
        self._taken = data

    def verified(self, inner: Store) -> VerifiedStore:
        """ZooKeeper as this node reads it, and signs its own entry there."""
        return VerifiedStore(inner, self._trust, now=self._clock.time, sign_own=self._sign)

    def _sign(self, node: str, value: bytes) -> bytes:
        own = self._trusted.own
        assert own is not None, "a supervisor of a secured cluster has a certificate"
        now = self._clock.time()
        self._last_number = next_sequence(self._last_number, now)
        registration = Registration(node, self._last_number, value)
        return registration.sign(self._trusted.cluster, own.certificate, own.key, now)

    @property
    def ca(self) -> str:
        """The certificate of the cluster's CA in PEM; two while its key turns."""
        return self._trusted.ca_pem()

    @property
    def topologies(self) -> frozenset[str]:
        """Those that the newest manifest lists."""
        return frozenset(self._gate.records)

    async def take(self, data: bytes) -> bool:
        """Take what ZooKeeper has for this node; return whether the newest manifest that this node
        has seen is on its disk, and may be acted on. One that does not count is logged."""
        if data != self._taken:
            try:
                self._gate.take(Bundle.from_bytes(data), self._clock.time())
            except RecordError as error:
                if (left_out := self._throttle.left_out("manifest")) is not None:
                    log.error("manifest_refused", reason=error, left_out=left_out)
            else:
                self._taken, self._is_written = data, False
                log.info("manifest_taken", sequence=self._gate.highest)
        if not self._is_written:
            kept = {
                "bundle": base64.b64encode(self._taken).decode(),
                "known": sorted(self._gate.known),
            }
            try:
                await asyncio.to_thread(
                    write_atomic, self._file, json.dumps(kept).encode(), mode=0o600
                )
            except OSError as error:
                log.error("manifest_not_written", path=self._file, error=error)
                return False
            self._is_written = True
        return self._gate.current is not None

    def desired(self, slots: Iterable[int], previous: Mapping[int, PortAssignment]) -> Desired:
        """The work of each port by the newest manifest. Unchanged work keeps its number
        (`PortAssignment.zxid`), as its workers run on."""
        own = frozenset(slots)
        ports: dict[int, PortAssignment] = {}
        problems: list[str] = []
        manifest = self._gate.current
        for port, work in sorted(({} if manifest is None else manifest.slots).items()):
            if port not in own:
                problems.append(
                    f"{work.topology_id} is assigned to port {port}, which is not a slot here"
                )
                continue
            try:
                record = self._gate.record(work.topology_id)
            except RecordError as error:
                problems.append(f"port {port} stays empty: {error}")
                continue
            executors = tuple(Executor(first, last) for first, last in work.executors)
            owner = record.run_as or record.owner
            one = PortAssignment(work.topology_id, executors, work.number, owner)
            held = previous.get(port)
            if held is not None and held.same_work(one):
                one = replace(held, owner=owner)
            ports[port] = one
        return Desired(ports, tuple(problems))

    def hashes_of(self, topology_id: str) -> Mapping[str, str]:
        """The hashes of what a topology's workers run here, by the keys of the blobs. Raises
        RecordError."""
        return self._gate.record(topology_id).hashes

    def is_signed(self, key: str, digest: str) -> bool:
        """Whether a topology that runs here has a blob of this hash."""
        return any(one.hashes.get(key) == digest for one in self._gate.records.values())
