"""The CA: what it issues is what OpenSSL and we accept, and nothing else is."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from tests.support.signers import NOW, Signers

from squall_common.security.certificates import (
    Authority,
    CertificateError,
    check_issued,
    cluster_of,
    read_certificate,
    read_key,
)
from squall_common.security.identity import IdentityError, Role


def test_an_issued_certificate_names_its_holder(prod: Signers) -> None:
    issued = prod.ca.issue(Role.USER, "alice", [], NOW, days=30)
    holder = check_issued(read_certificate(issued.certificate), prod.ca.certificate, "prod", NOW)
    assert (holder.role, holder.name, holder.serial) == (Role.USER, "alice", issued.serial)


def test_a_ca_is_read_back(prod: Signers) -> None:
    again = Authority.load(*prod.ca.to_pem())
    assert again.cluster == "prod" == cluster_of(again.certificate)


def test_a_certificate_counts_in_its_time_only(prod: Signers) -> None:
    issued = prod.ca.issue(Role.USER, "alice", [], NOW, days=30)
    certificate = read_certificate(issued.certificate)
    for at, reason in ((NOW - 3600, "valid from"), (NOW + 31 * 86_400, "expired")):
        with pytest.raises(CertificateError, match=reason):
            check_issued(certificate, prod.ca.certificate, "prod", at)


def test_another_ca_of_the_same_name_is_a_stranger(prod: Signers, foreign: Signers) -> None:
    issued = foreign.ca.issue(Role.NIMBUS, "n1", [], NOW, days=30)
    with pytest.raises(CertificateError, match="has not issued"):
        check_issued(read_certificate(issued.certificate), prod.ca.certificate, "prod", NOW)


def test_the_ca_itself_is_no_caller(prod: Signers) -> None:
    with pytest.raises((CertificateError, IdentityError)):
        check_issued(prod.ca.certificate, prod.ca.certificate, "prod", NOW)


def test_a_ca_below_ours_is_no_caller(prod: Signers) -> None:
    """Though it names a user: who holds it could make others."""
    extensions = (x509.BasicConstraints(ca=True, path_length=0), _uri("squall://prod/user/alice"))
    with pytest.raises(CertificateError, match="it is a CA's certificate"):
        check_issued(_made(prod, *extensions), prod.ca.certificate, "prod", NOW)


def _uri(text: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(text)])


def _made(prod: Signers, *extensions: x509.ExtensionType) -> x509.Certificate:
    """A certificate of the CA with these extensions, as no command makes one."""
    key = ec.generate_private_key(ec.SECP256R1())
    when = datetime.datetime.fromtimestamp(NOW, datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "alice")]))
        .issuer_name(prod.ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(when - datetime.timedelta(days=1))
        .not_valid_after(when + datetime.timedelta(days=1))
    )
    for one in extensions:
        builder = builder.add_extension(one, critical=False)
    return builder.sign(prod.ca.key, SHA256())


def test_a_certificate_does_not_outlive_its_ca(prod: Signers) -> None:
    with pytest.raises(CertificateError, match="longer than the CA"):
        prod.ca.issue(Role.USER, "alice", [], NOW, days=36_500)


@pytest.mark.parametrize("host", ["", "a b", "*.example.org", "http://x", "é.example.org"])
def test_bad_hosts_are_refused(prod: Signers, host: str) -> None:
    with pytest.raises(CertificateError, match="host"):
        prod.ca.issue(Role.NIMBUS, "n1", [host], NOW, days=1)


def test_a_ca_that_is_no_cluster_s_is_refused(prod: Signers) -> None:
    issued = prod.ca.issue(Role.USER, "alice", [], NOW, days=30)
    with pytest.raises(CertificateError, match="storm admin ca init"):
        Authority.load(issued.certificate, issued.key)
    with pytest.raises(CertificateError, match="not that of"):
        Authority.load(prod.ca.to_pem()[0], issued.key)
    with pytest.raises(CertificateError):
        read_certificate(b"-----BEGIN NOTHING-----")
    with pytest.raises(CertificateError):
        read_key(b"x")


@pytest.mark.parametrize("with_uri", [True, False])
def test_one_that_does_not_say_whether_it_is_a_ca_is_refused(prod: Signers, with_uri: bool) -> None:
    extensions = [_uri("squall://prod/user/alice")] if with_uri else []
    certificate = _made(prod, *extensions)
    with pytest.raises(CertificateError, match="does not say whether"):
        check_issued(certificate, prod.ca.certificate, "prod", NOW)
