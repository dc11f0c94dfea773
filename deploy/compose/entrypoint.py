"""The entrypoint of a Squall container: writes storm.yaml when none is mounted, then runs the
command.

    entrypoint.py storm nimbus        any command; a daemon learns the name that others resolve
    entrypoint.py storm supervisor    started again when it ends, so that its workers live on
    entrypoint.py token alice         print a token of a user, for 12 hours
    entrypoint.py certificate NAME    leave a user's certificate in STORM_CERTIFICATE_DIR, for a
                                      program that is not ours (STORM_CERTIFICATE_UID)

The environment, used for a storm.yaml of our own only:

    STORM_ZOOKEEPER_SERVERS, NIMBUS_SEEDS, DRPC_SERVERS     lists with commas
    STORM_DATA_DIR, STORM_LOG_DIR                           /data and /logs
    STORM_YAML                                              a YAML map, which wins over all others
    STORM_LOGVIEWER=yes                                     a supervisor's container also runs the
                                                            logviewer, which shows its workers' logs
    STORM_USER                                              whose commands run here (storm)
    STORM_ADMINS                                            with STORM_CA, the administrators
    STORM_FUNCTIONS                                         with STORM_CA, the file of who may
                                                            call and serve DRPC functions
    STORM_CERTIFICATE_HOSTS                                 more names of this daemon
    STORM_ACCOUNTS                                          a supervisor's file of accounts (that of
                                                            the CA)
    STORM_OPEN=yes                                          an open cluster: no certificates, and
                                                            whoever reaches a port may do everything

and always: STORM_CONF_DIR (/conf), STORM_LOCAL_HOSTNAME (the container's host name), STORM_CA, the
folder that is shared with the container of the CA (`squall_cli.secure.enrolment`). With it,
whatever runs here has a certificate first: a daemon its own, a command its user's. They are in the
folder `security` of STORM_DATA_DIR.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
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
SECURITY = "storm.security"
# The user of the image, as whom workers run whose owner it does not know in an open cluster.
USER = "storm"
_PAUSE_SECS = 1.0
_LOOK_SECS = 0.5
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
        if values := _words(env.get(variable, "")):
            conf[key] = values
    if _yes(env, "STORM_OPEN"):
        conf[f"{SECURITY}.insecure"] = True
        conf["supervisor.run.worker.as.user.default"] = USER
    elif ca_folder(env) is not None:
        conf["nimbus.admins"] = _words(env.get("STORM_ADMINS") or USER)
        conf["metrics.users"] = ["prometheus"]  # the user of the profile monitoring
        if env.get("STORM_FUNCTIONS"):
            conf["drpc.authorizer.acl.filename"] = env["STORM_FUNCTIONS"]
    conf.update(_yaml_map(env.get("STORM_YAML", ""), "STORM_YAML"))
    return conf


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _yes(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name, "").lower()
    if value not in ("", "yes", "no"):
        raise EntrypointError(f"{name} is {value!r}, neither yes nor no")
    return value == "yes"


def ca_folder(env: Mapping[str, str]) -> Path | None:
    """The folder that is shared with the CA; None in an open cluster."""
    return None if _yes(env, "STORM_OPEN") or not env.get("STORM_CA") else Path(env["STORM_CA"])


def certified(role: str, name: str, hosts: Sequence[str], env: Mapping[str, str]) -> dict[str, str]:
    """The options by which a daemon or a user proves who it is, with files that the CA has given;
    none in an open cluster. Raises EntrypointError."""
    folder = ca_folder(env)
    if folder is None:
        return {}
    from squall_cli.secure.enrolment import CA, DIGEST_FILE, REVOKED, obtain
    from squall_common.errors import SquallError
    from squall_common.security.identity import Role

    out = Path(env.get("STORM_DATA_DIR") or "/data") / "security"
    try:
        certificate, key = obtain(folder, Role(role), name, hosts, out)
    except SquallError as error:
        raise EntrypointError(str(error)) from error
    digest = out / DIGEST_FILE
    uses_zookeeper = role in ("nimbus", "supervisor") and digest.exists()
    return {
        f"{SECURITY}.ca": str(folder / CA),
        f"{SECURITY}.revoked": str(folder / REVOKED),
        f"{SECURITY}.certificate": str(certificate),
        f"{SECURITY}.key": str(key),
        **({"storm.zookeeper.auth.payload.file": str(digest)} if uses_zookeeper else {}),
    }


def host_names(env: Mapping[str, str]) -> list[str]:
    """The names under which a daemon of this container is reached: the first is its own."""
    own = env.get("STORM_LOCAL_HOSTNAME") or socket.gethostname()
    return [own, *_words(env.get("STORM_CERTIFICATE_HOSTS", "")), "localhost", "127.0.0.1"]


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


def site_conf(
    path: Path, env: Mapping[str, str], security: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The storm.yaml that was mounted; else one from the environment and `security`, written to
    `path`. Raises EntrypointError."""
    import yaml

    try:
        if path.exists():
            text = path.read_text(encoding="utf-8")
            if not text.startswith(HEADER):
                return _yaml_map(text, str(path))
        conf = {**(security or {}), **rendered(env)}
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


