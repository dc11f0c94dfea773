"""The entrypoint of a Squall container: writes storm.yaml when none is mounted, then runs the
command.

    entrypoint.py storm nimbus        any command; a daemon learns the name that others resolve
    entrypoint.py storm supervisor    started again when it ends, so that its workers live on

The environment, used for a storm.yaml of our own only:

    STORM_ZOOKEEPER_SERVERS, NIMBUS_SEEDS, DRPC_SERVERS     lists with commas
    STORM_DATA_DIR, STORM_LOG_DIR                           /data and /logs
    STORM_YAML                                              a YAML map, which wins over all others
    STORM_LOGVIEWER=yes                                     a supervisor's container also runs the
                                                            logviewer, which shows its workers' logs

and always: STORM_CONF_DIR (/conf), STORM_LOCAL_HOSTNAME (the container's host name).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HEADER = "# Written by the container's entrypoint from its environment: changes are lost.\n"
LISTS = {
    "STORM_ZOOKEEPER_SERVERS": "storm.zookeeper.servers",
    "NIMBUS_SEEDS": "nimbus.seeds",
    "DRPC_SERVERS": "drpc.servers",
}
# Where each daemon listens: the key, and its default.
PORTS = {
    "nimbus": ("nimbus.thrift.port", 6627),
    "supervisor": ("supervisor.thrift.port", 6628),
    "drpc": ("drpc.port", 3772),
    "ui": ("ui.port", 8080),
    "logviewer": ("logviewer.port", 8000),
}
HOSTNAME = "storm.local.hostname"
_PAUSE_SECS = 1.0
_STOPS = (signal.SIGTERM, signal.SIGINT)
# The port that the image's HEALTHCHECK connects to.
_PORT_FILE = Path("/tmp/squall.port")


class EntrypointError(Exception):
    """A request in the environment cannot be carried out; the message says why."""


def rendered(env: Mapping[str, str]) -> dict[str, Any]:
    """The site configuration that the environment asks for. Raises EntrypointError."""
    conf: dict[str, Any] = {
        "storm.local.dir": env.get("STORM_DATA_DIR") or "/data",
        "storm.log.dir": env.get("STORM_LOG_DIR") or "/logs",
        # Loopback would be the container's own.
        "storm.bind.host": "0.0.0.0",
    }
    for variable, key in LISTS.items():
        values = [part.strip() for part in env.get(variable, "").split(",")]
        if any(values):
            conf[key] = [value for value in values if value]
    conf.update(_yaml_map(env.get("STORM_YAML", ""), "STORM_YAML"))
    return conf


def _yaml_map(text: str, where: str) -> dict[str, Any]:
    import yaml

    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise EntrypointError(
            f"{where} is not valid YAML: {' '.join(str(error).split())}"
        ) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise EntrypointError(f"{where} is not a YAML map of options: {value!r}")
    return value


def site_conf(path: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """The storm.yaml that was mounted; else one from the environment, written to `path`. Raises
    EntrypointError."""
    import yaml

    try:
        if path.exists():
            text = path.read_text(encoding="utf-8")
            if not text.startswith(HEADER):
                return _yaml_map(text, str(path))
        conf = rendered(env)
        # Values may be secrets.
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(HEADER + yaml.safe_dump(conf))
        os.replace(partial, path)
        return conf
    except (OSError, UnicodeDecodeError) as error:
        raise EntrypointError(
            f"{path} cannot be read or written by user {os.getuid()}: {error}; "
            f"mount a storm.yaml there, or a folder that the user may write"
        ) from error


def daemon_of(command: Sequence[str]) -> str | None:
    """The daemon that a command line runs, if any."""
    if len(command) >= 2 and command[0] == "storm" and command[1] in PORTS:
        return command[1]
    return None


def with_hostname(
    command: Sequence[str], conf: Mapping[str, Any], env: Mapping[str, str]
) -> list[str]:
    """The command of a daemon, with the name under which other containers find this one: what the
    command line or storm.yaml says, else STORM_LOCAL_HOSTNAME, else the container's host name,
    which a network of Docker's resolves (its id, unless it was given another)."""
    given = any(HOSTNAME in word for word in command[2:])
    if given or conf.get(HOSTNAME):
        return list(command)
    host = env.get("STORM_LOCAL_HOSTNAME") or socket.gethostname()
    return [*command[:2], "-c", f"{HOSTNAME}={host}", *command[2:]]


