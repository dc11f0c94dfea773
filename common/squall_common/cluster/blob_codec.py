"""The bytes of /blobstore/KEY. Storm leaves that node empty and lets the highest number below it
count; here it says in JSON which version counts, and what its bytes must be."""

from __future__ import annotations

import json
from typing import Any

from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.values import Access, BlobHolder, BlobMeta, BlobRecord


def encode_blob_record(record: BlobRecord) -> bytes:
    value = _meta_to_json(record.meta)
    if record.pending:
        value["pending"] = True
        if record.previous is not None:
            value["previous"] = _meta_to_json(record.previous)
    return json.dumps(value, sort_keys=True).encode()


def decode_blob_record(path: str, data: bytes) -> BlobRecord:
    """Raises CorruptStateError."""
    try:
        value = json.loads(data)
        key = path.rpartition("/")[2]
        previous = value.get("previous")
        return BlobRecord(
            _meta_from_json(key, value),
            value.get("pending") is True,
            None if previous is None else _meta_from_json(key, previous),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptStateError(path, f"no record of a blob: {error!r}") from error


def holder_name(holder: BlobHolder) -> str:
    """As Storm names it: `HOST:PORT-SEQUENCE`."""
    return f"{holder.host}:{holder.port}-{holder.version}"


def parse_holder(name: str) -> BlobHolder | None:
    """None for a name that is none of a holder's."""
    address, dash, version = name.rpartition("-")
    host, colon, port = address.rpartition(":")
    if not (dash and colon and host and _is_number(version) and _is_number(port)):
        return None
    return BlobHolder(host, int(port), int(version))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


def _meta_to_json(meta: BlobMeta) -> dict[str, Any]:
    value: dict[str, Any] = {
        "version": meta.version,
        "size": meta.size,
        "sha256": meta.sha256,
        "acl": [[one.type, one.name, one.access] for one in meta.acl],
        "replication": meta.replication,
    }
    if meta.owner is not None:
        value["owner"] = meta.owner
    return value


def _meta_from_json(key: str, value: dict[str, Any]) -> BlobMeta:
    version, size, replication = value["version"], value["size"], value["replication"]
    for number in (version, size, replication):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"{number!r} is not a valid number")
    acl = []
    for kind, name, access in value["acl"]:
        if not isinstance(kind, int) or not isinstance(access, int):
            raise ValueError("an entry of the access list is damaged")
        acl.append(Access(kind, None if name is None else str(name), access))
    owner = value.get("owner")
    return BlobMeta(
        key,
        version,
        size,
        str(value["sha256"]),
        tuple(acl),
        replication,
        None if owner is None else str(owner),
    )
