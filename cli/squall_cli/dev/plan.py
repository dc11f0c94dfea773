"""The parts of a development cluster, decided before anything starts: folders, ports, and the
configuration of each daemon."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from squall_common.config.options.typed import ClientOptions, DrpcOptions
from squall_common.daemon.ports import LOOPBACK
from squall_common.errors import ConfigError, SquallError

ZOOKEEPER_PORT = 2181
NIMBUS_PORT = 6627
FIRST_SLOT_PORT = 6700
DRPC_PORTS = (3772, 3773, 3774)
UI_PORT = 8080
LOGVIEWER_PORT = 8000

# Keys that the plan itself decides: setting one of these by -c would break the cluster.
_DECIDED_HERE = {
    "storm.local.dir": "--data-dir",
    "storm.log.dir": "--data-dir",
    "storm.zookeeper.servers": "--free-ports",
    "storm.zookeeper.port": "--free-ports",
    "storm.local.hostname": None,
    "storm.bind.host": None,
    "nimbus.seeds": None,
    "nimbus.thrift.port": "--free-ports",
    "supervisor.slots.ports": "--slots",
    "supervisor.thrift.port": None,
    "drpc.servers": None,
    "drpc.port": "--free-ports",
    "drpc.invocations.port": "--free-ports",
    "drpc.http.port": "--free-ports",
    "ui.host": None,
    "ui.port": "--free-ports",
    "logviewer.port": "--free-ports",
    "logviewer.log.dirs": None,
    "storm.zookeeper.auth.payload": "--secure",
    "storm.zookeeper.auth.payload.file": "--secure",
    "storm.security.ca": "--secure",
    "storm.security.certificate": "--secure",
    "storm.security.key": "--secure",
    "storm.security.token.file": "--secure",
}


def default_data_dir(env: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_STATE_HOME/squall/dev`, else `~/.local/state/squall/dev`: one per user."""
    state = env.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "squall" / "dev"


@dataclass(frozen=True, slots=True)
class SupervisorPlan:
    """One supervisor: its number (from 1) and the ports of its slots."""

    number: int
    slots: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"supervisor-{self.number}"


@dataclass(frozen=True, slots=True)
class DrpcPlan:
    """The ports of the DRPC server: for callers, for workers, and for callers over HTTP."""

    port: int
    invocations_port: int
    http_port: int


@dataclass(frozen=True, slots=True)
class WebPlan:
    """The ports of the web UI and of the logviewer."""

    ui: int
    logviewer: int


