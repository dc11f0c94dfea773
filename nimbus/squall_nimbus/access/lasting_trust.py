"""Whether what was signed counts, now and later."""

from __future__ import annotations

from collections.abc import Callable, Collection

from squall_common.authentication.files import Trusted
from squall_common.security.records import RecordError, TopologyRecord
from squall_common.security.signing import Trust
from squall_common.security.topology_states import Catalog, TopologyState
from squall_nimbus.access.ledger import KeptManifest, KeptState

# The serial numbers that were revoked, and that of the CA by which all is to be signed.
Basis = tuple[frozenset[int], int | None]


class LastingTrust:
    """While two CAs are trusted, the one that stays is asked for as soon as this Nimbus' own
    certificate is of it: what it signs then stands."""

    def __init__(
        self, trusted: Trusted, revoked: Callable[[], Collection[int]], trust: Trust
    ) -> None:
        """`revoked()` returns the serial numbers of revoked certificates; `trust` is what counts
        now."""
        self._trusted = trusted
        self._revoked = revoked
        self._trust = trust
        self.checked: Basis | None = None
        """By what the leader has looked at all that is signed."""
        self._staying: Trust | None = None
        self._staying_for: Basis | None = None

    def basis(self) -> Basis:
        """What decides whether a signature counts."""
        trusted = self._trusted
        stays = trusted.ca.newest.serial_number if trusted.is_of_newest else None
        return frozenset(self._revoked()), stays

    def _trust_that_stays(self) -> Trust:
        basis = self.basis()
        if basis[1] is None:
            return self._trust
        if self._staying is None or self._staying_for != basis:
            self._staying_for = basis
            self._staying = Trust(self._trusted.cluster, self._trusted.ca.newest, self._revoked)
        return self._staying

    def holds_state(self, kept: KeptState) -> bool:
        """Whether others still believe what the ledger has, and will: no certificate of it was
        revoked, and the CA that stays stands behind it."""
        try:
            TopologyState.verify(kept.text.decode(), self._trust_that_stays(), kept.state.id)
        except RecordError:
            return False
        return self.holds_record(kept)

    def holds_record(self, kept: KeptState) -> bool:
        """The same for the record in a state."""
        if self.basis() == self.checked:
            return True  # the last round has looked
        try:
            TopologyRecord.verify(kept.state.record, self._trust_that_stays())
        except RecordError:
            return False
        return True

    def holds_manifest(self, known: KeptManifest) -> bool:
        """The same for a manifest."""
        try:
            KeptManifest.verify(known.data, self._trust_that_stays(), known.manifest.node)
        except RecordError:
            return False
        return True

    def holds_catalog(self, text: bytes) -> bool:
        """The same for the catalog."""
        try:
            Catalog.verify(text.decode(), self._trust_that_stays())
        except RecordError:
            return False
        return True
