"""Savepoints in the model: the engine's own decisions, and a world that reads and copies for them.

A user asks for savepoints, withdraws some, and begins the topology anew with one that has stopped
it: then nothing may be lost or doubled, as none of what came after it has taken effect.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.epochs.outside import Kept
from tests.simulation.epochs.rules import Rule

from squall_common.cluster.values import SavepointRequest
from squall_common.state.errors import StateError
from squall_common.state.savepoint import Savepoint
from squall_engine.epochs.coordinator_table import State
from squall_engine.epochs.messages import Name, Record
from squall_engine.epochs.savepoints import Savepoints, Taking

if TYPE_CHECKING:
    from tests.simulation.epochs.processes import Manifest, Process

TOPOLOGY = "model"


class _Background:
    """Runs what does not wait: the world answers some time."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            work.send(None)
        except StopIteration:
            return
        raise AssertionError("the model does not wait")


@dataclass(frozen=True, slots=True)
class Head:
    """As `Savepoint`, of the model's manifest."""

    topology: str
    asked_ms: int
    manifest: Manifest


class ModelSavepoints(Savepoints):
    """Those of a coordinator's process."""

    def __init__(self, process: Process) -> None:
        super().__init__(
            TOPOLOGY,
            "model://state",
            background=cast(Any, _Background()),
            store=cast(Any, None),
            begin_epoch=process.begin_epoch,
            changed=lambda: None,
        )
        self._process = process
        self._world = process.world
        self.followed: SavepointRequest | None = None

    def follow(self, request: SavepointRequest | None) -> None:
        self.followed = request
        super().follow(request)

    def _withdraw(self) -> None:
        if self._world.keeps(Rule.HEED_WITHDRAWAL):
            super()._withdraw()

    @property
    def may_begin(self) -> bool:
        halted = self.state is Taking.HALTED or self._stops()
        if halted and not self._world.keeps(Rule.HALT):
            return True
        return super().may_begin

    def _stops(self) -> bool:
        return self.state is Taking.COPYING and self._request is not None and self._request.stop

    def validate(self) -> str | None:
        """What is wrong, in words."""
        under_way = self.state in (Taking.WANTED, Taking.TAKING, Taking.HALTED)
        if under_way and self.followed is None:
            return f"a savepoint that was withdrawn is {self.state.name}"
        return None

    async def _look(self, request: SavepointRequest, *, inherited: bool) -> None:
        world = self._world

        def found() -> None:
            if self._outdated:
                self._request, self.state = None, Taking.IDLE
                return
            kept = world.store.savepoints.get(request.name)
            head = kept and Head(kept.topology, kept.asked_ms, kept.manifest)
            self._looked(request, cast(Savepoint | None, head))

        world.soon(self._process, found)

    async def _copy(self, request: SavepointRequest, manifest: Any) -> None:
        names = [name for names in manifest.parts.values() for name in names]
        self._copy_rest(request, manifest, names, {}, self._history)

    def _copy_rest(
        self,
        request: SavepointRequest,
        manifest: Manifest,
        names: list[Name],
        parts: dict[Name, Any],
        history: str,
    ) -> None:
        """One part after the other, and the head in the end."""
        world = self._world

        def copied() -> None:
            if not names:
                kept = Kept(TOPOLOGY, request.asked_ms, history, manifest, parts)
                world.keep_savepoint(request.name, kept)
                head = Head(TOPOLOGY, request.asked_ms, manifest)
                self._finish(request, cast(Any, head))
            elif names[0] in world.store.objects:
                parts[names[0]] = world.store.objects[names[0]]
                self._copy_rest(request, manifest, names[1:], parts, history)
            else:
                # One that takes its place may have collected it.
                world.require_replaced(self._process, names[0])
                self._finish(request, error=StateError("a part of it is missing"))

        world.copy_slowly(self._process, copied)


def begin_with(process: Process, kept: Kept) -> None:
    """Make a savepoint the last epoch, as the engine's `begin_with` does; then it has begun."""
    world = process.world
    seen, start = world.znode.record, f"start {process.start}"
    if seen.start == start:
        process.begun = True
        return
    generation, epoch = seen.generation + 1, max(seen.epoch, kept.manifest.epoch)

    def imported(name: Name) -> Name:
        return Name(generation, epoch, f"{name.generation}-{name.epoch}-{name.what}")

    manifest = replace(
        kept.manifest,
        epoch=epoch,
        parts={
            component: tuple(map(imported, names))
            for component, names in kept.manifest.parts.items()
        },
    )
    for name, part in kept.parts.items():
        world.store.objects[imported(name)] = part
    head = Name(generation, epoch, "manifest")
    world.store.objects[head] = manifest
    wanted = Record(
        version=seen.version + 1,
        generation=generation,
        coordinator=process.incarnation,
        epoch=epoch,
        manifest=head,
        history=start,
        start=start,
        start_generation=generation,
    )
    # Whatever the outcome, the record is read again.
    world.write_record(process, wanted, lambda succeeded: begin_with(process, kept))


def is_halted(process: Process) -> bool:
    """Whether the savepoint that its topology is asked for has stopped it."""
    savepoints, request = process.savepoints, process.world.request
    return (
        savepoints is not None
        and savepoints.state is Taking.HALTED
        and request is not None
        and savepoints.followed == request
        and process.coordinator is not None
        and process.coordinator.state is not State.ENDED
    )
