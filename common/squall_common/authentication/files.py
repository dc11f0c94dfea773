"""The files by which a process knows its cluster, and proves who it is itself.

storm.security.ca            the root of trust: whom it believes
storm.security.certificate   who it is
storm.security.key           that it is
"""

from __future__ import annotations

import os
import ssl
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from squall_common.authentication.options import SecurityOptions
from squall_common.daemon.files import write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.errors import ConfigError
from squall_common.security.certificates import (
    Authorities,
    CertificateError,
    Holder,
    check_issued,
    cluster_of,
    generation_of,
    issuer_of,
    read_certificate,
    read_key,
)
from squall_common.security.identity import IdentityError
from squall_common.security.jws import SignatureError
from squall_common.security.revocation import RevokedCertificates
from squall_common.security.signing import Trust

log = get_logger(__name__)

_SMALL_BYTES = 1_048_576
_FOLLOW_SECS = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class Own:
    """This process' own certificate and key."""

    certificate_file: str
    key_file: str
    certificate: x509.Certificate
    holder: Holder
    key: EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"Own({self.holder.role.value}:{self.holder.name})"


class Trusted:
    """The cluster as this process knows it, and who it is itself (`own`; None: it has no
    certificate). Its files are read again when they change: a process that runs takes up another CA
    and another certificate of its own without a restart. What cannot be used is refused as a whole,
    and what was read before counts on.
    """

    def __init__(
        self,
        cluster: str,
        ca_file: str,
        ca: Authorities,
        own: Own | None,
        read_as: tuple[object, ...] | None = None,
    ) -> None:
        """`read_as`: the `_stat_of` the files before they were read."""
        self.cluster = cluster
        self.ca_file = ca_file
        self.ca = ca
        self.own = own
        self.version = 0  # of what was read
        self._read_as = read_as
        self._server: ssl.SSLContext | None = None
        self._client: ssl.SSLContext | None = None
        self._lock = threading.Lock()  # daemons look in threads
        self._look_at = 0.0  # monotonic
        self._problem: str | None = None
        self._of_newest: tuple[int, bool] | None = None  # with the version

    def __repr__(self) -> str:
        return f"Trusted({self.cluster!r}, {self.own!r})"

    def ca_pem(self) -> str:
        """The CA's certificate, or those of two, for a process that cannot read their file."""
        return self.ca.pem()

    @property
    def is_turning(self) -> bool:
        """Whether two CAs are trusted now."""
        return len(self.ca.certificates) > 1

    @property
    def is_of_newest(self) -> bool:
        """Whether its own certificate is of the CA that stays."""
        if self._of_newest is None or self._of_newest[0] != self.version:
            own = self.own
            found = own is not None and issuer_of(own.certificate, self.ca.newest) is not None
            self._of_newest = (self.version, found)
        return self._of_newest[1]

    @property
    def generation(self) -> int:
        """That of the CA which has issued its own certificate."""
        issuer = None if self.own is None else issuer_of(self.own.certificate, self.ca)
        return 1 if issuer is None else generation_of(issuer)

    def server_context(self) -> ssl.SSLContext:
        """TLS 1.3; a peer may show a certificate, and one that it shows must be the CA's. Ask for
        each connection: it is another one after the files have changed."""
        if self._server is None:
            self._server = self._make_server()
        return self._server

    def client_context(self, *, new: bool = False) -> ssl.SSLContext:
        """TLS 1.3; the server's certificate must be the CA's, and name the host. As
        `server_context`; with `new`, one that the caller may change."""
        if new:
            return self._make_client()
        if self._client is None:
            self._client = self._make_client()
        return self._client

    def follow(self) -> None:
        """`refresh`, at most every ten seconds: for a client, which has no tasks of its own."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _FOLLOW_SECS
        problem = self.refresh()
        if problem is not None and problem != self._problem:
            log.error("certificates_refused", reason=problem)
        self._problem = problem

    def refresh(self) -> str | None:
        """Look whether the files have changed, and read them; returns why they were refused, or
        None."""
        with self._lock:
            own = self.own
            files = () if own is None else (own.certificate_file, own.key_file)
            seen = _stat_of(self.ca_file, *files)
            if seen is None or seen == self._read_as:
                return None
            try:
                self._take()
            except ConfigError as error:
                return str(error)  # perhaps it is being replaced: read again with the next look
            except (OSError, ValueError) as error:
                return f"{self.ca_file}: {error}"
            self._read_as = seen
            return None

    def _take(self) -> None:
        """Read all, and go by it. Raises ConfigError, OSError, ValueError, and changes nothing."""
        ca = _read_ca(self.ca_file)
        if cluster_of(ca.newest) != self.cluster:
            raise ConfigError(f"storm.security.ca: {self.ca_file} is of another cluster")
        own = self.own
        if own is not None:
            found = _own_of(own.certificate_file, own.key_file, ca, self.cluster)
            before, now = own.holder, found.holder
            if (before.role, before.name) != (now.role, now.name):
                raise ConfigError(
                    f"storm.security.certificate: {own.certificate_file} is that of "
                    f"{now.role.value}:{now.name} now; this is {before.role.value}:{before.name}"
                )
            own = found
        # Made before anything counts: the files may be replaced while they are read.
        server = None if self._server is None else _server_context(ca, own)
        client = None if self._client is None else _client_context(ca, own)
        self.ca.replace(ca.certificates)
        self.own, self._server, self._client = own, server, client
        self.version += 1
        log.info(
            "certificates_read_again",
            authorities=",".join(str(generation_of(one)) for one in ca.certificates),
            serial=None if own is None else f"{own.holder.serial:x}",
        )

    def _make_server(self) -> ssl.SSLContext:
        return _server_context(self.ca, self.own)

    def _make_client(self) -> ssl.SSLContext:
        return _client_context(self.ca, self.own)


def _stat_of(*files: str) -> tuple[object, ...] | None:
    """What changes when one of the files is replaced; None while one is missing."""
    try:
        found = [os.stat(file) for file in files]
    except OSError:
        return None
    return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)


def _server_context(ca: Authorities, own: Own | None) -> ssl.SSLContext:
    assert own is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=ca.pem())
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(own.certificate_file, own.key_file)
    # Without tickets each connection shows its certificate anew: one that was revoked does not
    # live on in a resumed session.
    context.num_tickets = 0
    return context


def _client_context(ca: Authorities, own: Own | None) -> ssl.SSLContext:
    context = client_context(ca=ca.pem())
    if own is not None:
        context.load_cert_chain(own.certificate_file, own.key_file)
    return context


def client_context(ca: str | None = None, *, ca_file: str | None = None) -> ssl.SSLContext:
    """TLS 1.3 of a client that shows no certificate; the server's must be of the CA, which is given
    in PEM or by its file, and name the host. Raises SSLError, OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cafile=ca_file, cadata=ca)
    context.check_hostname = True
    return context


