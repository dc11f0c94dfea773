"""A DRPC server as a process: what its callers leave behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.devcluster import environment, wait_for

from squall_common.config.load import default_conf
from squall_thrift import codec, storm
from squall_thrift.protocol import messages

CALLS = 200
ARGS_BYTES = 1_000_000


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_released_when_callers_hang_up(tmp_path: Path) -> None:
    """Calls of 1 MB of which nobody waits for the answer: as many as the server takes from one
    address, and more."""
    ports = dict.fromkeys(("drpc.port", "drpc.invocations.port", "drpc.http.port"), 0)
    conf = tmp_path / "conf.json"
    conf.write_text(json.dumps({**default_conf(), **ports}))
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "squall_drpc"],
        env={**environment(), "SQUALL_DAEMON_CONF": str(conf)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["drpc"]["port"]
        before = _rss_bytes(server.pid)
        args = storm.DistributedRPC.methods["execute"].args.cls
        callers = []
        for number in range(CALLS):
            body = codec.to_bytes(args(f"f{number % 10}", "x" * ARGS_BYTES))
            message = messages.serialize(messages.MessageType.CALL, "execute", 1, body)
            callers.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            callers[-1].sendall(len(message).to_bytes(4) + message)
        # The last ones are refused: half of 256 MiB is one address's part.
        assert b"bytes of arguments under way" in callers[-1].recv(1000)
        # One byte in memory for each byte of the arguments.
        assert _rss_bytes(server.pid) - before < 200_000_000
        for caller in callers:
            caller.close()
        wait_for("the memory to go back", lambda: _rss_bytes(server.pid) - before < 20_000_000, 60)
    finally:
        server.terminate()
        server.wait(30)
        if server.stdout is not None:
            server.stdout.close()
