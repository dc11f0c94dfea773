"""Whose the other end of a connection is, by what Linux says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from squall_cli.proxy.owner import is_own, owner_of

HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
)
REST = "00000000:00000000 00:00000000 00000000"
PEER, LOCAL = ("127.0.0.1", 50_000), ("127.0.0.1", 8_080)
A, B = ("0100007F:C350", "0100007F:1F90") if sys.byteorder == "little" else (
    "7F000001:C350", "7F000001:1F90"
)  # fmt: skip


def table(folder: Path, *lines: str) -> Path:
    (folder / "tcp").write_text(HEAD + "".join(f"{line}\n" for line in lines))
    return folder


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        (f"   0: {A} {B} 01 {REST} 1000        0 4711 1", 1000),
        (f"   0: {A} {B} 01 {REST}    0        0 4711 1", 0),
        (f"   0: {A} {B} 01 {REST}    0        0 0 1", None),  # nobody holds it
        (f"   0: {A} {B} 05 {REST}    0        0 4711 1", None),  # it has hung up
        (f"   0: {A} {B} 06 {REST}    0        0 0 1", None),
        (f"   0: {B} {A} 01 {REST} 1000        0 4711 1", None),  # that is our own end
        (f"   0: {A} {A} 01 {REST} 1000        0 4711 1", None),
        ("   0: short", None),
    ],
)
def test_only_a_socket_that_is_connected_and_held_has_an_owner(
    tmp_path: Path, line: str, owner: int | None
) -> None:
    assert owner_of(PEER, LOCAL, table(tmp_path, line)) == owner


def test_a_machine_that_does_not_say_lets_no_one_in(tmp_path: Path) -> None:
    assert owner_of(PEER, LOCAL, tmp_path) is None
    assert not is_own(PEER, LOCAL, tmp_path)