def supervise(command: Sequence[str], *, logviewer: bool = False) -> int:
    """Run a supervisor, restarting it until SIGTERM or SIGINT: then end it, and its workers,
    which drain. With `logviewer` one runs beside it, and is restarted likewise. Whatever else ends
    meanwhile (workers of a supervisor that was killed) is reaped: this may be process 1. Returns 2
    when the command line is wrong, else 0."""
    child = beside = 0
    stopping = False
    showing = [command[0], "logviewer", *command[2:]]

    def stop(_number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True
        for pid in (child, beside):
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def show() -> None:
        """Start the logviewer."""
        nonlocal beside
        with _signals_held():
            beside = 0 if stopping else _spawn(showing)

    def ended(pid: int, status: int) -> None:
        if pid == beside and not stopping:
            print(f"the logviewer exited with status {status}; restarting it", file=sys.stderr)
            time.sleep(_PAUSE_SECS)
            show()

    for number in _STOPS:
        signal.signal(number, stop)
    if logviewer:
        show()
    while True:
        with _signals_held():
            if stopping:
                break
            child = _spawn(command)
        status = _reap_until(child, ended)
        child = 0
        if status == 2:
            return 2
        if not stopping:
            print(f"the supervisor exited with status {status}; restarting it", file=sys.stderr)
            time.sleep(_PAUSE_SECS)
    _reap_until(_spawn([command[0], "kill_workers", *command[2:]]))
    if beside:
        with contextlib.suppress(ChildProcessError):  # it was reaped before
            os.waitpid(beside, 0)
    return 0


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """A signal to stop waits for the end of the block: it comes before a program is started, or
    finds its process id recorded."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def _spawn(command: Sequence[str]) -> int:
    """Start a program, in which no signal is blocked; its process id."""
    return os.posix_spawnp(command[0], list(command), os.environ, setsigmask=())


def _reap_until(child: int, ended: Callable[[int, int], None] = lambda _pid, _status: None) -> int:
    """Wait for the end of a child, and of all others that end before, for which `ended(pid,
    status)` is called; its exit status, negative for a signal."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        ended(pid, os.waitstatus_to_exitcode(status))


def port_of(command: Sequence[str], conf: Mapping[str, Any]) -> int:
    """Where a daemon listens: what the command line says, else storm.yaml, else the default."""
    key, default = PORTS[command[1]]
    port = conf.get(key, default)
    for word in command[2:]:
        name, equals, value = word.removeprefix("-c").partition("=")
        if equals and name.strip() == key:
            port = value
    try:
        return int(port)
    except (TypeError, ValueError) as error:
        raise EntrypointError(f"{key} is {port!r}, not a port number") from error


def run(command: Sequence[str], env: Mapping[str, str]) -> int:
    """The work of `main`; errors are raised."""
    path = Path(env.get("STORM_CONF_DIR") or "/conf") / "storm.yaml"
    conf = site_conf(path, env)
    daemon = daemon_of(command)
    if daemon is not None:
        command = with_hostname(command, conf, env)
        with contextlib.suppress(OSError):  # the container may have no writable folder for it
            _PORT_FILE.write_text(f"{port_of(command, conf)}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    if daemon == "supervisor":
        return supervise(command, logviewer=env.get("STORM_LOGVIEWER") == "yes")
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        raise EntrypointError(f"{command[0]}: {error.strerror}") from error


def main() -> int:
    try:
        return run(sys.argv[1:] or ["storm", "--help"], os.environ)
    except EntrypointError as error:
        print(f"entrypoint: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