def read_trusted(options: SecurityOptions) -> Trusted | None:
    """What the options name; None if the cluster is open. Raises ConfigError that says which file
    is wrong."""
    ca_file = options.storm_security_ca
    if ca_file is None:
        for key, value in (
            ("storm.security.certificate", options.storm_security_certificate),
            ("storm.security.key", options.storm_security_key),
        ):
            if value is not None:
                raise ConfigError(
                    f"{key} is set, and storm.security.ca is not",
                    hint="Without its CA a cluster is open: name the CA's certificate, too.",
                )
        return None
    own_files = (options.storm_security_certificate, options.storm_security_key)
    # Before they are read: one that is replaced meanwhile is read again.
    read_as = _stat_of(ca_file, *(file for file in own_files if file is not None))
    ca = _read_ca(ca_file)
    cluster = cluster_of(ca.newest)
    return Trusted(cluster, ca_file, ca, _read_own(options, ca, cluster), read_as)


def trust_of(ca_file: str) -> Trust:
    """What verifies the texts of a cluster's Nimbus nodes, by its CA alone: whom it has revoked is
    not known. Raises ConfigError."""
    ca = _read_ca(ca_file)
    return Trust(cluster_of(ca.newest), ca)


def _read_ca(ca_file: str) -> Authorities:
    """Raises ConfigError."""
    try:
        return Authorities.read(_read("storm.security.ca", ca_file))
    except CertificateError as error:
        raise ConfigError(f"storm.security.ca: {ca_file}: {error}") from error


def _read_own(options: SecurityOptions, ca: Authorities, cluster: str) -> Own | None:
    certificate_file, key_file = options.storm_security_certificate, options.storm_security_key
    if certificate_file is None and key_file is None:
        return None
    if certificate_file is None or key_file is None:
        raise ConfigError("set both storm.security.certificate and storm.security.key")
    return _own_of(certificate_file, key_file, ca, cluster)


