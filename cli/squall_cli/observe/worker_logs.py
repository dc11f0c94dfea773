"""The logs of a topology's workers, read from the logviewers of their nodes over HTTP.

    async with logviewers(port) as client:
        await print_last(client, topology_id, workers, "worker.log", lines=10, show=print)

A logviewer gives a part of a file from an offset on, in whole lines. To follow a file means to ask
again from where the last part ended. A file that is another one than before, or has become shorter,
was turned over: what was not read yet is at the end of FILE.1, or further back if that happened
several times meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from squall_common.errors import SquallError

if TYPE_CHECKING:
    import aiohttp

    from squall_common.authentication.credentials import ClientCredentials
    from squall_common.config.options.typed import ClientOptions

PART_BYTES = 2 * 1024 * 1024  # the most that a logviewer gives at once
_FIRST_BYTES = 51_200
_ANSWER_BYTES_MAX = 8 * PART_BYTES  # as JSON, in which a character may take six bytes
_TIMEOUT_SECS = 10.0
_POLL_SECS = 1.0
_WORKERS_SECS = 5.0  # between two looks at where the workers are
_DETAIL_CHARS = 200
_OLD_FILES_MAX = 20  # of one log; workers keep fewer


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """Where a worker runs, as Nimbus names it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a log; offsets and `size` of the file in bytes."""

    text: str
    start: int
    end: int
    size: int
    identity: str = ""  # of the file, also when it was renamed; "" from earlier logviewers


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a file has been read."""

    at: int
    identity: str
    lost: bool = False  # it was not found among the files at the last look


class LogviewerError(SquallError):
    """A logviewer did not answer, or refused."""


class TopologyGoneError(Exception):
    """The topology has been removed."""


Show = Callable[[Slot, Iterable[str]], None]
Say = Callable[[str], None]


class Logviewers:
    """Asks the logviewers of all nodes, which listen on the same port."""

    def __init__(self, session: aiohttp.ClientSession, port: int, scheme: str = "http") -> None:
        self._session = session
        self._port = port
        self._scheme = scheme

    def address(self, host: str) -> str:
        """Of the logviewer of a node."""
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self._port}"

    async def part(
        self, slot: Slot, path: str, *, start: int | None, length: int, ended: bool
    ) -> Part | None:
        """`length` bytes of a file from `start` on, its last ones if that is None; only lines that
        have `ended`. None if the file does not exist. Raises LogviewerError."""
        import aiohttp

        query = {"file": path, "length": str(length)}
        if start is not None:
            query["start"] = str(start)
        if ended:
            query["lines"] = "yes"
        url = f"{self.address(slot.host)}/api/v1/part"
        try:
            async with self._session.get(url, params=query, allow_redirects=False) as response:
                body = await _body(response)
                if response.status == 404:
                    return None
                if response.status != 200:
                    raise self._error(slot, f"answered {response.status}: {_reason(body)}")
                found = json.loads(body)
                return Part(
                    str(found["text"]), int(found["start"]), int(found["end"]), int(found["size"]),
                    str(found.get("identity", "")),
                )  # fmt: skip
        except TimeoutError:
            reason = f"has not answered within {_TIMEOUT_SECS:g} s"
        except aiohttp.ClientError as error:
            reason = f"does not answer: {error}"
        except (ValueError, TypeError, KeyError):
            reason = "answered something else than a part of a log"
        raise self._error(slot, reason)

    def _error(self, slot: Slot, reason: str) -> LogviewerError:
        return LogviewerError(
            f"the logviewer of {slot.host} ({self.address(slot.host)}) {reason}",
            hint=f"Run 'storm logviewer' on {slot.host}; its port is logviewer.port, "
            f"{self._port} in the configuration of this command.",
        )


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Raises ValueError for one that is larger than any that a logviewer sends."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        body += chunk
        if len(body) > _ANSWER_BYTES_MAX:
            raise ValueError("too large")
    return bytes(body)


def _reason(body: bytes) -> str:
    try:
        found: Any = json.loads(body)
        text = found["errorMessage"]
    except (ValueError, TypeError, KeyError):
        text = body.decode(errors="replace")
    return str(text).strip()[:_DETAIL_CHARS]


