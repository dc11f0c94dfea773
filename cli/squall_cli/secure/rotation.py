"""How the CA's own key turns: a cluster trusts two CAs for a while (decision 0133).

    begin   next/ has another CA; ca.pem has both; the old one issues
    issue   ca.pem has both, the new one first: it issues; certificates are replaced
    end     ca.pem has the new one alone; its key becomes ca.key

Where a rotation stands is read from these files alone, and each step replaces one of them at a
time: after a kill at any moment the same step, repeated, goes on from there. No file names a time,
and the new CA says by its generation that it replaces the old one.
"""

from __future__ import annotations

import enum
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from squall_cli.secure.authority_folder import CA_DAYS, AuthorityFolder
from squall_common.daemon.files import make_private_dirs, write_atomic
from squall_common.errors import SquallError
from squall_common.security.certificates import (
    Authority,
    CertificateError,
    generation_of,
    read_certificates,
)


class Stage(enum.Enum):
    """Where a rotation stands."""

    NONE = "no rotation is under way"
    BEGINNING = "'rotate begin' was interrupted: repeat it"
    BEGUN = "both CAs are trusted, and the old one issues"
    TURNED = "both CAs are trusted, and the new one issues"
    ENDING = "'rotate end' was interrupted: repeat it"


# A key in next/, certificates in ca.pem, whether the first of these is that key's -> the stage.
_STAGES = {
    (False, 1, False): Stage.NONE,
    (True, 1, False): Stage.BEGINNING,
    (True, 2, False): Stage.BEGUN,
    (True, 2, True): Stage.TURNED,
    (True, 1, True): Stage.ENDING,
}
# Where each step may be taken; a step that is repeated changes nothing more.
_STEPS = {
    "begin": {Stage.NONE, Stage.BEGINNING, Stage.BEGUN},
    "issue": {Stage.BEGUN, Stage.TURNED},
    "end": {Stage.TURNED, Stage.ENDING},
}


def stage_of(has_next: bool, trusted: int, next_is_first: bool) -> Stage:
    """Raises SquallError for files that no step leaves.

    >>> stage_of(True, 2, False).name
    'BEGUN'
    """
    try:
        return _STAGES[has_next, trusted, next_is_first]
    except KeyError:
        raise SquallError(
            "the CA's folder is not as any step of a rotation leaves it",
            hint="ca.pem has two certificates and next/ca.key is missing, or the other way round: "
            "restore the folder.",
        ) from None


class Rotation:
    """The steps. All methods raise SquallError for what a person can mend."""

    def __init__(self, folder: AuthorityFolder) -> None:
        self._folder = folder
        self._next = folder.path / "next"

    @property
    def stage(self) -> Stage:
        issuing = self._folder.load()
        trusted = self._folder.authorities().certificates
        new = self._new()
        return stage_of(
            new is not None,
            len(trusted),
            new is not None and issuing.certificate == new.certificate,
        )

    def begin(self, *, days: int = CA_DAYS) -> Authority:
        """Make the next CA, and trust both."""
        self._require("begin")
        old, new = self._folder.load(), self._new()
        try:
            if new is None:
                new = self._make(old, days)
            self._write_trusted(old.certificate, new.certificate)
        except OSError as error:
            raise SquallError(f"cannot write {error.filename}: {error.strerror}") from error
        return new

    def turn(self) -> Authority:
        """Let the next CA issue, and sign what the old one has revoked."""
        self._require("issue")
        new = self._new()
        assert new is not None
        old = next(one for one in self._folder.authorities().certificates if one != new.certificate)
        try:
            self._write_trusted(new.certificate, old)
            self._folder.sign_revoked(new)
        except OSError as error:
            raise SquallError(f"cannot write {error.filename}: {error.strerror}") from error
        return new

    def end(self) -> Authority:
        """Trust the next CA alone, and forget the key of the old one."""
        self._require("end")
        new = self._new()
        assert new is not None
        try:
            # If 'rotate issue' was killed before it signed the list, the signature is the old CA's:
            # from now on no daemon would accept the list, and no one could sign it again.
            self._folder.sign_revoked(new)
            self._write_trusted(new.certificate)
            os.replace(self._folder.next_key, self._folder.path / "ca.key")
            shutil.rmtree(self._next)
        except OSError as error:
            raise SquallError(f"cannot write {error.filename}: {error.strerror}") from error
        return self._folder.load()

    def left(self) -> list[Mapping[str, Any]]:
        """The lines of certificates that only the old CA stands for."""
        authority = self._folder.load()
        revoked = {f"{serial:x}" for serial in self._folder.listed(authority).serials}
        generation = generation_of(self._folder.authorities().newest)
        return left_of(self._folder.issued(), revoked, generation, time.time())

    def _require(self, step: str) -> None:
        stage = self.stage
        if stage not in _STEPS[step]:
            hints = {
                Stage.NONE: "'storm admin ca rotate begin' begins one.",
                Stage.BEGINNING: "Repeat 'storm admin ca rotate begin'.",
                Stage.BEGUN: "'storm admin ca rotate issue' comes next.",
                Stage.TURNED: "'storm admin ca rotate end' ends it.",
                Stage.ENDING: "Repeat 'storm admin ca rotate end'.",
            }
            raise SquallError(
                f"'rotate {step}' is not possible now: {stage.value}", hint=hints[stage]
            )

    def _new(self) -> Authority | None:
        if not self._folder.next_key.exists():
            return None
        try:
            pem = (self._next / "ca.pem").read_bytes()
            return Authority.load(pem, self._folder.next_key.read_bytes())
        except (OSError, CertificateError) as error:
            raise SquallError(f"the next CA in {self._next}: {error}") from error

    def _make(self, old: Authority, days: int) -> Authority:
        """The next CA with its key: both files appear at once."""
        new = Authority.create(old.cluster, time.time(), days=days, generation=old.generation + 1)
        certificate, key = new.to_pem()
        partial = self._folder.path / ".next"
        for folder in (partial, self._next):  # of a step that was interrupted
            if folder.exists():
                shutil.rmtree(folder)
        make_private_dirs(partial)
        write_atomic(partial / "ca.pem", certificate, mode=0o644)
        write_atomic(partial / "ca.key", key, mode=0o600)
        os.rename(partial, self._next)
        return new

    def _write_trusted(self, *certificates: x509.Certificate) -> None:
        found = read_certificates(self._folder.certificate.read_bytes())
        if found != list(certificates):
            text = b"".join(one.public_bytes(Encoding.PEM) for one in certificates)
            write_atomic(self._folder.certificate, text, mode=0o644)


def left_of(
    issued: Iterable[Mapping[str, Any]], revoked: set[str], generation: int, now: float
) -> list[Mapping[str, Any]]:
    """Of lines of issued.jsonl, the newest of each holder that has none of this generation, unless
    it has ended or was revoked."""
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    replaced: set[tuple[str, str]] = set()
    for line in issued:
        holder = (str(line["role"]), str(line["name"]))
        if line.get("authority", 1) >= generation:
            replaced.add(holder)
        elif line["serial"] not in revoked and _ends(line) > now:
            newest[holder] = line
    return [line for holder, line in sorted(newest.items()) if holder not in replaced]


def _ends(line: Mapping[str, Any]) -> float:
    return (datetime.fromisoformat(line["time"]) + timedelta(days=line["days"])).timestamp()
