"""`topology.blobstore.map`: the blobs that workers find in their folder, and under which names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# What a worker's folder holds beside the links to blobs (see the supervisor's launcher).
RESERVED_NAMES = frozenset(
    {"launch.json", "worker.json", "heartbeat", "heartbeat-report", "heartbeat-report.new", "pids",
     "tmp", "artifacts", "resources", "blobs.json", "curve.key",
     "credentials.json", "zookeeper.json", "dump-stacks", "dump-heap",
     "dump-samples"}
)  # fmt: skip
_NAME_BYTES_MAX = 200  # room for a suffix of ours within NAME_MAX


@dataclass(frozen=True, slots=True)
class BlobLink:
    """One blob of a topology."""

    key: str
    local_name: str  # a plain file name
    uncompress: bool = False  # it is an archive: the link leads to the folder of its files
    worker_restart: bool = False  # a new version restarts the workers


def parse_blob_map(value: object) -> tuple[list[BlobLink], list[str]]:
    """The links, and a sentence for each problem in the map; the links are complete only if there
    are no problems. A name that leads out of the worker's folder, or to one of Squall's own files
    in it, is a problem."""
    if value is None:
        return [], []
    if not isinstance(value, Mapping):
        return [], ["topology.blobstore.map is not a map of blob keys"]
    links: list[BlobLink] = []
    problems: list[str] = []
    names: dict[str, str] = {}
    for key, options in value.items():
        options = {} if options is None else options
        if not isinstance(options, Mapping):
            problems.append(f"topology.blobstore.map: {key!r} has {options!r}, not a map")
            continue
        name = options.get("localname")
        name = str(key) if name is None else name
        if (why := _name_error(name)) is not None:
            problems.append(f"topology.blobstore.map: localname {name!r} {why}")
            continue
        if name in names:
            problems.append(
                f"topology.blobstore.map: blobs {names[name]!r} and {key!r} have the same "
                f"localname {name!r}"
            )
        names[name] = str(key)
        flags = []
        for option in ("uncompress", "workerRestart"):
            flag = options.get(option)
            if flag is not None and not isinstance(flag, bool):
                problems.append(
                    f"topology.blobstore.map: {option} of {key!r} is {flag!r}; expected "
                    "true or false"
                )
            flags.append(flag is True)
        links.append(BlobLink(str(key), name, flags[0], flags[1]))
    return links, problems


def _name_error(name: object) -> str | None:
    if not isinstance(name, str) or name in {"", ".", ".."}:
        return "is not a plain name"
    if "/" in name or "\\" in name or not name.isprintable():
        return "is not a plain name"
    if name in RESERVED_NAMES or name.startswith(".squall"):
        return "is a name that is already used in a worker's folder"
    if len(name.encode(errors="replace")) > _NAME_BYTES_MAX:
        return f"is longer than {_NAME_BYTES_MAX} bytes"
    return None