@asynccontextmanager
async def logviewers(
    port: int, credentials: ClientCredentials | None = None
) -> AsyncIterator[Logviewers]:
    """A client of the logviewers that listen on `port`; in a secured cluster with the caller's
    `credentials` for logviewers. Raises LogviewerError if there are none to show."""
    import aiohttp

    from squall_thrift.serving.authentication import RefusedError

    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECS)
    if credentials is None:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            yield Logviewers(session, port)
        return
    try:
        headers = credentials.http_headers()
    except RefusedError as error:
        raise LogviewerError(str(error)) from error
    connector = aiohttp.TCPConnector(ssl=credentials.checked_context)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, headers=headers
    ) as session:
        yield Logviewers(session, port, "https")


def logviewer_credentials(client: ClientOptions) -> ClientCredentials | None:
    """What a command proves with who it is; None in an open cluster. Raises ConfigError."""
    if client.storm_security_ca is None:
        return None
    # Imported only where a cluster is secured: it takes some 40 ms.
    from squall_common.authentication.credentials import credentials_of
    from squall_common.security.identity import Role

    return credentials_of(client, Role.LOGVIEWER)


async def last_part(
    client: Logviewers, slot: Slot, path: str, lines: int, *, ended: bool
) -> Part | None:
    """The end of a file, with its last `lines` lines or its last 2 MiB, whichever is less. None
    if the file does not exist. Raises LogviewerError."""
    length = min(PART_BYTES, max(_FIRST_BYTES, lines * 200))
    while True:
        part = await client.part(slot, path, start=None, length=length, ended=ended)
        if (
            part is None
            or part.start == 0
            or length == PART_BYTES
            or len(lines_of(part.text)) >= lines
        ):
            return part
        length = min(PART_BYTES, 8 * length)


def lines_of(text: str) -> list[str]:
    """The lines, without their ends."""
    found = text.split("\n")
    return found if found[-1] else found[:-1]


def last_lines(text: str, lines: int) -> list[str]:
    """The last `lines` lines of a text."""
    return lines_of(text)[-lines:] if lines else []


async def print_last(
    client: Logviewers,
    topology_id: str,
    slots: Iterable[Slot],
    file: str,
    *,
    lines: int,
    show: Show,
    say: Say,
) -> None:
    """Show the last lines of a file of each worker, worker by worker. Raises LogviewerError at the
    end if a logviewer failed."""
    ordered = sorted(slots)
    results = await asyncio.gather(
        *(
            last_part(client, slot, path_of(topology_id, slot, file), lines, ended=False)
            for slot in ordered
        ),
        return_exceptions=True,
    )
    failures: list[LogviewerError] = []
    for slot, result in zip(ordered, results, strict=True):
        if isinstance(result, LogviewerError):
            failures.append(result)
        elif isinstance(result, BaseException):
            raise result
        elif result is None:
            say(f"{slot} has no {file} yet")
        else:
            show(slot, last_lines(result.text, lines))
    for failure in failures[1:]:
        say(f"error: {failure.message}")
    if failures:
        raise failures[0]


def path_of(topology_id: str, slot: Slot, file: str) -> str:
    """How a logviewer names a file of a worker."""
    return f"{topology_id}/{slot.port}/{file}"


