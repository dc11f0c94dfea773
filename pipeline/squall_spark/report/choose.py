"""Chooses the topology, the files, and the start time of a report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_common.history.writer import written_at_ms
from squall_common.names import decode_znode, encode_znode, topology_name_of

_SPAN = re.compile(r"(?P<n>\d+(?:\.\d+)?)\s*(?P<unit>[smhd])")
_UNIT_SECS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NAMED_MAX = 10
_LAST_SECS = datetime.max.replace(tzinfo=UTC).timestamp() - 1  # a zone may put a date beyond it


class HistoryNotFoundError(SquallError):
    """There is no history to report on."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files of one topology's history."""

    topology_id: str
    earlier: tuple[str, ...]  # ids of earlier topologies with the same name, newest first
    folder: Folder
    names: tuple[str, ...]


def parse_since(text: str, now: float) -> float:
    """`90s`, `30m`, `6h`, `2d` ago, or a date or time (ISO 8601; without a zone: UTC), as seconds
    since the epoch, at least 0.0. Raises SquallError."""
    span = _SPAN.fullmatch(text.strip())
    if span is not None:
        return max(0.0, now - float(span["n"]) * _UNIT_SECS[span["unit"]])
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise SquallError(
            f"{text!r} is not a time", hint="30m, 6h, 2d (ago), or 2026-11-21T09:30"
        ) from None
    return max(0.0, (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp())


def _order(topology_id: str) -> tuple[int, int]:
    _, counter, epoch = topology_id.rsplit("-", 2)
    return int(epoch), int(counter)


def choose_id(ids: Iterable[str], wanted: str, url: str) -> tuple[str, tuple[str, ...]]:
    """The id for a name or an id, and the earlier ids with that name: of several topologies with
    the same name, the one submitted last is chosen. Raises HistoryNotFoundError."""
    named: dict[str, list[str]] = {}
    for one in ids:
        try:
            named.setdefault(topology_name_of(one), []).append(one)
        except ValueError:
            continue  # not ours
    everything = {one for of in named.values() for one in of}
    if wanted in everything:
        same = named[topology_name_of(wanted)]
        return wanted, tuple(sorted((i for i in same if i != wanted), key=_order, reverse=True))
    if wanted in named:
        newest, *earlier = sorted(named[wanted], key=_order, reverse=True)
        return newest, tuple(earlier)
    shown = ", ".join(sorted(named)[:_NAMED_MAX]) or "none at all"
    more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    raise HistoryNotFoundError(
        f"there is no history of a topology {wanted!r} in {url}, only of: {shown}{more}",
        hint="a topology writes its history if topology.history.enable is true",
    )


def choose(url: str, wanted: str, since: float | None) -> Chosen:
    """Raises HistoryNotFoundError; SquallError for a URL that cannot be read."""
    folder = Folder(url)
    try:
        if not folder.exists():
            raise HistoryNotFoundError(
                f"there is no history folder {url}",
                hint="topologies write one if topology.history.enable is true; the folder is "
                "storm.history.dir on this machine or in Nimbus' configuration, and has to be "
                "readable here; use --history for another one",
            )
        ids = [decode_znode(name) for name in folder.names()]
        topology_id, earlier = choose_id(ids, wanted, url)
        place = folder / encode_znode(topology_id)
        names = place.names()
    except SquallError:
        raise
    except Exception as error:  # of a URL's file system: anything
        raise SquallError(f"the history {url} cannot be read: {error}") from error
    files = sorted(name for name in names if _is_whole(name))
    if not files:
        raise HistoryNotFoundError(
            f"{topology_id} has no file in {url} yet",
            hint="a worker writes its first file after topology.history.rotation.secs",
        )
    return Chosen(topology_id, earlier, place, tuple(_since(files, since, topology_id)))


def _is_whole(name: str) -> bool:
    return written_at_ms(name) is not None and name.endswith(".parquet") and name[0] != "."


def _since(files: Sequence[str], since: float | None, topology_id: str) -> list[str]:
    """The files that may have rows since a time: all rows of a file are older than the file."""
    if since is None:
        return list(files)
    found = [name for name in files if (written_at_ms(name) or 0) >= since * 1000]
    if not found:
        last = (written_at_ms(files[-1]) or 0) / 1000
        raise HistoryNotFoundError(
            f"{topology_id} has written nothing since {show_time(since)}; its last file is of "
            f"{show_time(last)}",
            hint="omit --since, or give an earlier time",
        )
    return found


def show_time(epoch_secs: float) -> str:
    at = datetime.fromtimestamp(min(epoch_secs, _LAST_SECS), UTC)
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")
