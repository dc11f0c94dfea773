"""Makes of a site's configuration what the legacy port goes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from squall_common.authentication.files import Trusted
from squall_common.authentication.groups import Groups
from squall_common.config.options.typed import NimbusOptions
from squall_common.errors import ConfigError
from squall_common.security.acl import ClusterAcl
from squall_common.security.audit import AuditLog
from squall_common.security.certificates import hosts_of
from squall_nimbus.legacy.authenticator import (
    DigestLogin,
    LegacyAuthenticator,
    UserPrincipals,
)
from squall_nimbus.legacy.kerberos import KerberosLogin
from squall_nimbus.legacy.users import ENTRY, KEY, Users, read_entry, read_safe

PORT: Final = "nimbus.legacy.thrift.port"
TRANSPORT: Final = "storm.thrift.transport"
DIGEST: Final = "org.apache.storm.security.auth.digest.DigestSaslTransportPlugin"
KERBEROS: Final = "org.apache.storm.security.auth.kerberos.KerberosSaslTransportPlugin"
TO_LOCAL: Final = "storm.principal.tolocal"
_SHORT: Final = "org.apache.storm.security.auth.KerberosPrincipalToLocal"
_NONE: Final = "org.apache.storm.security.auth.SimpleTransportPlugin"


def legacy_authenticator(
    options: NimbusOptions,
    trusted: Trusted,
    acls: ClusterAcl,
    groups: Groups,
    audit: AuditLog,
    now: Callable[[], float],
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
        raise ConfigError(f"{KEY} is not set", hint=f"{TRANSPORT} needs its entry {ENTRY}.")
    principals = UserPrincipals(acls, groups)
    short = options.storm_principal_tolocal == _SHORT
    if transport == KERBEROS:
        return LegacyAuthenticator(_kerberos(path, principals, now, short=short), audit)
    if short:
        raise ConfigError(f"{TO_LOCAL} is {_SHORT}, and {TRANSPORT} is not {KERBEROS}")

    def hosts() -> set[str]:  # of the certificate that this Nimbus has now
        assert trusted.own is not None
        return {one.lower() for one in hosts_of(trusted.own.certificate)}

    login = DigestLogin(Users(path), principals, realm=trusted.cluster, hosts=hosts)
    return LegacyAuthenticator(login, audit)


def _kerberos(
    path: str, principals: UserPrincipals, now: Callable[[], float], *, short: bool
) -> KerberosLogin:
    """By the key of Nimbus' own principal, which the JAAS file names. Raises ConfigError."""
    # Imported only where it is wanted: it needs a library that few machines have.
    from squall_nimbus.legacy.gss import Acceptor, GssError

    modules = [
        one for one in read_entry(path, secret=False) if one.name.endswith(".Krb5LoginModule")
    ]
    if len(modules) != 1:
        raise ConfigError(
            f"{KEY}: {path}: {ENTRY} has {len(modules)} modules Krb5LoginModule, not 1"
        )
    keytab, principal = modules[0].options.get("keyTab"), modules[0].options.get("principal")
    if not keytab or not principal:
        raise ConfigError(f"{KEY}: {path}: {ENTRY} needs keyTab and principal")
    service, _, realm = principal.partition("@")
    if service.count("/") != 1 or not realm:
        raise ConfigError(f"{KEY}: {path}: principal is not SERVICE/HOST@REALM")
    read_safe("keyTab", keytab)
    try:
        acceptor = Acceptor(principal, keytab)
    except GssError as error:
        raise ConfigError(
            f"{KEY}: {path}: the key of {principal} cannot be used: {error}",
            hint="It needs MIT's library (Debian: libgssapi-krb5-2), and that key in the keytab.",
        ) from error
    return KerberosLogin(acceptor.context, principals, realm=realm, short_names=short, now=now)
