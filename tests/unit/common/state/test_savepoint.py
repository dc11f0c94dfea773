"""Savepoints: what is written, read, refused and removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall_common.component.groupings import stable_hash
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateDamagedError, StateError
from squall_common.state.inspect import PlainCodec
from squall_common.state.key_groups import groups_of_task
from squall_common.state.keyed import KeyedState
from squall_common.state.manifest import ComponentPart, Manifest, TaskPart, decode_manifest
from squall_common.state.savepoint import (
    HEAD_NAME,
    Savepoint,
    Wanted,
    added,
    check_segments,
    copy_segment,
    encode_savepoint,
    find_savepoint,
    imported,
    kept,
    list_savepoints,
    name_problem,
    open_savepoint,
    place_in,
    remove_savepoint,
    restore_problems,
)
from squall_common.state.segment import Footer, Segment, encode_segment

GROUPS = 128
FIXTURE = Path(__file__).parent / "fixtures" / "savepoint_version_1.json"


def segment_of(store: CheckpointStore, rows: dict[str, int], task: int, epoch: int) -> Any:
    """Write a segment of one of two tasks of `count`."""
    import msgspec

    def block(group: int) -> bytes:
        own = [[k, v] for k, v in rows.items() if stable_hash(k) % GROUPS == group]
        data = msgspec.msgpack.encode(own)
        return b"\0\0\0\0" + len(data).to_bytes(4, "little") + data

    groups = groups_of_task(task, 2, GROUPS)
    wanted = {stable_hash(key) % GROUPS for key in rows} & set(groups)
    name = f"words/segments/count/{task:05}/00000003-{epoch:012}"
    footer = Footer(
        "words", "count", task, 2, GROUPS, 3, epoch, len(rows), len(rows), 0, True, (), ()
    )
    data, ref = encode_segment(footer, {group: block(group) for group in wanted}, name, groups)
    store.put(name, data)
    return ref


KEYS = {f"k{i}": i for i in range(40)}


def manifest_of(store: CheckpointStore) -> Manifest:
    tasks = tuple(TaskPart((segment_of(store, KEYS, task, 7),), keys=20) for task in range(2))
    return Manifest(
        "words",
        3,
        7,
        {
            "lines": ComponentPart(0, (TaskPart(positions=b"\x91\x92\xa1a\x05"),)),
            "count": ComponentPart(GROUPS, tasks),
            "echo": ComponentPart(0, (TaskPart(),)),
        },
        time_ms=1_700_000_000_000,
    )


def write(folder: Path, name: str = "one", topology: str = "words") -> str:
    """A savepoint; returns its place."""
    source = CheckpointStore(str(folder / "state"))
    found, copies = kept(manifest_of(source))
    place = place_in(str(folder / "kept"), name)
    target = CheckpointStore(place)
    for ref, copy in copies:
        copy_segment(source, ref, target, copy)
    target.put(HEAD_NAME, encode_savepoint(Savepoint(topology, name, "words@1", found, 5)))
    return place


def entries(store: CheckpointStore, manifest: Manifest) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in manifest.components["count"].tasks:
        for ref in part.segments:
            segment = Segment.open(
                ref.name,
                lambda start, length, ref=ref: store.get_part(ref.name, start, length),
                ref,
            )
            state = KeyedState(GROUPS, PlainCodec())
            state.restore([[segment]], range(GROUPS), bound=False)
            found |= dict(state.items())
    return found


def test_a_savepoint_is_whole_without_the_store_that_it_was_taken_from(tmp_path: Path) -> None:
    place = write(tmp_path)
    for path in sorted((tmp_path / "state").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    found = open_savepoint(place, "words")
    check_segments(place, found)
    assert found.manifest.epoch == 7
    assert entries(CheckpointStore(place), found.manifest) == KEYS


def test_it_becomes_an_epoch_with_names_of_its_own(tmp_path: Path) -> None:
    place = write(tmp_path)
    target = CheckpointStore(str(tmp_path / "state"))
    manifest, copies = imported(open_savepoint(place, "words").manifest, "words", 9, 12)
    for ref, copy in copies:
        copy_segment(CheckpointStore(place), ref, target, copy)
    assert (manifest.generation, manifest.epoch) == (9, 12)
    assert all("/00000009-" in ref.name for ref in manifest.segments)
    assert entries(target, manifest) == KEYS


def test_a_place_without_a_head_is_no_savepoint(tmp_path: Path) -> None:
    place = write(tmp_path)
    (Path(place) / HEAD_NAME).unlink()
    with pytest.raises(StateError, match="there is no savepoint in"):
        open_savepoint(place, "words")
    (listed,) = list_savepoints(str(tmp_path / "kept"))
    assert listed.problem == "it is being written, or was not finished"


def test_another_topologys_savepoint_is_refused(tmp_path: Path) -> None:
    place = write(tmp_path, topology="orders")
    with pytest.raises(StateError, match="is of topology 'orders', not of 'words'"):
        open_savepoint(place, "words")


@pytest.mark.parametrize("where", ["head", "segment", "missing"])
def test_a_damaged_part_is_named(tmp_path: Path, where: str) -> None:
    place = write(tmp_path)
    segment = sorted(Path(place).rglob("00000003-*"))[0]
    if where == "missing":
        segment.unlink()
    else:
        path = Path(place) / HEAD_NAME if where == "head" else segment
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.write_bytes(data)
    name = HEAD_NAME if where == "head" else str(segment.relative_to(place))
    with pytest.raises(StateDamagedError, match=name):
        check_segments(place, open_savepoint(place, "words"))


def test_a_head_of_a_newer_version_is_refused_by_its_version(tmp_path: Path) -> None:
    place = write(tmp_path)
    path = Path(place) / HEAD_NAME
    data = bytearray(path.read_bytes())
    data[7] = 9
    path.write_bytes(data)
    with pytest.raises(StateDamagedError, match="its format has version 9"):
        open_savepoint(place, "words")


def test_savepoints_are_listed_and_removed_one_by_one(tmp_path: Path) -> None:
    folder = str(tmp_path / "kept")
    one, two = write(tmp_path, "one"), write(tmp_path, "two")
    assert [(found.name, found.place) for found in list_savepoints(folder)] == [
        ("one", one),
        ("two", two),
    ]
    assert remove_savepoint(one) == 3
    assert not Path(one).exists()
    assert [found.name for found in list_savepoints(folder)] == ["two"]
    assert entries(CheckpointStore(two), open_savepoint(two, "words").manifest) == KEYS
    with pytest.raises(StateError, match="there is no savepoint"):
        remove_savepoint(one)


def test_a_folder_without_savepoints_lists_none(tmp_path: Path) -> None:
    assert list(list_savepoints(str(tmp_path / "none"))) == []


def problems(folder: Path, allow: bool = False, **changed: Wanted | None) -> list[str]:
    wanted: dict[str, Wanted | None] = {
        "lines": Wanted(True, 2), "count": Wanted(False, 5), "echo": Wanted(False, 1), **changed,
    }  # fmt: skip
    present = {name: one for name, one in wanted.items() if one is not None}
    manifest = manifest_of(CheckpointStore(str(folder)))
    return restore_problems(manifest, present, allow_non_restored=allow)


def test_the_same_components_with_other_tasks_and_new_ones_may_start(tmp_path: Path) -> None:
    assert problems(tmp_path, new=Wanted(False, 3)) == []
    manifest = manifest_of(CheckpointStore(str(tmp_path)))
    assert added(manifest, {"count": Wanted(False, 1), "new": Wanted(False, 1)}) == ["new"]


def test_a_removed_component_is_named_unless_its_state_may_go(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, count=None)
    assert problem == "'count' has state and is not in the topology any more"
    assert problems(tmp_path, allow=True, count=None) == []
    assert problems(tmp_path, echo=None) == []  # it had none


def test_other_kinds_and_too_many_tasks_are_named(tmp_path: Path) -> None:
    assert problems(tmp_path, count=Wanted(True, 2)) == ["'count' has state, and is a spout now"]
    (problem,) = problems(tmp_path, lines=Wanted(False, 1))
    assert problem == "'lines' has positions of a source, and is a bolt now"
    (problem,) = problems(tmp_path, count=Wanted(False, 129))
    assert "129 tasks, and its state 128 key groups" in problem


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "a\nb", "x" * 201])
def test_names_that_are_no_plain_names_are_refused(name: str) -> None:
    assert name_problem(name) is not None


def test_an_epoch_of_version_1_is_read(tmp_path: Path) -> None:
    """The files as the first version wrote them, in hexadecimal."""
    stored = json.loads(FIXTURE.read_text())
    for name, data in stored.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(data))
    kept_one = open_savepoint(str(tmp_path / "kept/one"), "words")
    check_segments(str(tmp_path / "kept/one"), kept_one)
    assert entries(CheckpointStore(str(tmp_path / "kept/one")), kept_one.manifest) == KEYS
    state = CheckpointStore(str(tmp_path / "state"))
    name = "words/manifests/00000003-000000000007"
    manifest = decode_manifest(state.get(name), name)
    assert manifest == manifest_of(CheckpointStore(str(tmp_path / "again")))
    assert entries(state, manifest) == KEYS


def test_no_head_is_none(tmp_path: Path) -> None:
    assert find_savepoint(CheckpointStore(str(tmp_path))) is None
