"""The job of `storm spark run`."""

from __future__ import annotations

import pytest

from squall import SquallError
from squall_spark.data.bindings import StreamName
from squall_spark.job import Job


def test_a_job_survives_its_way() -> None:
    job = Job(
        ("s=/in",), ("c=/out",), parallelism=(("c", 3),), filters=(("s", "n > 1"),),
        partition_by=(("c", ("a", "b")),), explain=True, spark_conf=(("k", "v"),),
    )  # fmt: skip
    back = Job.from_json(job.to_json())
    assert back.sources()[0].filter == "n > 1"
    assert back.targets()[0].partition_by == ("a", "b")
    assert (back.parallelism, back.spark_conf) == ((("c", 3),), (("k", "v"),))


def test_filters_and_folders_of_what_is_not_there() -> None:
    with pytest.raises(SquallError, match="--filter t: there is no --input t"):
        Job(("s=/in",), filters=(("t", "true"),)).sources()
    with pytest.raises(SquallError, match="--partition-by c: there is no --output c") as caught:
        Job(("s=/in",), ("/out",), partition_by=(("c", ("a",)),)).targets()
    assert "--output c=PATH" in (caught.value.hint or "")
    assert Job((), ("/out",)).targets()[0].stream is None
    assert Job((), ("c:late=/out",)).targets()[0].stream == StreamName("c", "late")


def test_current_values_have_a_key_and_stand_beside_the_log_of_changes() -> None:
    job = Job(("s=/in",), ("c=/out",), current=("c=delta:/now",), keys=(("c", ("a",)),))
    changes, now = Job.from_json(job.to_json()).targets()
    assert (changes.path, changes.key, now.path, now.key) == ("/out", (), "/now", ("a",))
    with pytest.raises(SquallError, match="--current c has no key"):
        Job(("s=/in",), current=("c=/now",)).targets()
    with pytest.raises(SquallError, match="--key c: there is no --current c"):
        Job(("s=/in",), ("c=/out",), keys=(("c", ("a",)),)).targets()
    with pytest.raises(SquallError, match="--current '/now': it holds one stream"):
        Job(("s=/in",), current=("/now",), keys=(("c", ("a",)),)).targets()
