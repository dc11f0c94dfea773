"""A DRPC server inside this process: for LocalCluster, `storm local` and the test kit.

    drpc = LocalDRPC()
    with LocalCluster() as cluster:
        cluster.submit_topology("reach", {}, builder.create_local_topology(drpc))
        print(drpc.execute("reach", "foo.com/blog/1"))

In the test kit, whose clock is virtual and stands still between calls, `submit` returns a future:

    answer = drpc.submit("reach", "foo.com/blog/1")
    test.run_until(answer.done)

Under `storm local`, topologies without their own server share one, which `drpc_client()` returns to
the entry point; under `storm jar` the same call returns a client of the cluster's servers.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from squall._import_check import MODE_VARIABLE
from squall_drpc.client import DRPCClient, DRPCError
from squall_drpc.requests import Bounds, BusyError, Failure, Outcome, Reason, Request, Requests

LOCAL_PREFIX = "local-drpc-"

_numbers = itertools.count(1)
_servers: dict[str, LocalDRPC] = {}
_shared_lock = threading.Lock()
_shared: LocalDRPC | None = None


class LocalDRPC:
    """An in-process DRPC server. Its methods may be called from any thread.

    class Shout(Bolt):
        outputs = ["id", "result"]

        def execute(self, tup):
            self.emit([tup[0], tup[1].upper()])

    builder = LinearDRPCTopologyBuilder("shout")
    builder.add_bolt(Shout())
    drpc = LocalDRPC()
    topology = builder.create_local_topology(drpc)
    # In a test: cluster.submit_topology("shout", {}, topology); drpc.execute("shout", "hi")
    drpc.shutdown()
    """

    def __init__(self, *, timeout_secs: float = 600.0) -> None:
        self.name = f"{LOCAL_PREFIX}{next(_numbers)}"
        """The name of this server in a topology and in return infos."""
        self._lock = threading.RLock()
        self._timeout_secs = timeout_secs
        self._requests = Requests(
            self.name,
            timeout_secs=timeout_secs,
            taker_timeout_secs=timeout_secs,
            bounds=Bounds(waiting=10_000, requests=10_000),
        )
        self._wake: dict[str, list[Callable[[], None]]] = {}  # by function
        _servers[self.name] = self

    def execute(self, function: str, args: str = "", *, timeout_secs: float | None = None) -> str:
        """The function's result. Raises DRPCError."""
        answer = self.submit(function, args)
        try:
            return answer.result(self._timeout_secs if timeout_secs is None else timeout_secs)
        except TimeoutError:
            answer.cancel()
            raise DRPCError(f"no answer from function {function!r}") from None

    def submit(self, function: str, args: str = "") -> Future[str]:
        """Call a function without waiting for its result. The future may be cancelled."""
        answer: Future[str] = Future()

        def end(outcome: Outcome) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            if isinstance(outcome, Failure):
                answer.set_exception(DRPCError(outcome.message, reason=outcome.reason))
            else:
                answer.set_result(outcome)

        with self._lock:
            now = time.monotonic()
            self._requests.expire(now)
            try:
                request = self._requests.add(function, args, now, end)
            except BusyError as error:
                raise DRPCError(str(error)) from error
            wakes = list(self._wake.get(function, ()))

        def withdraw(ended: Future[str]) -> None:
            if ended.cancelled():
                with self._lock:
                    self._requests.withdraw(request.id)

        answer.add_done_callback(withdraw)
        for wake in wakes:
            wake()
        return answer

    def close(self) -> None:
        """End all requests and forget the server. Idempotent."""
        _servers.pop(self.name, None)
        with self._lock:
            pending = self._requests
            self._wake.clear()
        pending.end_all(_CLOSED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ---- the topology's side ----

    def serve(self, function: str, wake: Callable[[], None]) -> None:
        """Call `wake` whenever there is a request for the function."""
        with self._lock:
            self._wake.setdefault(function, []).append(wake)

    def leave(self, function: str, wake: Callable[[], None]) -> None:
        """Undo `serve`."""
        with self._lock:
            wakes = self._wake.get(function, [])
            if wake in wakes:
                wakes.remove(wake)
            if not wakes:
                self._wake.pop(function, None)

    def take(self, function: str) -> Request | None:
        """The next request, or None."""
        with self._lock:
            now = time.monotonic()
            self._requests.expire(now)
            batch = self._requests.take(function, 1, now)
        return batch.requests[0] if batch.requests else None

    def settle(self, request_id: str, outcome: Outcome) -> None:
        """Answer a request."""
        with self._lock:
            self._requests.settle(request_id, outcome)


def local_server(name: str) -> LocalDRPC:
    """The server with this name. Raises DRPCError when this process has none."""
    server = _servers.get(name)
    if server is None:
        raise DRPCError(
            f"there is no in-process DRPC server {name!r}",
            hint="A topology of create_local_topology() runs only in the process of its LocalDRPC.",
        )
    return server


def in_local_mode() -> bool:
    """Whether `storm local` started this process."""
    return os.environ.get(MODE_VARIABLE) == "local"


def shared_server() -> LocalDRPC:
    """The server of this process that topologies of `storm local` use."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = LocalDRPC()
        return _shared


def drpc_client(conf: Mapping[str, Any] | None = None) -> DRPCClient | LocalDRPC:
    """The client for a program that `storm jar` or `storm local` started: a client of
    `drpc.servers`, or the server inside this process. (Storm's DRPCClient.getConfiguredClient.)
    `conf` None: this machine's configuration. Raises DRPCError when no server is configured.

        if __name__ == "__main__":
            print(drpc_client().execute("reach", "http://news.example/1"))
    """
    if in_local_mode():
        return shared_server()
    if conf is None:
        from squall_common.config.load import load_conf

        conf = load_conf(client=True)
    return DRPCClient.from_conf(conf)


_CLOSED = Failure(Reason.SERVER_SHUTDOWN, "the in-process DRPC server was closed")
