"""The cluster's certificates: a CA, and what it issues. ECDSA P-256 throughout.

    ca = Authority.create("prod", now, days=3650)
    issued = ca.issue(Role.SUPERVISOR, "node-7", ["node-7.example.org"], now, days=365)

Certificates and keys are PEM. The name of a holder is a URI (`identity`), hosts are names and
addresses beside it.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from squall_common.security.identity import (
    SCHEME,
    IdentityError,
    Role,
    check_name,
    identity_uri,
    parse_identity,
)

# Clocks of two machines differ.
_BACKDATED = datetime.timedelta(minutes=5)


class CertificateError(ValueError):
    """A file is not a certificate or a key, or a certificate is not one of this cluster's CA."""


@dataclass(frozen=True, slots=True, repr=False)
class Issued:
    """A certificate with its key, in PEM. It is not to be seen in a log: no `repr`."""

    certificate: bytes
    key: bytes
    serial: int

    def __repr__(self) -> str:
        return f"Issued(serial={self.serial:x})"


class Authorities:
    """The CAs that a process trusts: one, and two while the CA's own key turns. Those of a running
    process can be replaced; whoever has this object goes by the new ones.

    Of two, the one of the higher generation stays: a number in its name, so that neither clocks nor
    the order in a file decide. Raises CertificateError unless all are of one cluster.
    """

    def __init__(self, *certificates: x509.Certificate) -> None:
        self._certificates: tuple[x509.Certificate, ...] = ()
        self.replace(certificates)

    @classmethod
    def read(cls, pem: bytes) -> Authorities:
        """From a file with one or two certificates in PEM. Raises CertificateError."""
        return cls(*read_certificates(pem))

    def replace(self, certificates: Sequence[x509.Certificate]) -> None:
        """Trust these from now on. Raises CertificateError, and changes nothing."""
        if not 1 <= len(certificates) <= 2:
            raise CertificateError(
                "a cluster trusts one CA, or two while the first one is replaced"
            )
        if len({generation_of(one) for one in certificates}) < len(certificates):
            raise CertificateError("its two CAs have one generation: one must replace the other")
        if len({cluster_of(one) for one in certificates}) > 1:
            raise CertificateError("its two CAs are of different clusters")
        self._certificates = tuple(sorted(certificates, key=generation_of, reverse=True))

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """The one that stays first."""
        return self._certificates

    @property
    def newest(self) -> x509.Certificate:
        """The one that stays."""
        return self.certificates[0]

    def pem(self) -> str:
        """All of them."""
        return "".join(one.public_bytes(Encoding.PEM).decode() for one in self.certificates)


Anchor = x509.Certificate | Authorities


def authorities_of(ca: Anchor) -> tuple[x509.Certificate, ...]:
    """The certificates of one CA, or of those that are trusted now."""
    return ca.certificates if isinstance(ca, Authorities) else (ca,)


