"""Blobs over Nimbus' Thrift interface, in chunks, and access lists as Storm writes them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import IO, TYPE_CHECKING, TypeVar

from squall_common.config.options.typed import ClientOptions
from squall_common.errors import NimbusError, SquallError

if TYPE_CHECKING:
    from squall_common.client.nimbus import NimbusClient
    from squall_thrift import storm

_T = TypeVar("_T")
_CHUNK_BYTES = 256 * 1024
# The time for a second Nimbus to get the upload, even over a slow network.
_FINISH_SECS = 120.0
_ENTRY = re.compile(r"(?P<kind>[uo]):(?P<name>[^:]*):(?P<bits>[r-]?[w-]?[a-]?)")
_BITS = {"r": 1, "w": 2, "a": 4}


def parse_acl(text: str) -> list[storm.AccessControl]:
    """Parse an access list such as `u:alice:rw-,o::r--`. Raises ValueError with the reason."""
    from squall_thrift import storm

    entries = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ENTRY.fullmatch(part)
        if match is None:
            raise ValueError(
                f"{part!r} is not [uo]:[USER]:[r-][w-][a-], such as u:alice:rw- or o::r"
            )
        if match["kind"] == "o" and match["name"]:
            raise ValueError(f"{part!r}: o is everyone else and takes no name")
        kind = (
            storm.AccessControlType.USER
            if match["kind"] == "u"
            else (storm.AccessControlType.OTHER)
        )
        access = sum(bit for letter, bit in _BITS.items() if letter in match["bits"])
        entries.append(storm.AccessControl(type=kind, name=match["name"], access=access))
    return entries


def show_acl(acl: list[storm.AccessControl]) -> str:
    """The inverse of `parse_acl`."""
    return ",".join(
        f"{'u' if entry.type == 2 else 'o'}:{entry.name or ''}:"
        + "".join(letter if entry.access & bit else "-" for letter, bit in _BITS.items())
        for entry in acl
    )


def run_blobs(options: ClientOptions, action: Callable[[NimbusClient], Awaitable[_T]]) -> _T:
    """Run calls over one connection; refusals become messages. Raises NimbusError."""
    from squall_common.client.nimbus import run_nimbus
    from squall_thrift import storm
    from squall_thrift.client import ThriftApplicationError

    try:
        return run_nimbus(options, action)
    except storm.KeyNotFoundException as error:
        raise NimbusError(str(error.msg), hint="'storm blobstore list' shows the blobs.") from error
    except storm.KeyAlreadyExistsException as error:
        raise NimbusError(
            str(error.msg), hint="'storm blobstore update' replaces its content."
        ) from error
    except storm.AuthorizationException as error:
        raise NimbusError(f"not allowed: {error.msg}") from error
    except storm.IllegalStateException as error:
        raise NimbusError(str(error.msg)) from error
    except ThriftApplicationError as error:
        raise NimbusError(f"the call failed in Nimbus: {error}") from error


async def list_keys(nimbus: NimbusClient) -> list[str]:
    """All keys that this user may see."""
    keys: list[str] = []
    page = await nimbus.call("listBlobs", "")
    while page.keys:
        keys += page.keys
        page = await nimbus.call("listBlobs", page.session)
    return keys


async def upload(nimbus: NimbusClient, session: str, source: IO[bytes]) -> int:
    """Send everything and finish; returns the number of bytes. An upload that fails is
    cancelled."""
    size = 0
    try:
        for chunk in _chunks(source):
            await nimbus.call("uploadBlobChunk", session, chunk)
            size += len(chunk)
        await nimbus.call("finishBlobUpload", session, timeout_secs=_FINISH_SECS)
    except OSError as error:
        await nimbus.call("cancelBlobUpload", session)
        raise SquallError(f"cannot read the input of the upload: {error}") from error
    return size


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(_CHUNK_BYTES):
        yield chunk


async def download(nimbus: NimbusClient, key: str, target: IO[bytes]) -> int:
    """Write a blob's bytes; returns their number."""
    began = await nimbus.call("beginBlobDownload", key)
    size = 0
    while chunk := await nimbus.call("downloadBlobChunk", began.session):
        target.write(chunk)
        size += len(chunk)
    if began.data_size is not None and size != began.data_size:
        raise NimbusError(f"received {size} bytes of blob {key} instead of {began.data_size}")
    return size
