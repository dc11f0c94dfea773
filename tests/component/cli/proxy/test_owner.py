"""Whose a real connection is."""

from __future__ import annotations

import os
import socket

from squall_cli.proxy.owner import is_own, owner_of


def test_the_kernel_names_this_user_until_the_other_end_closes() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        other = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            ends = accepted.getpeername(), accepted.getsockname()
            assert owner_of(*ends) == os.geteuid()
            assert is_own(*ends)
            other.close()
            assert not is_own(*ends)
