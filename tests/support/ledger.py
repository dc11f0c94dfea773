"""The two ends of a chaos test, outside everything that is killed: a source that keeps each line
until it is acked, and a sink that records what arrived.

    with Ledger(lines) as ledger:
        ...submit tests/topologies/ledger with ledger.port...
        ledger.wait_done(timeout_secs=60)
        ledger.check()

A line that was handed out on a connection which then ends (its spout was killed) is handed out
again; so is one that failed.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from types import TracebackType


class TuplesLost(AssertionError):
    """What was accepted had no effect, or something has that was never sent: a test that raises
    this is not run again."""


@contextlib.contextmanager
def nothing_lost() -> Iterator[None]:
    """What the block asserts is that all that was accepted took effect, and nothing else did:
    where it does not hold, TuplesLost is raised."""
    try:
        yield
    except AssertionError as error:
        raise TuplesLost(str(error)) from error


class Ledger:
    """Serves lines to spouts and records words from sinks, on a port of `host`, in threads."""

    def __init__(self, lines: Sequence[str], host: str = "127.0.0.1") -> None:
        self.lines = list(lines)
        self.acks = 0
        self.fails = 0
        self.asked = 0  # how often spouts asked for lines
        self.records: Counter[tuple[int, int]] = Counter()
        self.words: dict[tuple[int, int], str] = {}
        self._waiting = list(range(len(self.lines) - 1, -1, -1))
        self._held: dict[int, int] = {}  # line number -> connection that holds it
        self._done: set[int] = set()
        self._again: set[int] = set()  # lines that had to be handed out again
        self._served_max = len(self.lines)
        self._lines_per_sec: float | None = None
        self._paced_from = 0.0
        self._paced_after = 0  # lines
        self._handed_out = 0
        self._watched: set[int] = set()  # lines of `watch` that are not acked
        self._to_watch = 0  # so many more lines join them when they are handed out
        self._watched_from = 0.0
        self._acked_at = time.monotonic()
        self._pause_max_secs = 0.0
        self._change = threading.Condition()
        self._server = _Server(self, host)
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Ledger:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.end_connections()
        self._server.server_close()

    # What connections do --------------------------------------------------------------------------

    def take(self, connection: int, count: int) -> list[tuple[int, str]]:
        """Up to `count` lines that nobody holds."""
        with self._change:
            self.asked += 1
            served_max = self._served_max
            if self._lines_per_sec is not None:
                paced = (time.monotonic() - self._paced_from) * self._lines_per_sec
                served_max = min(served_max, self._paced_after + int(paced))
            room = max(0, served_max - len(self._held) - len(self._done))
            numbers = [self._waiting.pop() for _ in range(min(count, room, len(self._waiting)))]
            for number in numbers:
                self._held[number] = connection
            self._handed_out = max([self._handed_out, *(number + 1 for number in numbers)])
            watched = numbers[: self._to_watch]
            self._watched.update(watched)
            self._to_watch -= len(watched)
            return [(number, self.lines[number]) for number in numbers]

    def ack(self, number: int) -> None:
        with self._change:
            self.acks += 1
            self._note_pause()
            self._done.add(number)
            self._held.pop(number, None)
            self._watched.discard(number)
            self._change.notify_all()

    def fail(self, number: int) -> None:
        with self._change:
            self.fails += 1
            if self._held.pop(number, None) is not None and number not in self._done:
                self._waiting.append(number)
                self._again.add(number)

    def record(self, number: int, place: int, word: str) -> None:
        with self._change:
            self.records[number, place] += 1
            self.words[number, place] = word
            self._change.notify_all()

    def connection_ended(self, connection: int) -> None:
        with self._change:
            for number in [n for n, holder in self._held.items() if holder == connection]:
                del self._held[number]
                if number not in self._done:
                    self._waiting.append(number)
                    self._again.add(number)

    # What the test asks ---------------------------------------------------------------------------

    @property
    def done(self) -> int:
        """Lines that are acked."""
        with self._change:
            return len(self._done)

    def handed_out(self) -> int:
        """Lines that were handed out at least once."""
        with self._change:
            return self._handed_out

    def serve_up_to(self, count: int | None) -> None:
        """Hand out so many lines in all for now; None: all. So a test decides when there is work,
        however fast the cluster is."""
        with self._change:
            self._served_max = len(self.lines) if count is None else count

    def pace(self, lines_per_sec: float | None) -> None:
        """Hand out lines at a steady rate from now on, so that there are always some under way;
        None: as fast as they are asked for."""
        with self._change:
            self._lines_per_sec = lines_per_sec
            self._paced_from = time.monotonic()
            self._paced_after = len(self._held) + len(self._done)

    def watch(self, count: int) -> None:
        """Watch the next `count` lines that are handed out from now on, see `wait_watched`."""
        with self._change:
            self._watched = set()
            self._to_watch = count
            self._watched_from = time.monotonic()

    def wait_watched(self, timeout_secs: float) -> float:
        """Until the lines of `watch` are all acked; the seconds since then. With more of them than
        a component has tasks, every task of the topology has worked on some."""
        deadline = time.monotonic() + timeout_secs
        with self._change:
            while self._to_watch or self._watched:
                left = deadline - time.monotonic()
                if left <= 0 or not self._change.wait(left):
                    raise AssertionError(
                        f"after {timeout_secs:.0f} s {self._to_watch} watched lines are not "
                        f"handed out and {len(self._watched)} not acked"
                    )
            return time.monotonic() - self._watched_from

    def watched_are_done(self) -> bool:
        """Whether the lines of `watch` are all acked."""
        with self._change:
            return not self._to_watch and not self._watched

    def _note_pause(self) -> None:
        now = time.monotonic()
        self._pause_max_secs = max(self._pause_max_secs, now - self._acked_at)
        self._acked_at = now

    def longest_pause(self) -> float:
        """The longest time in seconds without an ack since this was last asked (with lines to hand
        out all the time: see `pace`); then it is measured anew."""
        with self._change:
            self._note_pause()
            longest, self._pause_max_secs = self._pause_max_secs, 0.0
            return longest

    def wait_done(self, count: int | None = None, *, timeout_secs: float) -> None:
        """Until so many lines (all, by default) are acked."""
        wanted = len(self.lines) if count is None else count
        deadline = time.monotonic() + timeout_secs
        with self._change:
            while len(self._done) < wanted:
                left = deadline - time.monotonic()
                if left <= 0 or not self._change.wait(left):
                    raise AssertionError(
                        f"{len(self._done)} of {wanted} lines acked after {timeout_secs:.0f} s "
                        f"({self.fails} fails, {len(self._held)} held, "
                        f"{len(self._waiting)} waiting)"
                    )

    def expected(self, lines: int | None = None) -> dict[tuple[int, int], str]:
        """Every word of the text, or of so many lines, by its place."""
        return {
            (number, place): word
            for number, line in enumerate(self.lines[:lines])
            for place, word in enumerate(line.split())
        }

    def check(self, timeout_secs: float = 60.0) -> None:
        """Every word of the lines that were let out (`serve_up_to`) was recorded at least once, and
        nothing that is not in the text. (Records and acks come on different connections: the last
        records may be read after the last ack.)"""
        expected = self.expected(self._served_max)
        deadline = time.monotonic() + timeout_secs
        with self._change:
            while expected.keys() - self.words.keys():
                left = deadline - time.monotonic()
                if left <= 0 or not self._change.wait(left):
                    break
            words = dict(self.words)
        lost = expected.keys() - words.keys()
        if lost:
            raise TuplesLost(f"{len(lost)} of {len(expected)} words, such as {sorted(lost)[:5]}")
        if words != expected:
            raise TuplesLost("words were recorded that the text does not have")

    def account(self) -> dict[str, int]:
        """The words that were let out, in all; how many of them were never recorded though their
        line was acked, recorded though they are not in the text, recorded more than once, and
        recorded of lines that had failed or lost their holder before; and `lines_repeated`."""
        with self._change:
            done = self._done
            handed_out = self.expected(self._handed_out)
            expected = {key: word for key, word in handed_out.items() if key[0] in done}
            recorded = self.words
            return {
                "messages": len(expected),
                "lost": len(expected.keys() - recorded.keys()),
                "unexpected": len(recorded.items() - handed_out.items()),
                "duplicates": self.records.total() - len(self.records),
                "recovered": sum(len(self.lines[number].split()) for number in self._again & done),
                "fails": self.fails,
                "lines_repeated": self.lines_repeated(),
            }

    def lines_repeated(self) -> int:
        """How often a line went through once more than it should, with any of its words."""
        most: Counter[int] = Counter()
        with self._change:
            for (number, _), times in self.records.items():
                most[number] = max(most[number], times)
        return most.total() - len(most)

    def duplicates(self) -> int:
        """Records beyond the first of each word."""
        with self._change:
            return self.records.total() - len(self.records)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = False
    block_on_close = True
    allow_reuse_address = True

    def __init__(self, ledger: Ledger, host: str) -> None:
        self.ledger = ledger
        self._open: set[socket.socket] = set()
        super().__init__((host, 0), _Handler)

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, address = super().get_request()
        # A node that is cut off ends no connection: what it holds is handed out again soon.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("KEEPIDLE", 2), ("KEEPINTVL", 1), ("KEEPCNT", 3)):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{option}"), value)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 5000)
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: object) -> None:
        assert isinstance(request, socket.socket)
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # the other end has gone already
                continue


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        ledger = self.server.ledger
        connection = id(self)
        try:
            for raw in self.rfile:
                words = raw.decode().rstrip("\n").split("\t")
                match words:
                    case ["next", count]:
                        answer = ledger.take(connection, int(count))
                        self.wfile.write(json.dumps(answer).encode() + b"\n")
                    case ["ack", number]:
                        ledger.ack(int(number))
                    case ["fail", number]:
                        ledger.fail(int(number))
                    case ["record", number, place, word] if raw.endswith(b"\n"):
                        ledger.record(int(number), int(place), word)
                    case ["confirm"]:
                        self.wfile.write(b"[]\n")
                    case _:
                        continue
        except OSError:  # a killed worker resets its connections
            pass
        finally:
            ledger.connection_ended(connection)


def text(words: int = 100_000) -> list[str]:
    """Lines of a real text of at least so many words: Python's own documentation, as it lies in
    the standard library (`pydoc_data.topics`, Python Software Foundation), repeated as needed."""
    from pydoc_data.topics import topics

    source = [line.strip() for topic in sorted(topics) for line in topics[topic].splitlines()]
    source = [line for line in source if line]
    lines: list[str] = []
    count = 0
    while count < words:
        for line in source:
            lines.append(line)
            count += len(line.split())
            if count >= words:
                break
    return lines
