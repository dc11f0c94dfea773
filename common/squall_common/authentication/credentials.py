"""The client's side: how a command or a daemon proves to Nimbus who it is.

With a certificate it is EXTERNAL, without one the token in a file. A client uses what its
configuration has and never falls back to something else; without `storm.security.ca` it speaks in
the clear and shows nothing.
"""

from __future__ import annotations

import functools
import os
import ssl
import time
from pathlib import Path
from typing import Protocol

from cryptography import x509

from squall_common.authentication import mechanisms
from squall_common.authentication.files import Trusted, read_trusted
from squall_common.authentication.options import SecurityOptions
from squall_common.errors import ConfigError
from squall_common.security.certificates import Anchor, CertificateError, check_issued
from squall_common.security.identity import IdentityError, Role
from squall_thrift.serving.authentication import RefusedError

_TOKEN_BYTES_MAX = 16_384
# Of a request over HTTP: the user to act for. Storm's name.
ACT_FOR_HEADER = "doAsUser"


class ClientSecurityOptions(SecurityOptions, Protocol):
    """The options that this reads."""

    @property
    def storm_security_token_file(self) -> str | None: ...

    @property
    def storm_do_as_user(self) -> str | None: ...


class ClientCredentials:
    """Implements `squall_thrift.serving.authentication.Credentials`."""

    def __init__(
        self, trusted: Trusted, server: Role, token_file: Path, act_for: str | None
    ) -> None:
        self._trusted = trusted
        self._server = server
        self._token_file = token_file
        self._act_for = act_for
        self._checked: tuple[int, ssl.SSLContext] | None = None  # with the version of the files

    @property
    def context(self) -> ssl.SSLContext:
        self._trusted.follow()
        return self._trusted.client_context()

    @property
    def checked_context(self) -> ssl.SSLContext:
        """As `context`, and the handshake fails unless the server is the daemon that is called:
        for HTTP clients, which have sent the request before anything else could look. Asked for
        each request, since the files of the certificates may change."""
        self._trusted.follow()
        if self._checked is None or self._checked[0] != self._trusted.version:
            self._checked = (self._trusted.version, self._make_checked())
        return self._checked[1]

    def _make_checked(self) -> ssl.SSLContext:
        check = self.check_server

        class Checked(ssl.SSLObject):
            def do_handshake(self) -> None:
                super().do_handshake()
                certificate = self.getpeercert(binary_form=True)
                try:
                    check(certificate or b"")
                except RefusedError as error:
                    raise ssl.SSLCertVerificationError(str(error)) from error

        context = self._trusted.client_context(new=True)
        context.sslobject_class = Checked
        return context

    def check_server(self, certificate: bytes) -> None:
        trusted = self._trusted
        check_holder(certificate, trusted.ca, trusted.cluster, self._server, time.time())

    def initial(self) -> tuple[str, bytes]:
        if self._trusted.own is not None:
            return mechanisms.EXTERNAL, mechanisms.external(self._act_for)
        return mechanisms.OAUTHBEARER, mechanisms.bearer(self._token(), self._act_for)

    def http_headers(self) -> dict[str, str]:
        """The headers of a request by which an HTTP client proves the same. Raises
        RefusedError."""
        if self._trusted.own is None:
            return {"Authorization": f"Bearer {self._token()}"}
        return {} if self._act_for is None else {ACT_FOR_HEADER: self._act_for}

    def for_user(self, token: str | None, user: str) -> CarriedCredentials:
        """Those of a daemon that calls for a user: with the user's token, or if the user has shown
        a certificate by its own right to act for users (`nimbus.impersonation.acl`)."""
        return CarriedCredentials(self._trusted, self._server, token, user)

    def _token(self) -> str:
        try:
            with self._token_file.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise RefusedError(
                        f"{self._token_file} may be read by others: chmod 600 {self._token_file}"
                    )
                data = file.read(_TOKEN_BYTES_MAX + 1)
        except OSError as error:
            raise RefusedError(
                f"no token was found in {self._token_file} ({error.strerror}), and "
                "storm.security.certificate is not set: 'storm login' gets a token"
            ) from error
        if len(data) > _TOKEN_BYTES_MAX:
            raise RefusedError(
                f"{self._token_file} has more than {_TOKEN_BYTES_MAX} bytes, so it is not a token "
                "that a daemon takes"
            )
        token = data.decode("ascii", "replace").strip()
        if not token:
            raise RefusedError(f"{self._token_file} is empty: 'storm login' gets a token")
        return token


class CarriedCredentials(ClientCredentials):
    """A daemon's own certificate, and the user for whom it calls."""

    def __init__(self, trusted: Trusted, server: Role, token: str | None, user: str) -> None:
        super().__init__(trusted, server, Path(), user)
        self._carried = token
        self._user = user

    def initial(self) -> tuple[str, bytes]:
        if self._carried is None:
            return mechanisms.EXTERNAL, mechanisms.external(self._user)
        return mechanisms.OAUTHBEARER, mechanisms.bearer(self._carried, None)

    def http_headers(self) -> dict[str, str]:
        if self._carried is None:
            return {ACT_FOR_HEADER: self._user}
        return {"Authorization": f"Bearer {self._carried}"}


def check_holder(certificate: bytes, ca: Anchor, cluster: str, role: Role, now: float) -> None:
    """Raises RefusedError unless a certificate (DER) is that of a daemon of a role."""
    try:
        found = x509.load_der_x509_certificate(certificate)
        holder = check_issued(found, ca, cluster, now)
    except (CertificateError, IdentityError, ValueError) as error:
        raise RefusedError(f"its certificate is not one of the cluster: {error}") from error
    if holder.role is not role:
        raise RefusedError(f"it is {holder.role.value}:{holder.name}, and not a {role.value}")


def default_token_file() -> Path:
    """`~/.storm/token`."""
    return Path(os.path.expanduser("~")) / ".storm" / "token"


@functools.lru_cache(maxsize=16)
def _credentials(
    options: tuple[str | None, ...], server: Role, token_file: Path, act_for: str | None
) -> ClientCredentials | None:
    trusted = read_trusted(_Files(*options))
    return None if trusted is None else ClientCredentials(trusted, server, token_file, act_for)


class _Files:
    def __init__(self, ca: str | None, certificate: str | None, key: str | None) -> None:
        self.storm_security_ca = ca
        self.storm_security_certificate = certificate
        self.storm_security_key = key


def credentials_of(
    options: ClientSecurityOptions, server: Role = Role.NIMBUS
) -> ClientCredentials | None:
    """The credentials for a daemon of a role; None if the cluster is open. Files are read once a
    process, a token each time. Raises ConfigError."""
    if options.storm_security_ca is None and options.storm_do_as_user is not None:
        raise ConfigError("storm.doAsUser has no effect in an open cluster")
    named = options.storm_security_token_file
    return _credentials(
        (
            options.storm_security_ca,
            options.storm_security_certificate,
            options.storm_security_key,
        ),
        server,
        default_token_file() if named is None else Path(named),
        options.storm_do_as_user,
    )
