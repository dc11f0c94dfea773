"""The local state over a crash or a bad disk at any byte: whole, old, or reported as unreadable."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from squall_common.topology.model import Executor
from squall_common.worker_files.launch_spec import Incarnation, LaunchSpec
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.neighbours import Neighbours
from squall_supervisor.records.state_file import (
    LocalState,
    LocalStateError,
    LocalStateFile,
    parse,
    recover,
    serialize,
)

assignments = st.builds(
    PortAssignment,
    topology_id=st.text(min_size=1, max_size=20),
    executors=st.lists(
        st.builds(Executor, st.integers(-1, 99), st.integers(-1, 99)), max_size=4
    ).map(tuple),
    zxid=st.integers(0, 2**63),
    owner=st.none() | st.text(max_size=5),
)
states = st.builds(
    LocalState,
    supervisor_id=st.text(min_size=1, max_size=40),
    launches_reserved=st.integers(0, 2**40),
    ports=st.dictionaries(st.integers(1, 65535), assignments, max_size=4),
    neighbours=st.builds(
        Neighbours,
        daemons=st.lists(st.tuples(st.text(min_size=1), st.integers(1, 65535)), max_size=3).map(
            tuple
        ),
        supervisors=st.booleans(),
    ),
)

SAMPLE = LocalState(
    "node", 200, {6700: PortAssignment("words-1-1", (Executor(1, 2), Executor(3, 3)), 77, "me")}
)
BYTES = serialize(SAMPLE)


@given(states)
def test_a_state_survives_the_round_trip(state: LocalState) -> None:
    assert parse(serialize(state)) == state


@pytest.mark.parametrize("length", range(len(BYTES)))
def test_every_truncation_is_unreadable(length: int) -> None:
    with pytest.raises(LocalStateError):
        parse(BYTES[:length])


@pytest.mark.parametrize("start", range(0, len(BYTES), 7))
def test_a_block_of_zeros_anywhere_is_unreadable(start: int) -> None:
    """What a file system may leave of a file whose length reached the disk and whose data did
    not."""
    data = BYTES[:start] + b"\0" * (len(BYTES) - start)
    with pytest.raises(LocalStateError):
        parse(data)


@settings(max_examples=examples(150))
@given(st.integers(0, len(BYTES) - 1), st.integers(0, 255))
def test_a_flipped_byte_is_unreadable_or_harmless(position: int, value: int) -> None:
    data = bytearray(BYTES)
    data[position] = value
    try:
        state = parse(bytes(data))
    except LocalStateError:
        return
    assert state == SAMPLE


@settings(max_examples=examples(100))
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(LocalStateError):
        parse(data)


@pytest.mark.parametrize("body", ["[]", "null", '{"supervisor_id": "x"}', '{"ports": 3}', "{"])
def test_a_whole_file_with_the_wrong_content_is_refused(body: str) -> None:
    import zlib

    data = body.encode()
    head = {"format": 1, "bytes": len(data), "crc32": zlib.crc32(data)}
    with pytest.raises(LocalStateError):
        parse(json.dumps(head).encode() + b"\n" + data)


def test_a_newer_format_is_named() -> None:
    with pytest.raises(LocalStateError, match="format 2"):
        parse(b'{"format": 2, "bytes": 0, "crc32": 0}\n')


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, len(BYTES) - 1), st.integers(1, 3))
def test_unreadable_files_are_kept_aside_each_under_its_own_name(length: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = LocalStateFile(Path(folder) / "localstate")
        assert file.load() is None
        for number in range(1, times + 1):
            file.path.write_bytes(BYTES[:length])
            with pytest.raises(LocalStateError):
                file.load()
            aside = file.put_aside()
            assert aside.name == f"localstate.unreadable-{number}"
            assert aside.read_bytes() == BYTES[:length]
            assert file.load() is None
        file.save(SAMPLE)
        assert file.load() == SAMPLE


def test_a_failed_write_leaves_the_old_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = LocalStateFile(tmp_path / "localstate")
    file.save(SAMPLE)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.save(LocalState("other"))
    monkeypatch.undo()
    assert file.load() == SAMPLE
    assert [path.name for path in tmp_path.iterdir()] == ["localstate"]


@given(st.lists(st.integers(1, 10**7), max_size=5), st.integers(10**9, 2 * 10**9))
def test_recovery_keeps_the_id_and_gives_higher_numbers(launches: list[int], epoch: int) -> None:
    specs = [
        LaunchSpec(
            topology_id="t", supervisor_id="node", hostname="h", port=6700, worker_id=f"w{n}",
            incarnation=Incarnation(5, n), stormdist=Path("/s"), worker_dir=Path("/w"),
            artifacts_dir=Path("/a"), daemon_conf={},
        )
        for n in launches
    ]  # fmt: skip
    state = recover(specs, fresh_id="fresh", epoch_secs=epoch)
    assert state.supervisor_id == ("node" if launches else "fresh")
    assert all(state.launches_reserved >= n for n in launches)
    assert state.launches_reserved >= epoch
