"""The audit log: who did what to which object from where, allowed or refused; a line of JSON each.

    {"time": "2026-11-24T14:03:12.512Z", "decision": "refused", "action": "killTopology",
     "principal": "user:bob", "host": "10.0.0.7", "object": "wordcount-3-1700000000",
     "reason": "..."}

What changes the cluster has a line, and what is refused; a read that is allowed has none. The same
refusal of the same caller has one line a minute, with the number of those left out (`left_out`):
a caller who is refused all the time does not push older lines out. Nodes and owners of tokens are
names that a caller may make up: for these, all refusals of an action are the same one.
"""

from __future__ import annotations

import datetime
import json
import logging
import logging.handlers
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from squall_common.security.acl import Blob, Function, Node, Object, OwnToken, Topology
from squall_common.security.actions import ACTIONS
from squall_common.security.authorize import Allowed, Decision
from squall_common.security.identity import Principal
from squall_thrift.logs import EventLogger
from squall_thrift.serving.throttle import Throttle

log = EventLogger(__name__)

_FILE_BYTES_MAX = 64 * 1024 * 1024
_FILES = 10
_OBJECT_CHARS_MAX = 300


class AuditLog:
    """Writes lines to `write`. `clock` gives seconds since the epoch."""

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._throttle = Throttle()

    def decided(
        self,
        decision: Decision,
        action: str,
        thing: Object,
        caller: Principal | None,
        peer: str,
    ) -> None:
        """Note a decision, if it is one that the log has a line for."""
        if isinstance(decision, Allowed):
            if ACTIONS[action].changes:
                self.note("allowed", action, described(thing), caller, peer, decision.by)
            return
        who = peer.rpartition(":")[0] if caller is None else str(caller)
        name = "" if isinstance(thing, Node | OwnToken) else described(thing)
        left_out = self._throttle.left_out((who, action, name))
        if left_out is not None:
            self.note("refused", action, described(thing), caller, peer, decision.reason, left_out)

    def stranger(self, peer: str, reason: str) -> None:
        """Note a caller who could not prove who it is."""
        left_out = self._throttle.left_out((peer.rpartition(":")[0], ""))
        if left_out is not None:
            self.note("refused", "authenticate", "", None, peer, reason, left_out)

    def note(
        self,
        decision: str,
        action: str,
        thing: str,
        caller: Principal | None,
        peer: str,
        reason: str,
        left_out: int = 0,
    ) -> None:
        """Write a line."""
        when = datetime.datetime.fromtimestamp(self._clock(), datetime.UTC)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "decision": decision,
            "action": action,
            "principal": None if caller is None else str(caller),
            "host": peer,
        }
        if thing:
            line["object"] = thing[:_OBJECT_CHARS_MAX]
        line["reason"] = reason
        if left_out:
            line["left_out"] = left_out
        self._write(json.dumps(line))


def described(thing: Object) -> str:
    """The object of an action, for a line of the log."""
    match thing:
        case Topology(id=name) | Node(id=name) | Function(name=name) | Blob(key=name):
            return name
        case OwnToken(owner=owner):
            return f"a token of {owner}"
        case None:
            return ""


class _Handler(logging.handlers.RotatingFileHandler):
    _throttle = Throttle()

    def handleError(self, record: logging.LogRecord) -> None:
        self.failed()

    def failed(self) -> None:
        """Log the error that is handled just now."""
        left_out = self._throttle.left_out(self.baseFilename)
        if left_out is not None:
            log.error(
                "audit_line_not_written",
                file=self.baseFilename,
                error=sys.exception(),
                left_out=left_out,
            )


class AuditFile:
    """Appends lines to a file, which only its owner may read; 640 MiB are kept. On a full disk
    lines are lost, and the daemon's log says so: calls are still decided."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        self._handler = _Handler(
            path, maxBytes=_FILE_BYTES_MAX, backupCount=_FILES - 1, encoding="utf-8"
        )
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        self._logger = logging.Logger(f"audit {path}")
        self._logger.addHandler(self._handler)

    def __call__(self, line: str) -> None:
        self._logger.info("%s", line)

    def close(self) -> None:
        """Close the file."""
        try:
            self._handler.close()
        except OSError:
            self._handler.failed()