class Follower:
    """Shows what is added to a file of each worker, wherever the workers move, until the topology
    is gone."""

    def __init__(
        self,
        client: Logviewers,
        topology_id: str,
        file: str,
        *,
        lines: int,
        show: Show,
        say: Say,
        poll_secs: float = _POLL_SECS,
        workers_secs: float = _WORKERS_SECS,
    ) -> None:
        self._client = client
        self._topology_id = topology_id
        self._file = file
        self._lines = lines
        self._show = show
        self._say = say
        self._poll_secs = poll_secs
        self._workers_secs = workers_secs
        self._missing: set[Slot] = set()  # without the file, which has been said

    async def run(
        self, slots: Iterable[Slot], look: Callable[[], Awaitable[Iterable[Slot]]]
    ) -> None:
        """Begin with the workers on `slots`; `look` says where they are now, and raises
        TopologyGoneError, or SquallError if that is not known."""
        ends: dict[Slot, asyncio.Event] = {}
        wanted = set(slots)
        failing = False
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    for slot in sorted(wanted - ends.keys()):
                        ends[slot] = asyncio.Event()
                        group.create_task(self._follow(slot, ends[slot]))
                    for slot in ends.keys() - wanted:
                        ends.pop(slot).set()
                    await asyncio.sleep(self._workers_secs)
                    try:
                        wanted = set(await look())
                    except TopologyGoneError:
                        break
                    except SquallError as error:
                        if not failing:
                            self._say(f"warning: {error.message}")
                        failing = True
                    else:
                        failing = False
                for end in ends.values():
                    end.set()
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None

    async def _follow(self, slot: Slot, end: asyncio.Event) -> None:
        """The file of one worker, until `end` is set and all of it has been read."""
        path = path_of(self._topology_id, slot, self._file)
        at: _Place | None = None
        failing = False
        while True:
            try:
                at, more = await self._step(slot, path, at)
            except LogviewerError as error:
                more = False
                if not failing:
                    self._say(f"warning: {error.message}. {error.hint}")
                failing = True
            else:
                if failing:
                    self._say(f"the logviewer of {slot.host} answers again")
                failing = False
            if more:
                continue
            if end.is_set():
                return
            try:
                async with asyncio.timeout(self._poll_secs):
                    await end.wait()
            except TimeoutError:
                pass

    async def _step(
        self, slot: Slot, path: str, place: _Place | None
    ) -> tuple[_Place | None, bool]:
        """Show what was added since `place`; how far the file has been read, and whether there is
        more. Raises LogviewerError."""
        if place is None:
            part = await last_part(self._client, slot, path, self._lines, ended=True)
            if part is None:
                if slot not in self._missing:
                    self._missing.add(slot)
                    self._say(f"{slot} has no {self._file} yet")
                return None, False
            self._show(slot, last_lines(part.text, self._lines))
            return _Place(part.end, part.identity), False
        part = await self._client.part(slot, path, start=place.at, length=PART_BYTES, ended=True)
        if part is None:  # while it is turned over
            return place, False
        if part.size < place.at or part.identity != place.identity:
            return await self._turned_over(slot, path, place)
        self._show(slot, lines_of(part.text))
        more = part.end > place.at and part.end < part.size
        return _Place(part.end, part.identity), more

    async def _turned_over(self, slot: Slot, path: str, place: _Place) -> tuple[_Place, bool]:
        """The same, of a file that has another name now: its rest, and the next newer file."""
        if not place.identity:
            await self._rest(slot, f"{path}.1", place.at)
            return _Place(0, ""), True
        for number in range(1, _OLD_FILES_MAX + 1):
            old = f"{path}.{number}"
            part = await self._client.part(slot, old, start=place.at, length=1, ended=False)
            if part is not None and part.identity == place.identity:
                at = await self._rest(slot, old, place.at)
                newer = path if number == 1 else f"{path}.{number - 1}"
                begin = await self._client.part(slot, newer, start=0, length=1, ended=False)
                if begin is None or begin.identity == place.identity:  # turned over once more
                    return _Place(at, place.identity), False
                return _Place(0, begin.identity), True
        if not place.lost:  # perhaps it is being renamed
            return replace(place, lost=True), False
        self._say(f"warning: lines of {slot} may be missing: its {self._file} was replaced")
        begin = await self._client.part(slot, path, start=0, length=1, ended=False)
        return _Place(0, begin.identity if begin is not None else ""), True

    async def _rest(self, slot: Slot, path: str, at: int) -> int:
        """Show what was added to a file before it was turned over; its end."""
        while True:
            part = await self._client.part(slot, path, start=at, length=PART_BYTES, ended=False)
            if part is None or part.end <= at:
                return at
            self._show(slot, lines_of(part.text))
            at = part.end
