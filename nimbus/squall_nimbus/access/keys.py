"""The signing keys of this Nimbus. They are made anew after each start, and kept in memory alone:
what they sign carries their endorsement, so they are not needed later."""

from __future__ import annotations

from squall_common.authentication.files import Trusted
from squall_common.daemon.clock import Clock
from squall_common.security.signing import SigningKey, Use

_DAY_SECS = 86_400


class SigningKeys:
    """One key a use; a new one a day before the last one ends, and when this Nimbus has another
    certificate: its old one, and the CA that stands behind it, may end before the key."""

    def __init__(self, trusted: Trusted, clock: Clock) -> None:
        self._trusted = trusted
        self._clock = clock
        self._keys: dict[Use, tuple[SigningKey, int]] = {}  # with the certificate's serial number

    def key(self, use: Use) -> SigningKey:
        """The key that signs now."""
        now = self._clock.time()
        own = self._trusted.own
        assert own is not None
        found = self._keys.get(use)
        if (
            found is None
            or found[1] != own.holder.serial
            or not found[0].may_sign(now, left_secs=_DAY_SECS)
        ):
            key = SigningKey.make(use, self._trusted.cluster, own.certificate, own.key, now)
            found = self._keys[use] = (key, own.holder.serial)
        return found[0]
