"""The file with the digest by which a cluster's daemons prove to ZooKeeper who they are."""

from __future__ import annotations

from pathlib import Path

from squall_common.cluster.access.configured import DIGESTS_MAX, read_lines
from squall_common.cluster.access.digests import new_payload
from squall_common.daemon.files import write_atomic
from squall_common.errors import SquallError

FILE = "zookeeper.digest"


def make_digest(file: Path) -> None:
    """Make a file with a new digest. Raises SquallError if there is one, which may count."""
    if file.exists():
        raise SquallError(
            f"{file} exists already", hint="--replace puts a new digest before those that it has."
        )
    _write(file, [new_payload()])


def cluster_digest(file: Path) -> str:
    """The content of a file of digests, which is made if it is missing. Raises SquallError."""
    if not file.exists():
        make_digest(file)
    return "".join(f"{line}\n" for line in read_lines(file))


def replace_digest(file: Path) -> None:
    """Put a new digest before those of a file. Raises SquallError."""
    lines = read_lines(file)
    if len(lines) >= DIGESTS_MAX:
        raise SquallError(
            f"{file} has {len(lines)} digests already",
            hint="Delete the lines of those that no daemon shows any more.",
        )
    _write(file, [new_payload(), *lines])


def _write(file: Path, lines: list[str]) -> None:
    try:
        write_atomic(file, "".join(f"{line}\n" for line in lines).encode(), mode=0o600)
    except OSError as error:
        raise SquallError(f"{file} cannot be written: {error.strerror}") from error
