"""A whole Nimbus in one process: its service over a cluster state in memory, without a network.

async with LocalNimbus(tmp_path) as nimbus:
    topology_id = await nimbus.submit("wordcount")
    await nimbus.call("killTopology", "wordcount")
"""

import asyncio
import io
import json
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from squall_common.authentication.latch import require_role
from squall_common.cluster.state import ClusterState, UndecodedBeat
from squall_common.cluster.store import Store
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import BlobMeta, ExecutorStats, SupervisorInfo, WorkerHeartbeat
from squall_common.config.load import default_conf
from squall_common.config.options.typed import NimbusOptions
from squall_common.daemon.clock import Clock
from squall_common.packaging.platforms import META_KEY
from squall_common.security.identity import Role
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.blobs.keys import secret_call
from squall_nimbus.blobs.peers import undecoded_beats
from squall_nimbus.blobs.replication import PeerError
from squall_nimbus.composition import build_nimbus
from squall_nimbus.nimbus import Nimbus
from squall_nimbus.service import NimbusService
from squall_thrift import codec, storm
from squall_thrift.protocol.messages import ThriftApplicationError
from squall_thrift.serving.authorization import Call


def package() -> bytes:
    """A small archive, as clients upload them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("wordcount.py", "answer = 42\n")
    return buffer.getvalue()


def topology(*, executors: int = 2) -> storm.StormTopology:
    """words -> count, as a shell topology: no code of ours in it."""

    def shell() -> storm.ComponentObject:
        return storm.ComponentObject(
            shell=storm.ShellComponent(execution_command="python", script="component.py")
        )

    words = storm.SpoutSpec(
        spout_object=shell(),
        common=storm.ComponentCommon(
            inputs={},
            streams={"default": storm.StreamInfo(output_fields=["word"], direct=False)},
            parallelism_hint=1,
        ),
    )
    count = storm.Bolt(
        bolt_object=shell(),
        common=storm.ComponentCommon(
            inputs={
                storm.GlobalStreamId(componentId="words", streamId="default"): storm.Grouping(
                    fields=["word"]
                )
            },
            streams={},
            parallelism_hint=executors,
        ),
    )
    return storm.StormTopology(spouts={"words": words}, bolts={"count": count}, state_spouts={})


async def eventually(
    condition: Callable[[], Awaitable[Any]], what: str, timeout_secs: float = 60.0
) -> Any:
    """Wait until `condition` gives something true, and return it."""
    try:
        async with asyncio.timeout(timeout_secs):
            while not (found := await condition()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return found
    except TimeoutError:
        raise AssertionError(f"not within {timeout_secs} s: {what}") from None


class LocalPeers:
    """How the Nimbus nodes of one test reach each other: through their services, by port."""

    def __init__(self) -> None:
        self.running: dict[int, LocalNimbus] = {}
        self.cut: set[int] = set()  # ports that nobody reaches now

    async def fetch(
        self, host: str, port: int, meta: BlobMeta, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        other = self.running.get(port)
        if other is None or port in self.cut:
            raise PeerError(f"{host}:{port} cannot be reached")
        try:
            began = await other.call("beginBlobDownload", meta.key)
            if began.version != meta.version:
                raise PeerError(f"it has version {began.version}")
            while chunk := await other.call("downloadBlobChunk", began.session):
                await write(chunk)
        except storm.KeyNotFoundException as error:
            raise PeerError(str(error)) from error

    async def fetch_secret(self, host: str, port: int, key: str, receiver: str) -> bytes:
        other = self.running.get(port)
        if other is None or port in self.cut:
            raise PeerError(f"{host}:{port} cannot be reached")
        try:
            return bytes(await other.call(*secret_call(key), receiver))
        except (storm.KeyNotFoundException, storm.AuthorizationException) as error:
            raise PeerError(str(error)) from error

    async def heartbeats(
        self, host: str, port: int, topology_id: str
    ) -> dict[WorkerSlot, UndecodedBeat]:
        other = self.running.get(port)
        if other is None or port in self.cut:
            raise PeerError(f"{host}:{port} cannot be reached")
        try:
            return undecoded_beats(await other.call("getWorkerHeartbeats", topology_id))
        except (storm.NotAliveException, ThriftApplicationError) as error:
            raise PeerError(str(error)) from error

    async def finished(self, host: str, port: int) -> dict[str, bool]:
        other = self.running.get(port)
        if other is None or port in self.cut:
            raise PeerError(f"{host}:{port} cannot be reached")
        try:
            return dict(await other.call("getFinishedTopologies"))
        except ThriftApplicationError as error:
            raise PeerError(str(error)) from error


class LocalNimbus:
    """One Nimbus on `folder`; several may share an ensemble."""

    def __init__(
        self,
        folder: Path,
        *,
        ensemble: MemoryEnsemble | None = None,
        conf: dict[str, Any] | None = None,
        port: int = 6627,
        clock: Clock | None = None,
        session_timeout_secs: float = 20.0,
        peers: "LocalPeers | None" = None,
    ) -> None:
        self.ensemble = ensemble or MemoryEnsemble()
        self.store = MemoryStore(
            self.ensemble, session_timeout_secs=session_timeout_secs, clock=clock
        )
        self.state = ClusterState(self.store)
        self.conf = {**default_conf(), "storm.local.dir": str(folder), **(conf or {})}
        self.port = port
        self.clock = clock
        self.peers = peers
        self.nimbus: Nimbus
        self.service: NimbusService

    async def __aenter__(self) -> Self:
        await self.state.start()
        options = NimbusOptions.read(self.conf)
        self.nimbus = build_nimbus(
            options,
            self.conf,
            self.state,
            address=("127.0.0.1", self.port),
            clock=self.clock,
            peers=self.peers,
            trusted=require_role(options, Role.NIMBUS, options.storm_local_dir),
        )
        self.service = NimbusService(self.nimbus)
        if self.peers is not None:
            self.peers.running[self.port] = self
        await self.nimbus.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.nimbus.close()
        await self.state.close()

    async def crash(self) -> None:
        """The process dies: nothing is written any more, its session ends."""
        if self.peers is not None:
            self.peers.running.pop(self.port, None)
        if (leadership := self.nimbus.leader_elector.leadership()) is not None:
            leadership.end()
        self.nimbus.lifecycle.step_down()
        await self.nimbus.tasks.close()
        self.nimbus.blob_sessions.close()
        self.nimbus.inbox.close()
        self.ensemble.kill(self.store)
        self.ensemble.expire(self.store)

    async def leads(self) -> Self:
        """Wait until it leads."""

        async def leading() -> bool:
            return self.nimbus.leader_elector.leading

        await eventually(leading, "this Nimbus leads")
        return self

    async def call(self, name: str, *args: Any) -> Any:
        """One call, as it comes from the server."""
        answer = await getattr(self.service, name)(Call(name, "127.0.0.1:1"), *args)
        return codec.struct_of(answer) if isinstance(answer, codec.Encoded) else answer

    async def upload(self, data: bytes | None = None) -> str:
        """A handle of a finished upload."""
        handle: str = await self.call("beginFileUpload")
        await self.call("uploadChunk", handle, package() if data is None else data)
        await self.call("finishFileUpload", handle)
        return handle

    async def submit(
        self,
        name: str = "wordcount",
        conf: dict[str, Any] | None = None,
        *,
        executors: int = 2,
        options: storm.SubmitOptions | None = None,
        handle: str | None = None,
        struct: storm.StormTopology | None = None,
    ) -> str:
        """Upload and submit `struct`, or a small topology; returns the topology's id."""
        await self.call(
            "submitTopologyWithOpts",
            name,
            await self.upload() if handle is None else handle,
            json.dumps(conf or {}),
            topology(executors=executors) if struct is None else struct,
            options,
        )
        return (await self.nimbus.lifecycle.find(name))[0]

    async def supervisor(
        self,
        supervisor_id: str,
        ports: Sequence[int] = (6700, 6701),
        host: str = "host",
        platform: str | None = None,
        signed: Callable[[Store], Store] = lambda store: store,
    ) -> ClusterState:
        """A supervisor that only says that it is there, in a session of its own; `signed` puts in
        front of its store what signs in a secured cluster."""
        state = ClusterState(signed(MemoryStore(self.ensemble)))
        await state.start()
        await state.register_supervisor(
            supervisor_id,
            SupervisorInfo(
                0,
                host,
                supervisor_id,
                meta=tuple(ports),
                uptime_secs=7,
                version="1",
                scheduler_meta={} if platform is None else {META_KEY: platform},
            ),
        )
        return state

    async def beat(
        self,
        topology_id: str,
        slot: WorkerSlot,
        stats: dict[Executor, ExecutorStats | None],
        *,
        time_secs: int = 1,
        uptime_secs: int = 60,
        **more: Any,
    ) -> None:
        """A worker's heartbeat."""
        self.state.put_worker_beat_nowait(
            slot, WorkerHeartbeat(topology_id, stats, time_secs, uptime_secs, **more)
        )

        async def there() -> bool:
            return slot in await self.state.worker_beats(topology_id)

        await eventually(there, "the heartbeat is there")