@dataclass(frozen=True, slots=True, repr=False)
class Authority:
    """The CA of one cluster."""

    cluster: str
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"Authority({self.cluster!r})"

    @classmethod
    def create(cls, cluster: str, now: float, *, days: int, generation: int = 1) -> Authority:
        """A new one; one that replaces another has the next generation. Raises IdentityError for
        a bad name of the cluster."""
        check_name(cluster)
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.COMMON_NAME, f"Squall CA of {cluster}"[:64])]
        if generation > 1:
            names.append(x509.NameAttribute(NameOID.SERIAL_NUMBER, str(generation)))
        name = x509.Name(names)
        certificate = (
            _builder(name, name, key.public_key(), key.public_key(), now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.UniformResourceIdentifier(f"{SCHEME}{cluster}/ca")]
                ),
                critical=False,
            )
            .sign(key, SHA256())
        )
        return cls(cluster, certificate, key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Authority:
        """From PEM. Raises CertificateError."""
        found = read_certificate(certificate)
        cluster = cluster_of(found)
        private = read_key(key)
        if private.public_key() != found.public_key():
            raise CertificateError("the key is not that of the CA's certificate")
        return cls(cluster, found, private)

    @property
    def generation(self) -> int:
        return generation_of(self.certificate)

    def to_pem(self) -> tuple[bytes, bytes]:
        """The certificate and its key."""
        return self.certificate.public_bytes(Encoding.PEM), _key_pem(self.key)

    def issue(
        self, role: Role, name: str, hosts: Sequence[str], now: float, *, days: int
    ) -> Issued:
        """A certificate for a user or a daemon. `hosts` are the names and addresses under which
        others reach a daemon. Raises IdentityError for a bad name, CertificateError for a bad
        host, and for one that would outlive the CA."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certify(key.public_key(), role, name, hosts, now, days=days)
        return Issued(
            certificate.public_bytes(Encoding.PEM), _key_pem(key), certificate.serial_number
        )

    def certify(
        self,
        public: ec.EllipticCurvePublicKey,
        role: Role,
        name: str,
        hosts: Sequence[str],
        now: float,
        *,
        days: int,
    ) -> x509.Certificate:
        """As `issue`, for a key that its holder has already."""
        uri = identity_uri(self.cluster, role, name)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{role.value}:{name}"[:64])])
        builder = _builder(
            subject, self.certificate.subject, public, self.key.public_key(), now, days
        )
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role is not Role.USER:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.UniformResourceIdentifier(uri), *map(_host, hosts)]
                ),
                critical=False,
            )
            .sign(self.key, SHA256())
        )
        if certificate.not_valid_after_utc > self.certificate.not_valid_after_utc:
            raise CertificateError(
                "the certificate would be valid longer than the CA, until "
                f"{self.certificate.not_valid_after_utc:%Y-%m-%d}"
            )
        return certificate


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose certificate it is."""

    role: Role
    name: str
    serial: int
    # The CA that has issued it, or None where that was not asked.
    issuer: x509.Certificate | None = field(default=None, compare=False, repr=False)


def read_certificate(pem: bytes) -> x509.Certificate:
    """Raises CertificateError."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise CertificateError("it is not a certificate in PEM") from error


def read_certificates(pem: bytes) -> list[x509.Certificate]:
    """All in a file. Raises CertificateError."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CertificateError("it is not a certificate in PEM") from error


def read_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Raises CertificateError, which does not quote what it read."""
    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        raise CertificateError("it is not a private key in PEM without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError("it is not a key of P-256")
    return key


def cluster_of(ca: x509.Certificate) -> str:
    """The cluster that a CA's certificate names. Raises CertificateError."""
    ours = [uri for uri in _uris(ca) if uri.startswith(SCHEME)]
    if len(ours) == 1 and ours[0].endswith("/ca"):
        try:
            return check_name(ours[0].removeprefix(SCHEME).removesuffix("/ca"))
        except IdentityError:
            pass
    raise CertificateError("it is not the certificate of a cluster's CA (see storm admin ca init)")


def generation_of(ca: x509.Certificate) -> int:
    """How many CAs the cluster has had with this one. Raises CertificateError."""
    found = ca.subject.get_attributes_for_oid(NameOID.SERIAL_NUMBER)
    if not found:
        return 1
    text = str(found[0].value)
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise CertificateError("the CA's certificate has no readable generation")
    return int(text)


def issuer_of(certificate: x509.Certificate, ca: Anchor) -> x509.Certificate | None:
    """The CA that has issued a certificate; None if none of these has."""
    for one in authorities_of(ca):
        try:
            certificate.verify_directly_issued_by(one)
        except (InvalidSignature, ValueError, TypeError):
            continue
        return one
    return None


def check_issued(certificate: x509.Certificate, ca: Anchor, cluster: str, at: float) -> Holder:
    """Whose certificate it is, if a CA that is trusted has issued it and it is valid at a time.
    Whether it was revoked is not asked here. Raises CertificateError, IdentityError."""
    issuer = issuer_of(certificate, ca)
    if issuer is None:
        raise CertificateError("the cluster's CA has not issued the certificate")
    when = datetime.datetime.fromtimestamp(at, datetime.UTC)
    if when < certificate.not_valid_before_utc:
        raise CertificateError(
            f"the certificate is valid from {certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
        )
    if when > certificate.not_valid_after_utc:
        raise CertificateError(
            f"the certificate expired at {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        )
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        uris = _uris(certificate)
    except x509.ExtensionNotFound:
        raise CertificateError("it does not say whether it is a CA's certificate") from None
    except (ValueError, x509.DuplicateExtension):
        raise CertificateError("its extensions cannot be read") from None
    if constraints.value.ca:
        raise CertificateError("it is a CA's certificate")
    role, name = parse_identity(uris, cluster)
    return Holder(role, name, certificate.serial_number, issuer)


def hosts_of(certificate: x509.Certificate) -> set[str]:
    """The names and addresses under which its holder is reached."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError, x509.DuplicateExtension):
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *map(str, addresses)}


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: float,
    days: int,
) -> x509.CertificateBuilder:
    when = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(when - _BACKDATED)
        .not_valid_after(when + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
        )
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not host or not host.isascii() or any(c.isspace() or c in "/:*" for c in host):
        raise CertificateError(f"{host!r} is not a host's name or address")
    return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
