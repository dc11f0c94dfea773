"""A model of what Nimbus signs and what a verifier believes: several Nimbus nodes that take turns,
keys that turn, certificates that are revoked, a stranger who keeps every text and shows it again, a
ZooKeeper that is rolled back, disks that remember, and clocks that jump.

The model is a few sets: which tokens live, which manifest is the newest. A verifier may be late
(refuse what is good, while it has not seen the newest list), but never early: it accepts no token
that was revoked in a register that it has seen, and no manifest that is older than one that it has
taken.
"""

from __future__ import annotations

import zlib

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from squall_common.security.certificates import Authority, read_certificate, read_key
from squall_common.security.identity import Role
from squall_common.security.jws import SignatureError
from squall_common.security.records import (
    LIFE_SECS,
    Bundle,
    Manifest,
    ManifestGate,
    RecordError,
    SlotWork,
    TopologyRecord,
    next_sequence,
    record_hash,
)
from squall_common.security.revocation import TokenRegister, newest
from squall_common.security.signing import LEEWAY_SECS, SigningKey, Trust, Use
from squall_common.security.tokens import (
    Token,
    TokenError,
    make_token,
    sign_token,
    verify_token,
)

START = 1_700_000_000.0
CA = Authority.create("prod", START - 86_400, days=3650)
NIMBUSES = [CA.issue(Role.NIMBUS, f"n{number}", [], START - 3600, days=3000) for number in (1, 2)]
USERS = ("alice", "bob")
NODES = ("node-1", "node-2")


