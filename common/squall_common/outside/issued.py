"""Identity tokens: what a topology shows to a foreign party, which asks it who it is.

A JWT (RFC 7519), signed with RS256 (RFC 7518, section 3.3), which every foreign library verifies:

    iss   the cluster's issuer            aud   exactly one audience, which the topology declares
    sub   CLUSTER/OWNER/TOPOLOGY          exp   an hour after iat

A policy elsewhere goes by `sub`. It has the topology's name, which stays when a topology is
submitted again, and its owner, whom no other user can become; none of its parts contains a slash.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256

from squall_common.names import topology_name_of
from squall_common.outside.audiences import subject_of
from squall_common.security.identity import check_name
from squall_common.security.jws import b64
from squall_common.security.signing import LEEWAY_SECS

LIFE_SECS = 3600


@dataclass(frozen=True, slots=True)
class OutsideToken:
    """What an identity token says. Times are seconds since the epoch."""

    issuer: str
    audience: str
    cluster: str
    owner: str
    topology_id: str
    issued: int
    expires: int
    id: str

    def claims(self) -> dict[str, object]:
        """Its payload."""
        name = topology_name_of(self.topology_id)
        return {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": subject_of(self.cluster, self.owner, name),
            "iat": self.issued,
            "nbf": self.issued - int(LEEWAY_SECS),  # the other party's clock may be behind
            "exp": self.expires,
            "jti": self.id,
            "cluster": self.cluster,
            "owner": self.owner,
            "topology": name,
            "topology_id": self.topology_id,
        }

    def sign(self, key: RSAPrivateKey, kid: str) -> str:
        """Its text. Takes about a millisecond."""
        header = {"alg": "RS256", "kid": kid, "typ": "JWT"}
        signed = f"{b64(_json(header))}.{b64(_json(self.claims()))}"
        return f"{signed}.{b64(key.sign(signed.encode(), PKCS1v15(), SHA256()))}"


def make_outside_token(
    issuer: str, audience: str, cluster: str, owner: str, topology_id: str, now: float
) -> OutsideToken:
    """A new token. Raises IdentityError for an owner that is not a user, and ValueError for what is
    not the id of a topology."""
    check_name(owner)
    topology_name_of(topology_id)
    begins = int(now)
    return OutsideToken(
        issuer, audience, cluster, owner, topology_id, begins, begins + LIFE_SECS,
        secrets.token_hex(16),
    )  # fmt: skip


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
