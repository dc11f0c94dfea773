"""A CA with the certificates and the signing keys of a Nimbus; made once, since keys cost time."""

from __future__ import annotations

from dataclasses import dataclass

from squall_common.security.certificates import Authority, read_certificate, read_key
from squall_common.security.identity import Role
from squall_common.security.signing import SigningKey, Trust, Use

NOW = 1_700_000_000.0


@dataclass(frozen=True, slots=True)
class Signers:
    """What one cluster signs with."""

    ca: Authority
    trust: Trust
    tokens: SigningKey
    records: SigningKey

    def key(self, use: Use, now: float, *, role: Role = Role.NIMBUS, days: int = 180) -> SigningKey:
        """A signing key that a fresh certificate endorses at a time."""
        issued = self.ca.issue(role, "other", [], now, days=365)
        return SigningKey.make(
            use,
            self.ca.cluster,
            read_certificate(issued.certificate),
            read_key(issued.key),
            now,
            days=days,
        )


def make_signers(cluster: str) -> Signers:
    ca = Authority.create(cluster, NOW - 86_400, days=3650)
    issued = ca.issue(Role.NIMBUS, "n1", ["127.0.0.1"], NOW - 3600, days=365)
    certificate, key = read_certificate(issued.certificate), read_key(issued.key)
    return Signers(
        ca,
        Trust(cluster, ca.certificate),
        SigningKey.make(Use.TOKEN, cluster, certificate, key, NOW - 3600),
        SigningKey.make(Use.RECORD, cluster, certificate, key, NOW - 3600),
    )
