"""Makes of a site's configuration what the legacy port goes by."""

from __future__ import annotations

from typing import Final

from squall_common.authentication.files import Trusted
from squall_common.authentication.groups import Groups
from squall_common.config.options.typed import NimbusOptions
from squall_common.errors import ConfigError
from squall_common.security.acl import ClusterAcl
from squall_common.security.audit import AuditLog
from squall_nimbus.legacy.authenticator import (
    DigestLogin,
    LegacyAuthenticator,
    UserPrincipals,
    hosts_of,
)
from squall_nimbus.legacy.users import KEY, Users

PORT: Final = "nimbus.legacy.thrift.port"
TRANSPORT: Final = "storm.thrift.transport"
DIGEST: Final = "org.apache.storm.security.auth.digest.DigestSaslTransportPlugin"
_NONE: Final = "org.apache.storm.security.auth.SimpleTransportPlugin"


def legacy_authenticator(
    options: NimbusOptions, trusted: Trusted, acls: ClusterAcl, groups: Groups, audit: AuditLog
) -> LegacyAuthenticator | None:
    """What the port goes by; None: there is no such port. Raises ConfigError for a part of the
    three keys, which would be a port that lets no one in, or protection that is not there."""
    port, path = options.nimbus_legacy_thrift_port, options.java_security_auth_login_config
    transport = options.storm_thrift_transport
    if port is None:
        if transport != _NONE:
            raise ConfigError(
                f"{TRANSPORT} is {transport}, and {PORT} is not set",
                hint=f"Storm's Java clients have a port of their own: set {PORT}.",
            )
        if path is not None:
            raise ConfigError(f"{KEY} is set, and {PORT} is not")
        return None
    if transport == _NONE:
        raise ConfigError(
            f"{PORT} is set, and {TRANSPORT} names no mechanism", hint=f"Set it to {DIGEST}."
        )
    if port == options.nimbus_thrift_port:
        raise ConfigError(f"{PORT} and nimbus.thrift.port are both {port}")
    if path is None:
        raise ConfigError(
            f"{KEY} is not set", hint=f"{TRANSPORT} takes the users of {PORT} from this file."
        )
    assert trusted.own is not None  # a Nimbus has a certificate
    hosts = hosts_of(trusted.own.certificate)
    principals = UserPrincipals(acls, groups)
    login = DigestLogin(Users(path), principals, realm=trusted.cluster, hosts=hosts)
    return LegacyAuthenticator(login, audit)