class Cluster(RuleBasedStateMachine):
    """Two Nimbus nodes, one verifier of tokens, and two supervisors."""

    @initialize()
    def begin(self) -> None:
        self.now = START
        self.trust = Trust("prod", CA.certificate)
        # Supervisors hear of revoked certificates; the model revokes those of the second Nimbus.
        self.strict = Trust("prod", CA.certificate, lambda: self.bad_serials)
        self.keys = {}
        for number in range(2):
            self.turn_keys(number)
        self.leader = 0
        # What the leader and the verifier have on their disks, and what ZooKeeper shows.
        self.register = TokenRegister()
        self.kept = TokenRegister()
        self.published: list[str] = []
        self.tokens: dict[str, tuple[Token, str]] = {}  # everything that was ever signed
        self.revoked: set[str] = set()  # in the newest register
        self.seen_revoked: set[str] = set()  # in one that the verifier has taken
        self.sequence = dict.fromkeys(NODES, 0)
        self.gates = {node: ManifestGate(node, self.strict) for node in NODES}
        self.manifests: dict[str, list[tuple[Manifest, Bundle, int]]] = {n: [] for n in NODES}
        self.records: list[tuple[TopologyRecord, str]] = []
        self.bad_serials: set[int] = set()
        self.kept_bundles: dict[str, tuple[Bundle, frozenset[str]]] = {}  # on the nodes' disks
        # Topologies that were young when a node first took a manifest that lists them.
        self.may_run: dict[str, set[str]] = {node: set() for node in NODES}

    # Time, leaders, keys

    @rule(secs=st.floats(0, 20_000))
    def time_passes(self, secs: float) -> None:
        self.now += secs

    @rule(secs=st.sampled_from([-86_400.0, -3600.0, 86_400.0, 400 * 86_400.0]))
    def the_clock_jumps(self, secs: float) -> None:
        self.now = max(START, min(self.now + secs, START + 2_000 * 86_400))

    @rule()
    def another_leads(self) -> None:
        self.leader = 0 if self.bad_serials else 1 - self.leader
        self.turn_keys(self.leader)

    @rule(number=st.sampled_from([0, 1]))
    def turn_keys(self, number: int) -> None:
        issued = NIMBUSES[number]
        certificate, key = read_certificate(issued.certificate), read_key(issued.key)
        for use in Use:
            self.keys[number, use] = SigningKey.make(use, "prod", certificate, key, self.now)

    def key(self, use: Use) -> SigningKey:
        """The leader's key; it turns keys that have ended, or that its clock is before."""
        key = self.keys[self.leader, use]
        if not key.may_sign(self.now):
            self.turn_keys(self.leader)
        return self.keys[self.leader, use]

    @rule()
    def revoke_the_second(self) -> None:
        self.bad_serials = {NIMBUSES[1].serial}
        self.leader = 0

    # Tokens

    @rule(user=st.sampled_from(USERS), secs=st.integers(1, 12 * 3600))
    def issue(self, user: str, secs: int) -> None:
        token = make_token(user, secs, self.now)
        try:
            self.register = self.register.with_token(token, self.now)
        except TokenError:
            return
        self.tokens[token.id] = (token, sign_token(token, self.key(Use.TOKEN)))

    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        issued = [token_id for token_id in self.tokens if token_id in self.register.issued]
        if issued:  # in the order of their making: ids are random, and draws must repeat
            token_id = data.draw(st.sampled_from(issued))
            try:
                self.register = self.register.without_token(token_id, self.now)
            except TokenError:
                return
            self.revoked.add(token_id)

    @rule(user=st.sampled_from(USERS))
    def revoke_user(self, user: str) -> None:
        self.register = self.register.without_user(user, self.now)
        self.revoked |= {
            token.id
            for token, _ in self.tokens.values()
            if token.user == user and token.issued <= self.now + LEEWAY_SECS
        }

    @rule()
    def publish(self) -> None:
        try:
            self.published.append(self.register.sign(self.key(Use.RECORD), self.now))
        except SignatureError:
            return
        self.look(self.published[-1])
        self.seen_revoked = set(self.revoked)

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """ZooKeeper shows any list that it ever showed."""
        if self.published:
            self.look(data.draw(st.sampled_from(self.published)))

    def look(self, text: str) -> None:
        before = self.kept.number
        try:
            self.kept = newest(self.kept, TokenRegister.verify(text, self.trust))
        except SignatureError:
            pass
        assert self.kept.number >= before

    @rule(data=st.data())
    def show(self, data: st.DataObject) -> None:
        """Anybody shows any token that was ever made, at any time."""
        if not self.tokens:
            return
        token, text = data.draw(st.sampled_from(list(self.tokens.values())))
        try:
            verify_token(text, self.trust, self.kept, self.now)
            accepted = True
        except TokenError:
            accepted = False
        in_time = token.issued - LEEWAY_SECS <= self.now < token.expires + LEEWAY_SECS
        if accepted:
            assert in_time
            # The list forgets a revoked token some time after its end; then time refuses it. A
            # clock that goes back by more than that is one that its owner must mend.
            assert token.id not in self.seen_revoked or self.forgotten(token)
        elif in_time:
            assert self.kept.token_revoked(token)

    def forgotten(self, token: Token) -> bool:
        return not self.kept.token_revoked(token)

    # Manifests

    @rule(node=st.sampled_from(NODES), port=st.integers(6700, 6702), age_days=st.integers(0, 40))
    def assign(self, node: str, port: int, age_days: int) -> None:
        """A record that was signed some time ago, in a manifest of now."""
        key = self.key(Use.RECORD)
        issued = max(int(key.not_before), int(self.now) - age_days * 86_400)
        record = TopologyRecord(
            f"t-{len(self.records)}-1700000000", "alice", None, {"a": "0"}, 1, issued
        )
        text = record.sign(key, self.now)
        self.records.append((record, text))
        self.sequence[node] = next_sequence(self.sequence[node], self.now)
        work = {port: SlotWork(record.id, record_hash(text), ((1, 1),), self.sequence[node])}
        manifest = Manifest(node, self.sequence[node], work)
        bundle = Bundle.from_bytes(Bundle(manifest.sign(key, self.now), (text,)).to_bytes())
        self.manifests[node].append((manifest, bundle, NIMBUSES[self.leader].serial))

    @rule(data=st.data(), node=st.sampled_from(NODES), of=st.sampled_from(NODES))
    def supervisor_reads(self, data: st.DataObject, node: str, of: str) -> None:
        """Any manifest that was ever signed, also that of another node."""
        if not self.manifests[of]:
            return
        manifest, bundle, serial = data.draw(st.sampled_from(self.manifests[of]))
        gate = self.gates[node]
        before, current = gate.highest, gate.current
        try:
            gate.take(bundle, self.now)
        except RecordError:
            assert manifest.sequence <= before or of != node or serial in self.bad_serials
            assert gate.current is current
        else:
            assert of == node
            assert manifest.sequence > before
            assert serial not in self.bad_serials
            self.kept_bundles[node] = (bundle, gate.known)
            listed = {one.topology_id for one in manifest.slots.values()}
            self.may_run[node] &= listed
            for record in gate.records.values():
                if self.now <= record.issued + LIFE_SECS + LEEWAY_SECS:
                    self.may_run[node].add(record.id)

    @rule(data=st.data(), node=st.sampled_from(NODES))
    def a_manifest_comes_with_other_records(self, data: st.DataObject, node: str) -> None:
        """Records that are signed, too, but that this manifest does not list."""
        if not self.manifests[node]:
            return
        _, bundle, _ = data.draw(st.sampled_from(self.manifests[node]))
        _, text = data.draw(st.sampled_from(self.records))
        if text in bundle.records:
            return
        gate = self.gates[node]
        before = gate.highest
        with pytest.raises(RecordError):
            gate.take(Bundle(bundle.manifest, (text,)), self.now)
        assert gate.highest == before

    @rule(node=st.sampled_from(NODES))
    def supervisor_restarts(self, node: str) -> None:
        """What it had taken lies on its disk, and counts though its Nimbus was revoked since."""
        before = self.gates[node]
        self.gates[node] = ManifestGate(node, self.strict)
        if node in self.kept_bundles:
            self.gates[node].restore(*self.kept_bundles[node], self.trust)
        assert self.gates[node].highest == before.highest
        assert self.gates[node].records == before.records

    @rule(data=st.data(), node=st.sampled_from(NODES))
    def launch(self, data: st.DataObject, node: str) -> None:
        """Whatever the clock says by now: what was young when it came runs on."""
        if not self.records:
            return
        record, _ = data.draw(st.sampled_from(self.records))
        gate = self.gates[node]
        try:
            assert gate.record(record.id) == record
        except RecordError:
            assert record.id not in self.may_run[node]
        else:
            assert record.id in self.may_run[node]

    @invariant()
    def sequences_grow(self) -> None:
        if hasattr(self, "manifests"):
            for listed in self.manifests.values():
                numbers = [manifest.sequence for manifest, _, _ in listed]
                assert numbers == sorted(set(numbers))


Cluster.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCluster = Cluster.TestCase


def test_a_manifest_changed_by_a_byte_is_refused() -> None:
    issued = NIMBUSES[0]
    key = SigningKey.make(
        Use.RECORD, "prod", read_certificate(issued.certificate), read_key(issued.key), START
    )
    record = TopologyRecord("t-1-1", "alice", None, {"a": "0"}, 1, int(START)).sign(key, START)
    work = {6700: SlotWork("t-1-1", record_hash(record), ((1, 2), (3, 3)), 7)}
    text = Manifest("node-1", 1, work).sign(key, START)
    gate = ManifestGate("node-1", Trust("prod", CA.certificate))
    for at in range(0, len(text), 37):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises(RecordError):
            gate.take(Bundle(changed, (record,)), START)
    assert gate.take(Bundle(text, (record,)), START).slots == work
    with pytest.raises(RecordError, match="not above"):
        gate.take(Bundle(text, (record,)), START)


def test_a_bundle_that_unfolds_without_end_is_refused() -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        Bundle.from_bytes(zlib.compress(b" " * 40_000_000))
