"""What a supervisor says of its node in ZooKeeper, signed by its certificate's key.

The certificate travels with it, and must be that of the node's supervisor. Its number grows (epoch
milliseconds, at least): an older one than was seen before does not count.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from squall_common.security import jws
from squall_common.security.certificates import Anchor, CertificateError, check_issued
from squall_common.security.identity import IdentityError, Role
from squall_common.security.jws import SignatureError, b64, unb64
from squall_common.security.records import RecordError
from squall_common.security.topology_states import natural

_REGISTRATION = "squall-registration"


@dataclass(frozen=True, slots=True)
class Registration:
    """The bytes that Storm keeps at /supervisors/NODE."""

    node: str
    number: int
    value: bytes

    def sign(
        self, cluster: str, certificate: x509.Certificate, key: EllipticCurvePrivateKey, now: float
    ) -> bytes:
        payload = {
            "cluster": cluster,
            "node": self.node,
            "number": self.number,
            "value": b64(self.value),
            "iat": int(now),
        }
        chain = [b64(certificate.public_bytes(Encoding.DER))]
        return jws.sign(payload, {"typ": _REGISTRATION, "x5c": chain}, key).encode()

    @classmethod
    def verify(
        cls,
        data: bytes,
        node: str,
        cluster: str,
        ca: Anchor,
        revoked: Collection[int],
        now: float,
    ) -> Registration:
        """Raises RecordError. The certificate must be valid now: the node speaks now."""
        try:
            parsed = jws.parse(data.decode("ascii", "replace"))
            chain = parsed.header.get("x5c")
            if not isinstance(chain, list) or len(chain) != 1:
                raise SignatureError("it has no certificate")
            certificate = x509.load_der_x509_certificate(unb64(str(chain[0])))
            holder = check_issued(certificate, ca, cluster, now)
            if holder.role is not Role.SUPERVISOR or holder.name != node:
                raise SignatureError(f"it is signed by {holder.role.value}:{holder.name}")
            if holder.serial in revoked:
                raise SignatureError(f"the certificate of supervisor:{node} was revoked")
            public = certificate.public_key()
            if not isinstance(public, jws.PublicKey):
                raise SignatureError("its certificate has an unknown kind of key")
            payload = jws.verify(parsed, public, typ=_REGISTRATION)
            if (payload.get("cluster"), payload.get("node")) != (cluster, node):
                raise SignatureError("it is of another node")
            return cls(node, natural(payload, "number"), unb64(str(payload.get("value"))))
        except (CertificateError, IdentityError, SignatureError, x509.ExtensionNotFound) as error:
            raise RecordError(f"registration of {node}: {error}") from None
        except (ValueError, OverflowError):
            raise RecordError(f"registration of {node}: its certificate is damaged") from None
