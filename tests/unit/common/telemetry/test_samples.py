"""The file through which a worker's samples reach its supervisor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from squall_common.telemetry.samples import (
    FILE_BYTES_MAX,
    LABEL_CHARS_MAX,
    SAMPLES_MAX,
    Sample,
    SamplesError,
    histogram_sample,
    read,
    shortened,
    write,
)

GAUGE = Sample("squall_queue_tuples", {"component": "split"}, 3)


def test_what_a_worker_writes_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    assert read(path) is None
    latency = histogram_sample(
        "squall_execute_seconds", {"component": "split"}, [(0.002, 5), (99.0, 1)], 99.01
    )
    write(path, [GAUGE, latency], 17.0)
    write(path, [GAUGE, latency], 18.0)
    found = read(path)
    assert found is not None
    assert found.time == 18.0
    left_out = Sample("squall_worker_samples_left_out", value=0)
    assert found.samples == [GAUGE, latency, left_out]
    assert dict(latency.buckets)[0.0025] == 5
    assert latency.above == 1
    assert os.listdir(tmp_path) == ["metrics.json"]


def test_samples_beyond_the_limit_are_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "metrics.json", [GAUGE] * (SAMPLES_MAX + 7), 1.0)
    found = read(tmp_path / "metrics.json")
    assert found is not None
    assert len(found.samples) == SAMPLES_MAX
    assert found.samples[-1].value == 8


def test_labels_are_shortened() -> None:
    assert shortened({"name": "x" * 999}) == {"name": "x" * LABEL_CHARS_MAX}


def _with(**changes: Any) -> bytes:
    sample = {
        "family": "squall_execute_seconds",
        "labels": {"component": "split"},
        "buckets": [[1.0, 2]],
        **changes,
    }
    return msgspec.json.encode({"time": 1.0, "samples": [sample]})


BUCKETS: list[Any] = [[2.0, 1], [1.0, 1]]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"time": 1.0, "samples": 7}',
        _with(family="up"),
        _with(family=None),
        _with(labels={}),
        _with(labels={"component": "split", "topology": "another"}),
        _with(labels={"component": "x" * (LABEL_CHARS_MAX + 1)}),
        _with(labels={"component": 3}),
        _with(total="1e999"),
        _with(buckets=BUCKETS),
        _with(buckets=[[1.0, -1]]),
        _with(buckets=[[n, 1] for n in range(100)]),
        _with(above=-1),
        _with(more=1),
        _with(family="squall_emitted_tuples", labels={"component": "a", "stream": "b"}, value=-1),
        _with(value=10**400),
        msgspec.json.encode(
            {"time": 1.0, "samples": [msgspec.to_builtins(GAUGE)] * (SAMPLES_MAX + 1)}
        ),
        b" " * (FILE_BYTES_MAX + 1),
    ],
)
def test_a_file_that_no_worker_of_ours_writes_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "metrics.json"
    path.write_bytes(data)
    with pytest.raises(SamplesError):
        read(path)


def test_links_pipes_and_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(_with())
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder"):
        with pytest.raises((SamplesError, IsADirectoryError)):
            read(tmp_path / name)
