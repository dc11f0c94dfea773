"""The files in which a worker records the messages that it has in hand, for its successor."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from squall_common.daemon.logs import get_logger
from squall_common.worker_files.launch_spec import LaunchSpec

if TYPE_CHECKING:
    from squall_engine.embed import Before, InHand

log = get_logger(__name__)


def open_in_hand(spec: LaunchSpec) -> tuple[InHand | None, Before | None]:
    """The file in which this worker records the messages that it has in hand, and the previous
    worker's file. The worker can go on without either."""
    from squall_engine.embed import Before, InHand

    before = None
    try:
        before = Before.read(spec.before_file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("end_before_not_known", error=error)
    # It is large; if this worker ends before it has a record of its own, its supervisor still has
    # what it was given.
    with contextlib.suppress(OSError):
        spec.before_file.unlink(missing_ok=True)
    try:
        return InHand.at(spec.in_hand_file), before
    except OSError as error:
        log.warning("in_hand_not_noted", error=error)
        return None, None
