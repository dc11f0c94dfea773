"""What calls have put since the last snapshot.

The first keys, as many as a table of 65,536 places takes, are references: when one of them is put
again, its value is replaced. All other keys are encoded when they are put, while key and value are
in the processor's cache, and appended to the rows of their key group, each time: a segment may have
a key several times, and the last row counts. A snapshot hands the rows over as they are, with the
references behind them. That is why a log is no dict, which costs a put of one of a million keys
more than all else does.

The log leaves out rows that were replaced when it has twice as many as the state has keys, or when
those of some groups show that about a third of all are. It begins with the table of the log before,
without values, unless less than half of that was put again. The reference needs none of that.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from itertools import islice
from typing import Any

import msgspec

from squall_engine.core.pure.grouped import GroupPacker, fits
from squall_engine.core.values import ROW_BYTES_MAX

_FOUND_AT_ONCE = 20_000
_encode = msgspec.msgpack.Encoder().encode


class ChangeLog:
    """Plain keys with their last values, as rows of a snapshot by key group."""

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._values: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self._values)

    def _note(self, key: Hashable, value: Any) -> bool:
        """A plain key has this plain value from now on. False if a log cannot have it as a row, as
        it is too large or msgpack does not have it: then it must be kept elsewhere."""
        if not fits((key, value)) or len(_encode((key, value))) > ROW_BYTES_MAX:
            return False
        self._values[key] = value
        return True

    def found(self, keys: Collection[Any]) -> Iterator[set[Any]]:
        """Those of these keys that are in the log, some at a time, after about a millisecond each.
        The log may get more meanwhile."""
        rows = iter(list(self._values))
        while some := list(islice(rows, _FOUND_AT_ONCE)):
            equal = set(some)
            yield {key for key in keys if key in equal}

    def frames(self, dead: Collection[Any]) -> Iterator[tuple[int, bytes]]:
        """Each group that has any rows, with these, encoded: without those of `dead` keys."""
        packer = GroupPacker(self._groups)
        packer.add([row for row in self._values.items() if row[0] not in dead])
        yield from packer.frames().items()
