"""The folder of a cluster's CA.

ca.pem        its certificate, which every process of the cluster gets; two while its key turns
              (`rotation`), and the first one is that of the CA that issues
ca.key        its key: keep the folder off the cluster's machines
next          the CA that replaces it, while its key turns: ca.pem and ca.key
revoked.jws   the certificates that it has revoked, for storm.security.revoked
issued.jsonl  a line for each certificate that it has issued
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from squall_common.daemon.files import make_private_dirs, write_atomic
from squall_common.errors import ConfigError, SquallError
from squall_common.security.certificates import (
    Authorities,
    Authority,
    CertificateError,
    check_issued,
    hosts_of,
    issuer_of,
    read_certificate,
    read_key,
)
from squall_common.security.identity import IdentityError, Role
from squall_common.security.jws import SignatureError
from squall_common.security.revocation import RevokedCertificates

CA_DAYS = 3650
CERTIFICATE_DAYS = 365


@dataclass(frozen=True, slots=True)
class AuthorityFolder:
    """Where one CA is. All methods raise SquallError for what a person can mend."""

    path: Path

    @property
    def certificate(self) -> Path:
        return self.path / "ca.pem"

    @property
    def revoked(self) -> Path:
        return self.path / "revoked.jws"

    def create(self, cluster: str, *, days: int = CA_DAYS) -> Authority:
        """A new CA."""
        if (self.path / "ca.key").exists():
            raise SquallError(
                f"{self.path} has a CA already",
                hint="Another one would lock out all that it has issued: choose another --dir.",
            )
        try:
            authority = Authority.create(cluster, time.time(), days=days)
        except IdentityError as error:
            raise SquallError(str(error)) from error
        certificate, key = authority.to_pem()
        try:
            make_private_dirs(self.path)
            write_atomic(self.certificate, certificate, mode=0o644)
            self._write_revoked(RevokedCertificates(), authority)
            # Last: with a key the CA counts as made, here and for `storm dev --secure`.
            write_atomic(self.path / "ca.key", key, mode=0o600)
        except OSError as error:
            raise SquallError(f"cannot write {self.path}: {error.strerror}") from error
        return authority

    def load(self) -> Authority:
        """The CA that issues: the first one in ca.pem, whichever of the two keys is its own. So a
        change of that file alone makes another one issue."""
        try:
            pem, key = self.certificate.read_bytes(), (self.path / "ca.key").read_bytes()
            if self.next_key.exists() and self._is_of(pem, self.next_key):
                key = self.next_key.read_bytes()
            return Authority.load(pem, key)
        except OSError as error:
            raise ConfigError(
                f"no CA was found in {self.path}: {error.strerror}",
                hint="storm admin ca init makes one; --dir says where it is.",
            ) from error
        except CertificateError as error:
            raise ConfigError(f"the CA in {self.path}: {error}") from error

    @property
    def next_key(self) -> Path:
        return self.path / "next" / "ca.key"

    def _is_of(self, pem: bytes, key: Path) -> bool:
        return read_key(key.read_bytes()).public_key() == read_certificate(pem).public_key()

    def authorities(self) -> Authorities:
        """The CAs that the cluster is to trust."""
        try:
            return Authorities.read(self.certificate.read_bytes())
        except (OSError, CertificateError) as error:
            raise ConfigError(f"{self.certificate}: {error}") from error

    def issue(
        self, role: Role, name: str, hosts: Sequence[str], out: Path, *, days: int
    ) -> tuple[Path, Path]:
        """A certificate and its key, as files in a folder; returns their paths."""
        authority = self.load()
        try:
            issued = authority.issue(role, name, hosts, time.time(), days=days)
        except (IdentityError, CertificateError) as error:
            raise SquallError(str(error)) from error
        certificate, key = out / f"{role.value}-{name}.pem", out / f"{role.value}-{name}.key"
        try:
            out.mkdir(parents=True, exist_ok=True)
            self._list(authority, role, name, issued.serial, hosts, days)
            # A kill in between leaves a key without its certificate, and never beside another one.
            certificate.unlink(missing_ok=True)
            write_atomic(key, issued.key, mode=0o600)
            write_atomic(certificate, issued.certificate, mode=0o644)
        except OSError as error:
            raise SquallError(f"cannot write {error.filename}: {error.strerror}") from error
        return certificate, key

    def certify(self, file: Path, *, days: int) -> bool:
        """Replace a certificate by one of the CA that issues now, for the same key, holder and
        hosts: one file, at once. Returns False if it is of this CA already."""
        authority, now = self.load(), time.time()
        try:
            found = read_certificate(file.read_bytes())
            if issuer_of(found, authority.certificate) is not None:
                return False
            holder = check_issued(found, self.authorities(), authority.cluster, now)
            if holder.serial in self.listed(authority).serials:
                raise SquallError(f"{file}: the certificate was revoked")
            public = found.public_key()
            if not isinstance(public, ec.EllipticCurvePublicKey):
                raise CertificateError("it has an unknown kind of key")
            hosts = sorted(hosts_of(found))
            new = authority.certify(public, holder.role, holder.name, hosts, now, days=days)
            self._list(authority, holder.role, holder.name, new.serial_number, hosts, days)
            write_atomic(file, new.public_bytes(Encoding.PEM), mode=0o644)
        except (CertificateError, IdentityError) as error:
            raise SquallError(f"{file}: {error}") from error
        except OSError as error:
            raise SquallError(f"cannot replace {file}: {error.strerror}") from error
        return True

    def _list(
        self,
        authority: Authority,
        role: Role,
        name: str,
        serial: int,
        hosts: Sequence[str],
        days: int,
    ) -> None:
        """Before it is written: one that is not listed could not be revoked by its serial
        number. Raises OSError."""
        line = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "role": role.value,
            "name": name,
            "serial": f"{serial:x}",
            "hosts": list(hosts),
            "days": days,
            "authority": authority.generation,
        }
        descriptor = os.open(
            self.path / "issued.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        with open(descriptor, "a") as file:
            file.write(json.dumps(line) + "\n")

    def issued(self) -> list[dict[str, Any]]:
        """What was issued, the oldest first; a line that a kill has cut off is left out."""
        found = []
        try:
            lines = (self.path / "issued.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SquallError(f"cannot read {error.filename}: {error.strerror}") from error
        for line in lines:
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def revoke(self, what: str) -> tuple[int, int]:
        """Revoke a certificate, given as its file or its serial number in hexadecimal; returns the
        serial number and the number of the list."""
        authority = self.load()
        serial = _serial(what)
        listed = self.listed(authority)
        if serial not in listed.serials:
            listed = listed.with_serial(serial)
            self._write_revoked(listed, authority)
        return serial, listed.number

    def listed(self, authority: Authority) -> RevokedCertificates:
        """What was revoked."""
        try:
            text = self.revoked.read_text("ascii")
            return RevokedCertificates.verify(text, authority.cluster, self.authorities())
        except OSError as error:
            raise SquallError(
                f"cannot read {self.revoked}: {error.strerror}",
                hint="A list that begins anew would revive what was revoked: restore the file.",
            ) from error
        except (SignatureError, UnicodeDecodeError) as error:
            raise SquallError(f"{self.revoked}: {error}") from error

    def sign_revoked(self, authority: Authority) -> None:
        """Sign the list anew, with the next number, unless this CA has signed it."""
        listed = self.listed(authority)
        try:
            RevokedCertificates.verify(
                self.revoked.read_text("ascii"), authority.cluster, authority.certificate
            )
        except SignatureError:
            self._write_revoked(replace(listed, number=listed.number + 1), authority)

    def _write_revoked(self, listed: RevokedCertificates, authority: Authority) -> None:
        text = listed.sign(authority.cluster, authority.key) + "\n"
        write_atomic(self.revoked, text.encode(), mode=0o644)


def _serial(what: str) -> int:
    path = Path(what)
    if path.is_file():
        try:
            return read_certificate(path.read_bytes()).serial_number
        except (CertificateError, OSError) as error:
            raise SquallError(f"{what}: {error}") from error
    try:
        return int(what, 16)
    except ValueError:
        raise SquallError(
            f"{what!r} is neither a certificate's file nor a serial number",
            hint="issued.jsonl in the CA's folder lists the serial numbers.",
        ) from None
