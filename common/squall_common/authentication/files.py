"""The files by which a process knows its cluster, and proves who it is itself.

storm.security.ca            the root of trust: whom it believes
storm.security.certificate   who it is
storm.security.key           that it is
"""

from __future__ import annotations

import os
import ssl
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from squall_common.authentication.options import SecurityOptions
from squall_common.daemon.files import write_atomic
from squall_common.errors import ConfigError
from squall_common.security.certificates import (
    CertificateError,
    Holder,
    check_issued,
    cluster_of,
    read_certificate,
    read_key,
)
from squall_common.security.identity import IdentityError
from squall_common.security.jws import SignatureError
from squall_common.security.revocation import RevokedCertificates
from squall_common.security.signing import Trust

_SMALL_BYTES = 1_048_576


@dataclass(frozen=True, slots=True, repr=False)
class Own:
    """This process' own certificate and key."""

    certificate_file: str
    key_file: str
    certificate: x509.Certificate
    holder: Holder

    def __repr__(self) -> str:
        return f"Own({self.holder.role.value}:{self.holder.name})"


@dataclass(frozen=True, slots=True, repr=False)
class Trusted:
    """The cluster as this process knows it, and who it is itself (None: it has no certificate)."""

    cluster: str
    ca_file: str
    ca: x509.Certificate
    own: Own | None

    def ca_pem(self) -> str:
        """The CA's certificate, for a process that cannot read its file."""
        return self.ca.public_bytes(Encoding.PEM).decode()

    def server_context(self) -> ssl.SSLContext:
        """TLS 1.3; a peer may show a certificate, and one that it shows must be the CA's."""
        assert self.own is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(self.ca_file)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_cert_chain(self.own.certificate_file, self.own.key_file)
        # Without tickets each connection shows its certificate anew: one that was revoked does not
        # live on in a resumed session.
        context.num_tickets = 0
        return context

    def client_context(self) -> ssl.SSLContext:
        """TLS 1.3; the server's certificate must be the CA's, and name the host."""
        context = client_context(ca_file=self.ca_file)
        if self.own is not None:
            context.load_cert_chain(self.own.certificate_file, self.own.key_file)
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
    try:
        ca = read_certificate(_read("storm.security.ca", ca_file))
        cluster = cluster_of(ca)
    except CertificateError as error:
        raise ConfigError(f"storm.security.ca: {ca_file}: {error}") from error
    return Trusted(cluster, ca_file, ca, _read_own(options, ca, cluster))


def trust_of(ca_file: str) -> Trust:
    """What verifies the texts of a cluster's Nimbus nodes, by its CA alone: whom it has revoked is
    not known. Raises ConfigError."""
    try:
        ca = read_certificate(_read("storm.security.ca", ca_file))
        return Trust(cluster_of(ca), ca)
    except CertificateError as error:
        raise ConfigError(f"storm.security.ca: {ca_file}: {error}") from error


def _read_own(options: SecurityOptions, ca: x509.Certificate, cluster: str) -> Own | None:
    certificate_file, key_file = options.storm_security_certificate, options.storm_security_key
    if certificate_file is None and key_file is None:
        return None
    if certificate_file is None or key_file is None:
        raise ConfigError("set both storm.security.certificate and storm.security.key")
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
    return Own(certificate_file, key_file, certificate, holder)


class RevokedFile:
    """The certificates that the CA has revoked, from a file that is read again when it changes. A
    file with a lower number than one that was read before is refused, and so is one whose signature
    is wrong: the last good one counts. Of two different lists with one number, which come of two
    copies of the CA's folder, both count until a higher one comes."""

    def __init__(self, path: str | None, trusted: Trusted, kept: Path) -> None:
        self._path = path
        self._trusted = trusted
        self._kept = kept  # a copy of the highest that was read
        self._stat: tuple[int, int] | None = None
        self._list = RevokedCertificates()
        self._kept_number = 0  # of the copy

    def open(self) -> None:
        """Read both. Raises ConfigError: a daemon does not start without its revocations."""
        if self._kept.exists():
            self._take(_read("the kept revocations", str(self._kept)).decode("ascii", "replace"))
        if self._path is not None:
            text = _read("storm.security.revoked", self._path).decode("ascii", "replace")
            self._take(text)

    def serials(self) -> frozenset[int]:
        """The serial numbers."""
        return self._list.serials

    def refresh(self) -> str | None:
        """Look whether the file has changed, and read it; returns why it was refused, or None."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
            now = (found.st_mtime_ns, found.st_ino)
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