def supervise(command: Sequence[str], *, logviewer: Sequence[str] = ()) -> int:
    """Run a supervisor, restarting it until SIGTERM or SIGINT: then end it, and its workers,
    which drain. With `logviewer`, its command, one runs beside it, and is restarted likewise.
    Whatever else ends meanwhile (workers of a supervisor that was killed) is reaped: this may be
    process 1. Returns 2 when the command line is wrong, else 0."""
    child = beside = 0
    stopping = False

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
            beside = 0 if stopping else _spawn(logviewer)

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


def prepare_folders(env: Mapping[str, str]) -> None:
    """Give this container's folders to root, if it runs here: the supervisor, whose workers run as
    other users. (The image gives them to its own user, as which all other daemons run.)"""
    if os.geteuid() != 0:
        return
    for name, default in (("STORM_DATA_DIR", "/data"), ("STORM_LOG_DIR", "/logs")):
        folder = Path(env.get(name) or default)
        try:
            if folder.stat().st_uid != 0:
                os.chown(folder, 0, 0)
            folder.chmod(0o755)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise EntrypointError(f"{folder} cannot be given to root: {error.strerror}") from error


def follow_accounts(source: Path, passwd: Path = Path("/etc/passwd")) -> None:
    """Forever: see to it that each user of the cluster is one of this machine, under the same id
    everywhere."""
    while True:
        with contextlib.suppress(OSError):
            add_accounts(source, passwd)
        time.sleep(_LOOK_SECS)


def add_accounts(source: Path, passwd: Path) -> None:
    """Do it once. Raises OSError."""
    from squall_cli.secure.enrolment import uids

    known = {line.split(":")[0] for line in passwd.read_text().splitlines()}
    lines = [
        f"{name}:x:{uid}:{uid}::/nonexistent:/usr/sbin/nologin\n"
        for name, uid in uids(source.read_text("ascii")).items()
        if name not in known
    ]
    if lines:
        with passwd.open("a") as file:
            file.write("".join(lines))


def token_of(name: str, env: Mapping[str, str]) -> list[str]:
    """The command that prints a token of a user."""
    security = certified("user", name, [], env)
    if not security:
        raise EntrypointError("this cluster is open: it has no tokens")
    site_conf(_conf_file(env), env, security)
    return ["storm", "token", "create"]


def leave_certificate(name: str, env: Mapping[str, str]) -> None:
    """Put the certificate of a user, its key and the CA's certificate where another program reads
    them, as a user of its own."""
    target, uid = Path(env["STORM_CERTIFICATE_DIR"]), int(env["STORM_CERTIFICATE_UID"])
    security = certified("user", name, [], env)
    if not security:
        return  # an open cluster asks no one
    for kind in ("ca", "certificate", "key"):
        path, value = target / f"{kind}.pem", security[f"{SECURITY}.{kind}"]
        partial = path.with_suffix(".part")
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(Path(value).read_bytes())
            os.fchown(descriptor, uid, uid)
        os.replace(partial, path)


def _conf_file(env: Mapping[str, str]) -> Path:
    return Path(env.get("STORM_CONF_DIR") or "/conf") / "storm.yaml"


def run(command: Sequence[str], env: Mapping[str, str]) -> int:
    """The work of `main`; errors are raised."""
    if daemon_of(command) == "supervisor":
        prepare_folders(env)
    if len(command) == 2 and command[0] == "token":
        command = token_of(command[1], env)
    elif len(command) == 2 and command[0] == "certificate":
        leave_certificate(command[1], env)
        return 0
    elif list(command[:3]) != ["storm", "admin", "ca"]:
        command = _with_site(command, env)
    sys.stdout.flush()
    sys.stderr.flush()
    if daemon_of(command) == "supervisor":
        folder, given = ca_folder(env), env.get("STORM_ACCOUNTS")
        if given or folder is not None:
            source = Path(given) if given else Path(str(folder)) / "accounts"
            threading.Thread(target=follow_accounts, args=(source,), daemon=True).start()
        viewer = _logviewer(command, env) if _yes(env, "STORM_LOGVIEWER") else []
        return supervise(command, logviewer=viewer)
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        raise EntrypointError(f"{command[0]}: {error.strerror}") from error


def _with_site(command: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
    """Write storm.yaml, with a certificate, for a command; the command with its host name."""
    daemon = daemon_of(command)
    if daemon is None:
        site_conf(_conf_file(env), env, certified("user", env.get("STORM_USER") or USER, [], env))
        return command
    hosts = host_names(env)
    conf = site_conf(_conf_file(env), env, certified(daemon, hosts[0], hosts, env))
    command = with_hostname(command, conf, env)
    with contextlib.suppress(OSError):  # the container may have no writable folder for it
        _PORT_FILE.write_text(f"{port_of(command, conf)}\n")
    return command


def _logviewer(command: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The command of the logviewer beside a supervisor, which has a certificate of its own."""
    hosts = host_names(env)
    own = certified("logviewer", hosts[0], hosts, env)
    words = [f"{key}={own[key]}" for key in own if key.endswith((".certificate", ".key"))]
    return [
        *(command[0], "logviewer"),
        *(word for option in words for word in ("-c", option)),
        *command[2:],
    ]


def main() -> int:
    try:
        return run(sys.argv[1:] or ["storm", "--help"], os.environ)
    except EntrypointError as error:
        print(f"entrypoint: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