@dataclass(frozen=True, slots=True)
class DevPlan:
    """The cluster to start."""

    data_dir: Path
    zookeeper_port: int
    nimbus_port: int
    drpc: DrpcPlan
    web: WebPlan
    supervisors: tuple[SupervisorPlan, ...]
    site_conf: Mapping[str, Any] = field(default_factory=dict)  # defaults and site file
    overrides: Mapping[str, Any] = field(default_factory=dict)  # -c, which wins over this plan
    secure: bool = False  # with a CA, certificates and a token; see `secure`

    @property
    def logs(self) -> Path:
        return self.data_dir / "logs"

    @property
    def conf_file(self) -> Path:
        """A storm.yaml through which other commands reach this cluster."""
        return self.data_dir / "storm.yaml"

    @property
    def security(self) -> Path:
        """The CA, certificates and keys of a secured cluster."""
        return self.data_dir / "security"

    @property
    def digest_file(self) -> Path:
        """By which the daemons of a secured cluster prove to ZooKeeper who they are."""
        return self.security / "zookeeper.digest"

    @property
    def token_file(self) -> Path:
        """The token of whoever runs a secured cluster."""
        return self.security / "token"

    def identity(self, role: str, name: str) -> dict[str, Any]:
        """The keys by which a process of a secured cluster proves who it is."""
        stem = self.security / f"{role}-{name}"
        return {
            "storm.security.certificate": f"{stem}.pem",
            "storm.security.key": f"{stem}.key",
        }

    @property
    def state_file(self) -> Path:
        """What `storm dev --json` prints, kept up to date when a daemon is restarted."""
        return self.data_dir / "cluster.json"

    def folder(self, name: str) -> Path:
        """Where a daemon keeps its files."""
        return self.data_dir / name

    def log_dir(self, name: str) -> Path:
        """Where a daemon and its workers write their logs."""
        return self.logs / name if name.startswith("supervisor") else self.logs

    def ports(self) -> dict[int, str]:
        """Every port that must be free, with its purpose."""
        ports = {
            self.zookeeper_port: "ZooKeeper",
            self.nimbus_port: "Nimbus",
            self.drpc.port: "DRPC",
            self.drpc.invocations_port: "DRPC, for workers",
            self.drpc.http_port: "DRPC over HTTP",
            self.web.ui: "the UI",
            self.web.logviewer: "the logviewer",
        }
        for supervisor in self.supervisors:
            ports |= dict.fromkeys(supervisor.slots, f"a slot of {supervisor.name}")
        return ports

    def client_conf(self) -> dict[str, Any]:
        """The keys of `conf_file`."""
        return {
            "storm.zookeeper.servers": [LOOPBACK],
            "storm.zookeeper.port": self.zookeeper_port,
            "nimbus.seeds": [LOOPBACK],
            "nimbus.thrift.port": self.nimbus_port,
            "drpc.servers": [LOOPBACK],
            "drpc.port": self.drpc.port,
            "drpc.invocations.port": self.drpc.invocations_port,
            "drpc.http.port": self.drpc.http_port,
            "ui.port": self.web.ui,
            "logviewer.port": self.web.logviewer,
            "storm.local.dir": str(self.folder("client")),
            "storm.log.dir": str(self.logs),
            "storm.history.dir": ClientOptions.read(self.site_conf).storm_history_dir
            or str(self.folder("history")),
            **self._trust(),
            **self.overrides,
        }

    def _trust(self) -> dict[str, Any]:
        if not self.secure:
            return {}
        return {
            "storm.security.ca": str(self.security / "ca" / "ca.pem"),
            "storm.security.token.file": str(self.token_file),
            "storm.zookeeper.auth.payload.file": str(self.digest_file),
        }

    def nimbus_conf(self) -> dict[str, Any]:
        """The whole configuration of Nimbus."""
        own: dict[str, Any] = {}
        if self.secure:
            own = {"nimbus.admins": [getpass.getuser()], **self._daemon_identity("nimbus")}
        return self._daemon_conf("nimbus", own)

    def _daemon_identity(self, role: str) -> dict[str, Any]:
        """The keys of a daemon of which there is one, named as its role."""
        if not self.secure:
            return {}
        return {
            "storm.security.revoked": str(self.security / "ca" / "revoked.jws"),
            **self.identity(role, role),
        }

    def drpc_conf(self) -> dict[str, Any]:
        """The whole configuration of the DRPC server."""
        own: dict[str, Any] = {}
        if self.secure:
            own = {"nimbus.admins": [getpass.getuser()], **self._daemon_identity("drpc")}
            given = DrpcOptions.read({**self.site_conf, **self.overrides})
            if given.drpc_authorizer_acl_filename is None:  # all of it is one person's
                own["drpc.authorizer.acl.strict"] = False
        return self._daemon_conf("drpc", own)

    def ui_conf(self) -> dict[str, Any]:
        """The whole configuration of the UI."""
        return self._daemon_conf("ui", {"ui.host": LOOPBACK, **self._daemon_identity("ui")})

    def logviewer_conf(self) -> dict[str, Any]:
        """The whole configuration of the logviewer, which serves the logs of all supervisors."""
        folders = [str(self.log_dir(one.name)) for one in self.supervisors]
        own: dict[str, Any] = {"logviewer.log.dirs": folders}
        if self.secure:
            own |= {"nimbus.admins": [getpass.getuser()], **self._daemon_identity("logviewer")}
        return self._daemon_conf("logviewer", own)

    def supervisor_conf(self, supervisor: SupervisorPlan) -> dict[str, Any]:
        """The whole configuration of one supervisor; its Thrift port is any free one."""
        return self._daemon_conf(
            supervisor.name,
            {
                "supervisor.slots.ports": list(supervisor.slots),
                "supervisor.thrift.port": 0,
                **self._supervisor_identity(supervisor),
            },
        )

    def _supervisor_identity(self, supervisor: SupervisorPlan) -> dict[str, Any]:
        if not self.secure:
            return {}
        return {
            # All of it is one person's.
            "supervisor.workers.share.user": True,
            "nimbus.admins": [getpass.getuser()],  # for the page with metrics
            "storm.security.revoked": str(self.security / "ca" / "revoked.jws"),
            **self.identity("supervisor", supervisor.name),
        }

    def _daemon_conf(self, name: str, own: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **self.site_conf,
            **self.client_conf(),
            # The machine's own name need not resolve to loopback, where everything listens.
            "storm.local.hostname": LOOPBACK,
            "storm.bind.host": LOOPBACK,
            "storm.local.dir": str(self.folder(name)),
            "storm.log.dir": str(self.log_dir(name)),
            **own,
        }


