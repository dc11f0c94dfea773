"""Processes by identity."""

import os

import pytest

from squall_supervisor.records import processes
from squall_supervisor.records.processes import ProcessIdentity, ProcessStat, parse_stat

# proc(5), with a name made to mislead a parser.
STAT = (
    b"4711 (a) R 1 (b) S 1 4700 4699 34816 4711 4194560 100 0 0 0 1 2 0 0 20 0 1 0 "
    b"987654 1000 100 18446744073709551615 1 1 0\n"
)


def test_status_fields_count_from_the_last_parenthesis() -> None:
    expected = ProcessStat(pid=4711, state="S", parent=1, session=4699, start_ticks=987654)
    assert parse_stat(STAT) == expected


@pytest.mark.parametrize("data", [b"", b"4711 (x", b"4711 (x) S 1 2", b"\0" * 50])
def test_an_invalid_status_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_stat(data)


def test_this_process_is_identified_as_itself() -> None:
    me = processes.identify(os.getpid())
    assert me is not None
    fd = processes.open_process(me)
    assert fd is not None
    os.close(fd)
    earlier = ProcessIdentity(me.pid, me.start_ticks - 1, me.boot_id)
    another_boot = ProcessIdentity(me.pid, me.start_ticks, "another")
    assert processes.open_process(earlier) is None
    assert processes.open_process(another_boot) is None
