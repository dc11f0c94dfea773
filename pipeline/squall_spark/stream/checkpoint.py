"""What has to survive between two runs of a stream, besides the state's files.

    CHECKPOINT/lock            the driver that works on it, see `lock`
    CHECKPOINT/spark           Spark's own: offsets, commits
    CHECKPOINT/state           see `squall_spark.state`
    CHECKPOINT/plan/layout.json     the numbers of tasks that stateful bolts had, by batch
    CHECKPOINT/plan/schema-N.json   the types of input N's columns
    CHECKPOINT/plan/types-N.json    column types of an output so far
    CHECKPOINT/plan/identity.json   the name under which batches are written to Kafka

Spark's half and ours belong together. A run is refused if one of them is missing or older than the
other: it would count its input twice, or forget what it had counted.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_common.names import encode_znode
from squall_spark.data.bindings import Source
from squall_spark.data.columns import TypeGuess
from squall_spark.plan import Sink, SparkPlan
from squall_spark.state.place import (
    StateAt,
    StateSize,
    clean,
    clean_scratch,
    last_batch,
    state_folder,
)

FORMAT = 2  # 1: tasks by the hash of a key modulo their number
_NEW = "restore the checkpoint from a copy, or start with a new --checkpoint"


@dataclass(slots=True)
class _Layout:
    """A stateful bolt. `tasks` are pairs: the first batch with so many tasks, and the number."""

    max_parallelism: int
    tasks: list[tuple[int, int]] = field(default_factory=list)

    def tasks_of(self, batch: int) -> int:
        """0 before its first batch."""
        return next((n for first, n in reversed(self.tasks) if first <= batch), 0)

    def begin(self, batch: int, tasks: int) -> bool:
        """Returns whether this changes anything."""
        before = list(self.tasks)
        self.tasks = [(first, n) for first, n in self.tasks if first < batch or n == tasks]
        if not self.tasks or self.tasks[-1][1] != tasks:
            self.tasks.append((batch, tasks))
        return self.tasks != before


class Checkpoint:
    """A checkpoint folder, held by this driver."""

    def __init__(self, url: str, plan: SparkPlan) -> None:
        """Raises SquallError if it is damaged, or does not belong to this plan."""
        self.url = url.rstrip("/")
        self._plan = plan
        self._tasks = {s.component: len(s.tasks) for s in plan.stages if s.stateful}
        self._groups = {component: plan.key_groups(component) for component in self._tasks}
        self._folder = Folder(f"{self.url}/plan")
        self._names = set(self._folder.names())
        self._begun = False
        self._layouts: dict[str, _Layout] = {}
        self._needed: dict[str, frozenset[str]] = {}
        self._read_layout()

    # ---- checks ----

    def _read_layout(self) -> None:
        if "tasks.json" in self._names:
            raise SquallError(
                f"--checkpoint {self.url} was written by an older version of squall", hint=_NEW
            )
        layout = self._json("layout.json")
        if layout is None:
            return
        if layout.get("format") != FORMAT:
            raise SquallError(
                f"--checkpoint {self.url} was written by another version of squall (format "
                f"{layout.get('format')}; this one reads {FORMAT})",
                hint=_NEW,
            )
        self._begun = True
        for component, of in layout["stateful"].items():
            pairs = [(first, tasks) for first, tasks in of["tasks"]]
            self._layouts[component] = _Layout(of["max_parallelism"], pairs)

    def check(self) -> None:
        """Check that both halves are there, and that the state can belong to this topology. Raises
        SquallError."""
        offsets, commits = (
            _numbers(Folder(f"{self.url}/spark/{name}")) for name in ("offsets", "commits")
        )
        if self._begun and not offsets:
            newest = last_batch(self.url, self._layouts)
            kept = "" if newest is None else f", although the state of batch {newest} is there"
            raise SquallError(
                f"Spark's half of --checkpoint {self.url} is missing: {self.url}/spark has no "
                f"offsets{kept}. The stream would read its input again from the start",
                hint=_NEW,
            )
        if commits and not self._begun:
            raise SquallError(
                f"squall's half of --checkpoint {self.url} is missing: there is no "
                f"{self._folder.url}/layout.json, although Spark has committed batch "
                f"{max(commits)}",
                hint=_NEW,
            )
        newest = last_batch(self.url, self._layouts)
        if newest is not None and newest > max(offsets, default=-1):
            raise SquallError(
                f"Spark's half of --checkpoint {self.url} is older than its state: it ends at "
                f"batch {max(offsets, default=-1)}, and the state at batch {newest}",
                hint=_NEW,
            )
        for component in sorted(self._layouts.keys() | self._tasks.keys()):
            self._check_tasks(component, max(commits, default=-1))

    def _check_tasks(self, component: str, committed: int) -> None:
        layout, now = self._layouts.get(component), self._tasks.get(component, 0)
        if layout is None:
            return  # new in the topology: its state is empty
        if not now:
            raise SquallError(
                f"--checkpoint {self.url} is for another topology: it holds the state of bolt "
                f"{component!r}, which this one does not have",
                hint="start with a new --checkpoint",
            )
        if layout.max_parallelism != self._groups[component]:
            raise SquallError(
                f"the state of {component!r} has {layout.max_parallelism} key groups, and the bolt "
                f"has {self._groups[component]}",
                hint=f"set topology.state.max.parallelism of the bolt to {layout.max_parallelism}",
            )
        before = layout.tasks_of(committed)
        folder = state_folder(self.url, component)
        clean_scratch(folder)
        if not before:
            return
        try:
            size = StateSize.of(folder, committed, before)
        except FileNotFoundError as error:
            raise SquallError(
                f"the state of {component!r} after batch {committed} is missing in {folder.url}: "
                f"{error}",
                hint=_NEW,
            ) from error
        self._needed[component] = size.names
        if now == before:
            return
        if now > layout.max_parallelism:
            raise SquallError(
                f"stateful bolt {component!r} has {now} tasks; its state was started with room for "
                f"at most {layout.max_parallelism}",
                hint="use fewer tasks, or start with a new --checkpoint",
            )
        if size.bound:
            raise SquallError(
                f"stateful bolt {component!r} had {before} tasks and now has {now}, but "
                f"{size.bound} of the {size.keys} keys of its state belong to one of its tasks: "
                "only keys that are used under one value of a fields grouping, in execute(), can "
                "move to another",
                hint=f"keep {before} tasks, or start with a new --checkpoint",
            )

    def identity(self) -> str:
        """A name for this stream that no other has, the same at every start."""
        name = "identity.json"
        found = self._json(name)
        if found is None:
            found = uuid.uuid4().hex
            self._write(name, found)
        return str(found)

    # ---- batches ----

    def begin(self, batch: int, now_secs: int) -> dict[str, StateAt]:
        """A batch begins: where the state of each stateful bolt is."""
        changed = not self._begun
        found = {}
        for component, tasks in self._tasks.items():
            layout = self._layouts.setdefault(component, _Layout(self._groups[component]))
            before = layout.tasks_of(batch - 1)
            changed = layout.begin(batch, tasks) or changed
            found[component] = StateAt(
                self.url, component, batch, tasks, before, layout.max_parallelism, now_secs
            )
        if changed:
            stateful = {
                component: {"max_parallelism": of.max_parallelism, "tasks": of.tasks}
                for component, of in self._layouts.items()
            }
            self._write("layout.json", {"format": FORMAT, "stateful": stateful})
            self._begun = True
        return found

    def end(self, batch: int) -> tuple[int, int]:
        """A batch has ended. Returns the size of all states: keys and bytes."""
        keys = size = 0
        for component, tasks in self._tasks.items():
            folder = state_folder(self.url, component)
            now = StateSize.of(folder, batch, tasks)
            clean(folder, batch, now.names | self._needed.get(component, frozenset()))
            self._needed[component] = now.names
            keys += now.keys
            size += now.size
        return keys, size

    def files_of(self, input_: int, batch: int) -> list[str]:
        """The files that a batch reads from the input with this number, by Spark's own log."""
        folder = Folder(f"{self.url}/spark/sources/{input_}")
        found = []
        for name in folder.names():
            if name not in (str(batch), f"{batch}.compact"):
                continue
            for line in folder.read(name).decode().splitlines()[1:]:
                entry = json.loads(line)
                if entry.get("batchId") == batch:
                    found.append(str(entry["path"]))
        return found

    # ---- types ----

    def schema(self, source: Source) -> dict[str, Any] | None:
        """The types of an input's columns, as they were when the stream was first started (Spark's
        JSON); None if this is the first start."""
        found: dict[str, Any] | None = self._json(_schema_name(source))
        return found

    def keep_schema(self, source: Source, schema: Mapping[str, Any]) -> None:
        self._write(_schema_name(source), schema)

    def widen(self, sink: Sink, guess: TypeGuess) -> TypeGuess:
        """The types of all batches so far, including this one: a column never gets narrower. Raises
        MixedTypesError."""
        name = f"types-{encode_znode(str(sink.stream))}.json"
        before = self._json(name)
        known = None
        if before is not None:
            merged = TypeGuess.from_json(sink.fields, json.dumps(before))
            known = merged.to_json()
            merged.merge(guess)
            guess = merged
        if guess.to_json() != known:
            self._write(name, json.loads(guess.to_json()))
        return guess

    # ---- files ----

    def _json(self, name: str) -> Any:
        if name not in self._names:
            return None
        try:
            return json.loads(self._folder.read(name))
        except ValueError as error:
            raise SquallError(
                f"{self._folder.url}/{name} cannot be read: {error}", hint=_NEW
            ) from error

    def _write(self, name: str, value: Any) -> None:
        self._folder.write(name, json.dumps(value).encode())
        self._names.add(name)


def _schema_name(source: Source) -> str:
    return f"schema-{encode_znode(str(source.stream))}.json"


def _numbers(folder: Folder) -> list[int]:
    return [int(name) for name in folder.names() if re.fullmatch(r"\d+", name)]
