"""What a running cluster shows that only an older CA stands for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from squall_cli.cluster.cluster_nodes import zookeeper
from squall_cli.options import Settings
from squall_common.cluster import paths
from squall_common.outside.published import Publication
from squall_common.security.certificates import Authorities, cluster_of, generation_of, issuer_of
from squall_common.security.jws import SignatureError
from squall_common.security.records import Bundle, RecordError, TopologyRecord
from squall_common.security.registrations import Registration
from squall_common.security.revocation import TokenRegister
from squall_common.security.signing import Trust
from squall_common.security.tokens import Token
from squall_common.security.topology_states import Catalog, TopologyState

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_CONNECT_SECS = 5.0


def passing(settings: Settings, ca: Authorities) -> list[str]:
    """A line for each text in ZooKeeper that the newest CA does not stand behind, and for each
    Nimbus and DRPC server that shows such a certificate or does not answer. Raises SquallError."""
    with zookeeper(settings) as client:
        found = list(_texts(client, ca))
        nimbuses = _children(client, paths.NIMBUSES)
    options = settings.client()
    servers = [("Nimbus", *_address(one)) for one in nimbuses]
    servers += [("DRPC", host, options.drpc_port) for host in options.drpc_servers or ()]
    for kind, host, port in servers:
        if (why := _shown(host, port, ca)) is not None:
            found.append(f"{kind} {host}:{port}: {why}")
    return found


def _texts(client: KazooClient, ca: Authorities) -> Iterator[str]:
    cluster = cluster_of(ca.newest)
    trust, both = Trust(cluster, ca.newest), Trust(cluster, ca)

    def look(path: str, verify: Callable[[bytes], object]) -> Iterator[str]:
        from kazoo.exceptions import NoNodeError

        try:
            data, _ = client.get(path)
        except NoNodeError:
            return
        try:
            verify(data)
        except (RecordError, SignatureError) as error:
            yield f"{path}: {error}"

    def text(data: bytes) -> str:
        return data.decode("ascii", "replace")

    yield from look(paths.CATALOG, lambda data: Catalog.verify(text(data), trust))
    tokens: list[Token] = []

    def register(data: bytes) -> None:
        # Whoever has signed it: which tokens it lists is to be known in any case.
        tokens.extend(TokenRegister.verify(text(data), both).issued.values())
        TokenRegister.verify(text(data), trust)

    yield from look(paths.TOKEN_REGISTER, register)
    newest = generation_of(ca.newest)
    for one in tokens:
        if one.authority < newest and one.expires > time.time():
            yield f"token {one.id} of {one.user}: it was issued under the old CA, get a new one"
    for name in _children(client, paths.SIGNED_STATES):

        def state(data: bytes, topology_id: str = name) -> None:
            found = TopologyState.verify(text(data), trust, topology_id)
            TopologyRecord.verify(found.record, trust)

        yield from look(paths.signed_state(name), state)
    for node in _children(client, paths.MANIFESTS):
        yield from look(paths.manifest(node), lambda data: Bundle.from_bytes(data).verify(trust))
    for name in _children(client, paths.OUTSIDE_KEYS):
        yield from look(
            paths.outside_keys(name), lambda data: Publication.verify(text(data), trust)
        )
    for node in _children(client, paths.SUPERVISORS):

        def registration(data: bytes, node: str = node) -> None:
            Registration.verify(data, node, trust.cluster, trust.ca, (), time.time())

        yield from look(paths.supervisor(node), registration)


def _children(client: KazooClient, path: str) -> list[str]:
    from kazoo.exceptions import NoNodeError

    try:
        return sorted(client.get_children(path))
    except NoNodeError:
        return []


def _address(name: str) -> tuple[str, int]:
    host, _, port = name.rpartition(":")
    return host, int(port)


def _shown(host: str, port: int, ca: Authorities) -> str | None:
    """Why the certificate that a server shows is not one of the newest CA; None if it is."""
    import socket

    from cryptography import x509

    from squall_common.authentication.files import client_context

    try:
        with (
            socket.create_connection((host, port), _CONNECT_SECS) as plain,
            client_context(ca.pem()).wrap_socket(plain, server_hostname=host) as tls,
        ):
            shown = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
    except (OSError, ValueError) as error:
        return f"its certificate was not seen: {error}"
    if issuer_of(shown, ca.newest) is None:
        return "its certificate is of the old CA"
    return None
