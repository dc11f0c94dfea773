"""The signing keys of this Nimbus. They are made anew after each start, and kept in memory alone:
what they sign carries their endorsement, so they are not needed later."""

from __future__ import annotations

from pathlib import Path

from squall_common.authentication.files import Trusted
from squall_common.daemon.clock import Clock
from squall_common.errors import SquallError
from squall_common.security.certificates import CertificateError, read_key
from squall_common.security.signing import SigningKey, Use

_DAY_SECS = 86_400


class SigningKeys:
    """One key a use; a new one a day before the last one ends."""

    def __init__(self, trusted: Trusted, clock: Clock) -> None:
        self._trusted = trusted
        self._clock = clock
        self._keys: dict[Use, SigningKey] = {}

    def key(self, use: Use) -> SigningKey:
        """The key that signs now. Raises SquallError."""
        now = self._clock.time()
        key = self._keys.get(use)
        if key is None or not key.may_sign(now, left_secs=_DAY_SECS):
            own = self._trusted.own
            assert own is not None
            try:
                private = read_key(Path(own.key_file).read_bytes())
            except (OSError, CertificateError) as error:
                raise SquallError(f"cannot read {own.key_file}: {error}") from error
            if private.public_key() != own.certificate.public_key():
                # No one could verify what it endorses.
                raise SquallError(
                    f"{own.key_file} was replaced after this Nimbus had started",
                    hint="Restart this Nimbus: it goes by its new certificate then.",
                )
            key = SigningKey.make(use, self._trusted.cluster, own.certificate, private, now)
            self._keys[use] = key
        return key
