"""State machines that are looked at after everything that happens to them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

from squall_common.daemon import compiled_modules
from squall_engine.multilang.life import ChildLife
from squall_worker.transport.link import Link
from squall_worker.transport.zmq import ZmqTransport

# Everything that is called from outside of the transport, the event loop's callbacks included.
TRANSPORT = (
    "bind", "set_peers", "send", "drain", "grant", "set_wakeup",
    "_on_readable", "_on_push_ready", "_flush", "_on_timer",
    "_on_ring_open", "_on_ring_room", "_on_ring_lost", "_on_ring_data", "_poll",
)  # fmt: skip
LINK = (
    "queue", "grant", "next_frame", "next_data", "sent", "sent_data", "receive", "receive_data",
    "confirm", "take", "tick", "connected",
)  # fmt: skip
CHILD = (
    "started", "start_failed", "pid_received", "heard", "asked", "answered", "killed", "exited",
    "stop", "warns", "tick",
)  # fmt: skip


def is_compiled(machine: type[Any]) -> bool:
    """Whether a class is a compiled one (`squall_common.daemon.compiled_modules`)."""
    return machine.__module__ in compiled_modules.MODULES and compiled_modules.are_used()


@contextmanager
def validated(machine: type[Any], methods: tuple[str, ...]) -> Iterator[list[str]]:
    """Meanwhile, `validate` is called after each of these methods of the class: when the outermost
    one returns, for in the middle of a step much need not be true. Gives the list of what was
    found: the errors are raised as well, but what calls the machine may survive them.

    The methods of a compiled class cannot be replaced: it is not looked at. The stages `pure` and
    `simulation` run the same tests in Python."""
    inside: list[object] = []
    found: list[str] = []
    if is_compiled(machine):
        yield found
        return

    def checked(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **keys: Any) -> Any:
            outermost = not any(one is self for one in inside)
            inside.append(self)
            try:
                result = method(self, *args, **keys)
            finally:
                inside.pop()
            if outermost:
                try:
                    self.validate()
                except AssertionError as error:
                    found.append(str(error))
                    raise
            return result

        return call

    with ExitStack() as stack:
        for name in methods:
            patch = mock.patch.object(machine, name, checked(getattr(machine, name)))
            stack.enter_context(patch)
        yield found


def validated_transports() -> AbstractContextManager[list[str]]:
    """Every transport over ZeroMQ, with its peers and links."""
    return validated(ZmqTransport, TRANSPORT)


def validated_links() -> AbstractContextManager[list[str]]:
    """Every link."""
    return validated(Link, LINK)


def validated_children() -> AbstractContextManager[list[str]]:
    """The life of every child."""
    return validated(ChildLife, CHILD)
