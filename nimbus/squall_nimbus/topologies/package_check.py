"""Checks an uploaded package at submit, as the supervisors that unpack it would."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path

from squall_common.errors import InvalidTopologyError, PackageError, SquallError
from squall_common.packaging.archive.unpack import check

# Processor time of a thread. A package at the limit, 512 MB unpacked, takes about two seconds; the
# supervisors check whatever is not read by then.
_CONTENT_SECS = 5.0
_AT_ONCE_MAX = 2
_REMEMBERED_MAX = 256  # as many uploads as there may be under way


class PackageChecks:
    """Checks each upload once: a finished one never changes. At most two are checked at a time, in
    their own threads; further submits wait."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE_MAX)
        self._passed: OrderedDict[str, None] = OrderedDict()

    async def check(self, handle: str, package: Path) -> None:
        """Raise InvalidTopologyError for a package that no supervisor would unpack."""
        if handle in self._passed:
            self._passed.move_to_end(handle)
            return
        async with self._slots:
            try:
                await asyncio.to_thread(check, package, content_secs=_CONTENT_SECS)
            except PackageError as error:
                raise InvalidTopologyError(
                    f"the package cannot be unpacked: {error.message}", hint=error.hint
                ) from error
            except OSError as error:
                raise SquallError(
                    f"the package cannot be read on Nimbus: {error.strerror or error}",
                    hint="Upload it again, or look at Nimbus' disk.",
                ) from error
        self._passed[handle] = None
        if len(self._passed) > _REMEMBERED_MAX:
            self._passed.popitem(last=False)
