"""The folder of a cluster's CA.

ca.pem        its certificate, which every process of the cluster gets
ca.key        its key: keep the folder off the cluster's machines
revoked.jws   the certificates that it has revoked, for storm.security.revoked
issued.jsonl  a line for each certificate that it has issued
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from squall_common.daemon.files import make_private_dirs, write_atomic
from squall_common.errors import ConfigError, SquallError
from squall_common.security.certificates import Authority, CertificateError, read_certificate
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
        """The CA that is there."""
        try:
            return Authority.load(
                self.certificate.read_bytes(), (self.path / "ca.key").read_bytes()
            )
        except OSError as error:
            raise ConfigError(
                f"no CA was found in {self.path}: {error.strerror}",
                hint="storm admin ca init makes one; --dir says where it is.",
            ) from error
        except CertificateError as error:
            raise ConfigError(f"the CA in {self.path}: {error}") from error

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
        line = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "role": role.value,
            "name": name,
            "serial": f"{issued.serial:x}",
            "hosts": list(hosts),
            "days": days,
        }
        try:
            out.mkdir(parents=True, exist_ok=True)
            # First: one that is not listed could not be revoked by its serial number.
            descriptor = os.open(
                self.path / "issued.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
            )
            with open(descriptor, "a") as file:
                file.write(json.dumps(line) + "\n")
            write_atomic(key, issued.key, mode=0o600)
            write_atomic(certificate, issued.certificate, mode=0o644)
        except OSError as error:
            raise SquallError(f"cannot write {error.filename}: {error.strerror}") from error
        return certificate, key

    def revoke(self, what: str) -> tuple[int, int]:
        """Revoke a certificate, given as its file or its serial number in hexadecimal; returns the
        serial number and the number of the list."""
        authority = self.load()
        serial = _serial(what)
        try:
            text = self.revoked.read_text("ascii")
            listed = RevokedCertificates.verify(text, authority.cluster, authority.certificate)
        except OSError as error:
            raise SquallError(
                f"cannot read {self.revoked}: {error.strerror}",
                hint="A list that begins anew would revive what was revoked: restore the file.",
            ) from error
        except (SignatureError, UnicodeDecodeError) as error:
            raise SquallError(f"{self.revoked}: {error}") from error
        if serial not in listed.serials:
            listed = listed.with_serial(serial)
            self._write_revoked(listed, authority)
        return serial, listed.number

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
