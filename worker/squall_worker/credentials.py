"""The topology's credentials, as a worker gets them from its supervisor: in a file that is replaced
when they change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from squall_common.daemon.logs import get_logger
from squall_common.security.credentials import TopologyCredentials
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

LOOK_SECS = 1.0


class CredentialsFile:
    """Reads the file, when it is another one than before."""

    def __init__(self, path: Path, topology_id: str) -> None:
        self._path = path
        self._topology_id = topology_id
        self._seen: tuple[int, int, int] | None = None
        self._number = 0
        self._throttle = Throttle()

    def read(self) -> Mapping[str, str] | None:
        """The credentials, if they are newer than at the last call; else None."""
        try:
            found = self._path.stat()
            seen = (found.st_ino, found.st_mtime_ns, found.st_size)
            if seen == self._seen:
                return None
            data = self._path.read_bytes()
            self._seen = seen
            read = TopologyCredentials.from_bytes(data, self._topology_id)
            if read.number > self._number:
                self._number = read.number
                return read.values
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:  # those that it has still count
            if (left_out := self._throttle.left_out("unreadable")) is not None:
                log.warning(
                    "credentials_unreadable",
                    topology_id=self._topology_id,
                    error=error,
                    left_out=left_out,
                )
        return None