def _own_of(certificate_file: str, key_file: str, ca: Authorities, cluster: str) -> Own:
    """Raises ConfigError."""
    try:
        certificate = read_certificate(_read("storm.security.certificate", certificate_file))
        holder = check_issued(certificate, ca, cluster, time.time())
    except (CertificateError, IdentityError) as error:
        raise ConfigError(
            f"storm.security.certificate: {certificate_file}: {error}",
            hint="storm admin ca issue makes one.",
        ) from error
    try:
        key = read_key(_read("storm.security.key", key_file, private=True))
    except CertificateError as error:
        raise ConfigError(f"storm.security.key: {key_file}: {error}") from error
    if key.public_key() != certificate.public_key():
        raise ConfigError(f"storm.security.key: {key_file} is not the key of {certificate_file}")
    return Own(certificate_file, key_file, certificate, holder, key)


class RevokedFile:
    """The certificates that the CA has revoked, from a file that is read again when it changes. A
    file with a lower number than one that was read before is refused, and so is one whose signature
    is wrong: the last good one counts. Of two different lists with one number, which come of two
    copies of the CA's folder, both count until a higher one comes."""

    def __init__(self, path: str | None, trusted: Trusted, kept: Path) -> None:
        self._path = path
        self._trusted = trusted
        self._kept = kept  # a copy of the highest that was read
        self._stat: tuple[int, int, int] | None = None
        self._list = RevokedCertificates()
        self._kept_number = 0  # of the copy

    def open(self) -> None:
        """Read both. Raises ConfigError: a daemon does not start without its revocations."""
        if self._kept.exists():
            text = _read("the kept revocations", str(self._kept)).decode("ascii", "replace")
            try:
                self._take(text)
            except ConfigError as error:
                why = error.__cause__ or error
                raise ConfigError(
                    f"the kept revocations, {self._kept}, cannot be used: {why}",
                    hint="If the CA was replaced while this daemon was away, remove the file, and "
                    "put the CA's revoked.jws where storm.security.revoked says.",
                ) from error
        if self._path is not None:
            text = _read("storm.security.revoked", self._path).decode("ascii", "replace")
            self._take(text)

    def serials(self) -> frozenset[int]:
        """The serial numbers."""
        return self._list.serials

    def refresh(self) -> str | None:
        """Look whether the file has changed, or those of the CA and of the own certificate, and
        read them; returns why one was refused, or None."""
        refused = self._trusted.refresh()
        return self._refresh() or refused

    def _refresh(self) -> str | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
            # With other CAs it is read again: who has not copied the list that the new one has
            # signed is to hear of it now, and not when the daemon does not start.
            now = (found.st_mtime_ns, found.st_ino, self._trusted.version)
            if now == self._stat:
                return None
            problem = self._take(Path(self._path).read_text("ascii", "replace"))
        except OSError as error:  # it cannot be read, or its copy not be written: tried again
            return str(error)
        except ConfigError as error:
            self._stat = now
            return str(error)
        self._stat = now
        return problem

    def _take(self, text: str) -> str | None:
        """Go by a list; returns what is wrong with one that counts nevertheless. Raises
        ConfigError for one that does not."""
        try:
            found = RevokedCertificates.verify(text, self._trusted.cluster, self._trusted.ca)
        except SignatureError as error:
            raise ConfigError(f"storm.security.revoked: {self._path}: {error}") from error
        if found.number < self._list.number:
            raise ConfigError(
                f"storm.security.revoked: {self._path} has number {found.number}; number "
                f"{self._list.number} was read before"
            )
        problem = None
        if found.number > self._list.number:
            self._list = found
        elif not found.serials <= self._list.serials:
            self._list = RevokedCertificates(found.number, found.serials | self._list.serials)
            problem = (
                f"storm.security.revoked: {self._path} has number {found.number}, and so has "
                "another list: both count. Revoke with one copy of the CA's folder only"
            )
        if found.number > self._kept_number:
            write_atomic(self._kept, text.encode(), mode=0o600)
            self._kept_number = found.number
        return problem


def _read(what: str, path: str, *, private: bool = False) -> bytes:
    """A small file. Raises ConfigError; of a private one also if others may read it."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if private and stat.S_IMODE(mode) & 0o077:
                raise ConfigError(
                    f"{what}: {path} may be read by others",
                    hint=f"chmod 600 {path}",
                )
            return file.read(_SMALL_BYTES)
    except OSError as error:
        raise ConfigError(f"{what}: cannot read {path}: {error.strerror}") from error
