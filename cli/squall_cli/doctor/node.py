"""What there is to find on this node: files, listeners, and what ZooKeeper lets strangers do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall_cli.cluster.cluster_nodes import quiet_log
from squall_cli.doctor.doors import Answer, Certificate, Facts, File, Listener, Trusted
from squall_common.config.load import local_dir, log_dir
from squall_common.config.options.typed import (
    ClientOptions,
    DrpcOptions,
    LogviewerOptions,
    NimbusOptions,
    SupervisorOptions,
    UiOptions,
)
from squall_common.security.certificates import (
    Authorities,
    CertificateError,
    generation_of,
    read_certificate,
)
from squall_common.security.curve import is_loopback
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient, ThriftTransportError
from squall_thrift.idl import Kind

_PROBE_SECS = 5.0
_ANYWHERE = ("0.0.0.0", "::")
# A call that each service has, with arguments that change nothing.
_NIMBUS_CALL = ("getLeader",)
_SUPERVISOR_CALL = ("getLocalAssignmentForStorm", "doctor")
_DRPC_CALL = ("fetchRequest", "")
_DRPC_PATH = "/drpc/%01"  # no function has such a name; of other paths strangers learn, too


def look(conf: Mapping[str, Any]) -> Facts:
    """Look at a node with a daemon's configuration. Takes some seconds where a listener hangs.
    Raises ConfigError."""
    nimbus, supervisor = NimbusOptions.read(conf), SupervisorOptions.read(conf)
    listeners, zookeeper = asyncio.run(_network(conf))
    secured = nimbus.storm_security_ca is not None
    return Facts(
        now=time.time(),
        uid=os.getuid(),
        secured=secured,
        insecure=nimbus.storm_security_insecure,
        runs_as_user=supervisor.supervisor_run_worker_as_user,
        shares_user=supervisor.supervisor_workers_share_user,
        admins=bool(nimbus.nimbus_admins or nimbus.nimbus_admins_groups),
        impersonators=sorted(
            caller
            for caller, rule in (nimbus.nimbus_impersonation_acl or {}).items()
            if "*" in rule.get("hosts", ()) and "*" in rule.get("groups", ())
        ),
        listeners=listeners,
        files=list(_files(conf, nimbus)),
        certificates=list(_certificates(nimbus)),
        authorities=list(_authorities(nimbus)),
        revoked=nimbus.storm_security_revoked is not None,
        zookeeper=zookeeper,
    )


def _files(conf: Mapping[str, Any], options: NimbusOptions) -> Iterator[File]:
    token = ClientOptions.read(conf).storm_security_token_file or "~/.storm/token"
    # (With Kerberos it names a keytab, and has no secret itself.)
    has_secrets = options.storm_thrift_transport.endswith("DigestSaslTransportPlugin")
    for path, what, secret in (
        (options.storm_security_key, "the key", True),
        (options.storm_security_ca, "the CA's certificate", False),
        (options.storm_security_certificate, "the certificate", False),
        (options.storm_zookeeper_auth_payload_file, "the digest for ZooKeeper", True),
        (options.storm_security_revoked, "the list of revoked certificates", False),
        (options.java_security_auth_login_config, "the JAAS file", has_secrets),
        (token, "the token", True),
        (str(local_dir(conf)), "the daemons' folder", False),
        (str(log_dir(conf)), "the logs' folder", False),
    ):
        if path is None:
            continue
        found = Path(path).expanduser()
        try:
            state = found.stat()
        except OSError:
            continue  # what a daemon needs and does not find, it says itself
        yield File(str(found), what, state.st_mode, state.st_uid, secret)


def _authorities(options: NimbusOptions) -> Iterator[Trusted]:
    path = options.storm_security_ca
    if path is None:
        return
    try:
        found = Authorities.read(Path(path).read_bytes())
    except (CertificateError, OSError):
        return  # the daemon does not start with it, and says why
    for one in found.certificates:
        begins, ends = one.not_valid_before_utc, one.not_valid_after_utc
        yield Trusted(path, generation_of(one), begins.timestamp(), ends.timestamp())


def _certificates(options: NimbusOptions) -> Iterator[Certificate]:
    for path, what in ((options.storm_security_certificate, "The certificate"),):
        if path is None:
            continue
        try:
            found = read_certificate(Path(path).read_bytes())
        except (CertificateError, OSError):
            continue
        yield Certificate(path, what, found.not_valid_after_utc.timestamp())


async def _network(conf: Mapping[str, Any]) -> tuple[list[Listener], list[str] | None]:
    options = NimbusOptions.read(conf)
    probes = [probe(*one) for one in listeners_of(conf)]
    zookeeper = asyncio.to_thread(_zookeeper, options)
    *listeners, allowed = await asyncio.gather(*probes, zookeeper)
    return listeners, allowed  # type: ignore[return-value]


def listeners_of(conf: Mapping[str, Any]) -> Iterator[tuple[str, str, int, Any, tuple[str, ...]]]:
    """Name, host, port, Thrift service (None: HTTP) and a call or path of each listener."""
    nimbus, supervisor = NimbusOptions.read(conf), SupervisorOptions.read(conf)
    drpc, ui, viewer = DrpcOptions.read(conf), UiOptions.read(conf), LogviewerOptions.read(conf)
    host = nimbus.storm_bind_host
    yield "Nimbus", host, nimbus.nimbus_thrift_port, storm.Nimbus, _NIMBUS_CALL
    yield "Supervisor", host, supervisor.supervisor_thrift_port, storm.Supervisor, _SUPERVISOR_CALL
    yield "DRPC", host, drpc.drpc_port, storm.DistributedRPC, ("execute", "", "")
    yield (
        "DRPC invocations", host, drpc.drpc_invocations_port,
        storm.DistributedRPCInvocations, _DRPC_CALL,
    )  # fmt: skip
    yield "DRPC over HTTP", host, drpc.drpc_http_port, None, (_DRPC_PATH,)
    yield "UI", ui.ui_host or host, ui.ui_port, None, ("/api/v1/cluster/summary",)
    yield "Logviewer", host, viewer.logviewer_port, None, ("/api/v1/listLogs",)
    for name, port in (
        ("Nimbus metrics", nimbus.nimbus_metrics_port),
        ("Supervisor metrics", supervisor.supervisor_metrics_port),
    ):
        if port is not None:
            yield name, host, port, None, ("/metrics",)
    if nimbus.nimbus_legacy_thrift_port is not None:
        port = nimbus.nimbus_legacy_thrift_port
        yield "Nimbus for Java clients", host, port, storm.Nimbus, _NIMBUS_CALL


async def probe(name: str, host: str, port: int, service: Any, call: tuple[str, ...]) -> Listener:
    """Ask a listener for something as a stranger would; `service` is None for one of HTTP."""
    target = "127.0.0.1" if host in _ANYWHERE else host
    ask = _ask_http(target, port, call[0]) if service is None else _ask(target, port, service, call)
    try:
        async with asyncio.timeout(_PROBE_SECS):
            answer = await ask
    except TimeoutError:
        answer = Answer.SILENT
    return Listener(name, host, port, is_loopback(host), answer)


async def _ask(host: str, port: int, service: Any, call: tuple[str, ...]) -> Answer:
    """A call in the clear, as clients of an open cluster make it."""
    try:
        async with ThriftClient(service, host, port, timeout_secs=_PROBE_SECS) as client:
            try:
                await client.call(*call)
            except ThriftTransportError:
                return Answer.REFUSES
            except _DECLARED:
                return Answer.ANSWERS
            return Answer.ANSWERS
    except ThriftTransportError:
        return Answer.NOTHING_LISTENS


# Errors that a handler raises: the call came through.
_DECLARED: tuple[type[Exception], ...] = (
    ThriftApplicationError,
    *(spec.cls for spec in storm.INTERFACE.structs.values() if spec.kind is Kind.EXCEPTION),
)


async def _ask_http(host: str, port: int, path: str) -> Answer:
    """A request without a proof: in the clear, and where that is not understood, over TLS."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Not to trust what it says: to see whether it says anything to a stranger.
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    listens = False
    for tls in (None, unverified):
        try:
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        except OSError:
            continue
        listens = True
        try:
            writer.write(
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            head = await reader.readline()
        except (OSError, ValueError):  # ValueError: a line without an end is not HTTP
            continue
        finally:
            writer.close()
        parts = head.split()
        if len(parts) > 1 and parts[0].startswith(b"HTTP/"):
            refused = parts[1] in (b"401", b"403", b"421")
            return Answer.REFUSES if refused else Answer.ANSWERS
    return Answer.REFUSES if listens else Answer.NOTHING_LISTENS


def _zookeeper(options: NimbusOptions) -> list[str] | None:
    """What strangers may do with the cluster's state; None if ZooKeeper did not answer."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    hosts = ",".join(
        f"{host}:{options.storm_zookeeper_port}" for host in options.storm_zookeeper_servers
    )
    client = KazooClient(hosts=hosts, timeout=_PROBE_SECS, logger=quiet_log())
    try:
        client.start(timeout=_PROBE_SECS)
        root = options.storm_zookeeper_root
        try:
            children = client.get_children(root)
        except NoNodeError:
            return None
        except NoAuthError:
            return []
        allowed, acls = ["read"], []
        for path in [root, *(f"{root}/{child}" for child in children)]:
            # One that strangers may not look at says nothing about the others.
            with contextlib.suppress(NoAuthError, NoNodeError):
                acls += client.get_acls(path)[0]
        if any(acl.id.scheme == "world" and acl.perms & _WRITES for acl in acls):
            allowed.append("change")
        return allowed
    except (KazooException, KazooTimeoutError, OSError):
        return None
    finally:
        client.stop()
        client.close()


_WRITES = 0b11110  # write, create, delete, admin