def make_plan(
    *,
    data_dir: Path,
    supervisors: int,
    slots: int,
    free_ports: Callable[[int], list[int]] | None,
    is_free: Callable[[int], bool],
    site_conf: Mapping[str, Any],
    overrides: Mapping[str, Any],
    secure: bool = False,
) -> DevPlan:
    """Choose the ports: Storm's usual ones, or free ones taken from `free_ports`; those of the last
    cluster in this folder if they are still free, so that its topologies find their slots again.
    Raises ConfigError for an override of a key that is decided here."""
    if (data_dir / "security" / "ca").exists() and not secure:
        raise ConfigError(
            f"the cluster in {data_dir} is a secured one",
            hint="Start it with --secure, or choose another folder with --data-dir.",
        )
    for key in overrides:
        if key in _DECIDED_HERE:
            option = _DECIDED_HERE[key]
            raise ConfigError(
                f"storm dev sets {key} itself",
                hint=f"Use {option} instead." if option else None,
            )
    count = supervisors * slots
    if free_ports is not None:
        zookeeper, nimbus, *others = _last_ports(data_dir, supervisors, slots, is_free) or (
            free_ports(7 + count)
        )
        drpc, web = DrpcPlan(*others[:3]), WebPlan(*others[3:5])
        slot_ports = others[5:]
    else:
        zookeeper, nimbus, drpc = ZOOKEEPER_PORT, NIMBUS_PORT, DrpcPlan(*DRPC_PORTS)
        web = WebPlan(UI_PORT, LOGVIEWER_PORT)
        slot_ports = list(range(FIRST_SLOT_PORT, FIRST_SLOT_PORT + count))
    return DevPlan(
        data_dir=data_dir,
        zookeeper_port=zookeeper,
        nimbus_port=nimbus,
        drpc=drpc,
        web=web,
        supervisors=tuple(
            SupervisorPlan(n + 1, tuple(sorted(slot_ports[n * slots : (n + 1) * slots])))
            for n in range(supervisors)
        ),
        site_conf=site_conf,
        overrides=overrides,
        secure=secure,
    )


def _last_ports(
    data_dir: Path, supervisors: int, slots: int, is_free: Callable[[int], bool]
) -> list[int] | None:
    """The ports of the cluster that last ran in this folder, in the order of the plan; None when
    there was none, it had another shape, or something listens on one of them now."""
    try:
        state = json.loads((data_dir / "cluster.json").read_bytes())
        ports = [state["zookeeper"]["port"], state["nimbus"]["port"]]
        ports += [state["drpc"][key] for key in ("port", "invocations_port", "http_port")]
        ports += [state["ui"]["port"], state["logviewer"]["port"]]
        shape = [len(supervisor["slots"]) for supervisor in state["supervisors"]]
        ports += [port for supervisor in state["supervisors"] for port in supervisor["slots"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if shape != [slots] * supervisors or not all(map(is_free, ports)):
        return None
    return ports


def check_ports(plan: DevPlan, is_free: Callable[[int], bool]) -> None:
    """Raise SquallError that names every port of the plan on which something listens already."""
    taken = [f"{port} ({use})" for port, use in sorted(plan.ports().items()) if not is_free(port)]
    if taken:
        ports, are = ("port", "is") if len(taken) == 1 else ("ports", "are")
        raise SquallError(
            f"{ports} {', '.join(taken)} {are} in use on {LOOPBACK}",
            hint="Stop the programs that listen there, or use free ports: storm dev --free-ports",
        )
