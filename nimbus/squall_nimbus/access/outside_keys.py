"""This Nimbus' keys for identity tokens: made, published, turned, and kept.

They are kept on this Nimbus' disk, unlike its other signing keys: foreign parties keep the keys
that they have read for minutes, so a restart must not change them. A key is written to the disk,
then published, and only then signs (`squall_common.outside.published`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from squall_common.authentication.files import Trusted
from squall_common.cluster.state import ClusterState
from squall_common.daemon.clock import Clock
from squall_common.daemon.files import write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.outside.published import (
    AHEAD_SECS,
    BITS,
    SIGNS_SECS,
    Publication,
    PublicKey,
    served,
)
from squall_common.security.jws import SignatureError
from squall_common.security.signing import Trust, Use, is_by_newest
from squall_nimbus.access.keys import SigningKeys
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

_FILE = "outside-keys.json"
_E = 65_537


@dataclass(frozen=True, slots=True, repr=False)
class OutsideKey:
    """A key of this Nimbus; `private` is dropped when it signs no more. No `repr`: it is not to be
    seen in a log."""

    public: PublicKey
    private: RSAPrivateKey | None

    def __repr__(self) -> str:
        return f"OutsideKey({self.public.kid})"


def kept(keys: Sequence[OutsideKey], now: float) -> list[OutsideKey]:
    """Those that are still served; without their private parts where they sign no more."""
    return [
        one if now < one.public.ends else replace(one, private=None)
        for one in keys
        if now < one.public.until
    ]


def next_begins(keys: Sequence[OutsideKey], others: bool, now: float) -> int | None:
    """When a key that is made now begins to sign; None if none is needed. The first key of a
    cluster begins at once: nobody can have read keys without it. `others` is whether other keys are
    served, of other Nimbus nodes, too."""
    if any(one.private is not None and now + AHEAD_SECS < one.public.ends for one in keys):
        return None
    return int(now) + (AHEAD_SECS if others or keys else 0)


def signing(
    keys: Sequence[OutsideKey], published: Collection[str], now: float
) -> OutsideKey | None:
    """The key that signs now: the newest one that has begun, and is published."""
    found = [
        one
        for one in keys
        if one.private is not None
        and one.public.kid in published
        and one.public.begins <= now < one.public.ends
    ]
    return max(found, key=lambda one: one.public.begins, default=None)


class OutsideKeys:
    """The keys, and what other Nimbus nodes have published."""

    def __init__(
        self,
        issuer: str,
        trusted: Trusted,
        state: ClusterState,
        folder: Path,
        *,
        keys: SigningKeys,
        trust: Trust,
        clock: Clock,
    ) -> None:
        assert trusted.own is not None
        self.issuer = issuer
        self._name = trusted.own.holder.name
        self._trusted = trusted
        self._state = state
        self._file = folder / _FILE
        self._keys = keys
        self._trust = trust
        self._clock = clock
        self._own: list[OutsideKey] = []
        self._text = ""  # what this Nimbus has published, as ZooKeeper has it
        self._published: frozenset[str] = frozenset()
        self._first = ""  # a key that may begin at once, unless another Nimbus has one
        self._texts: dict[str, tuple[int, str]] = {}  # of others, with the time of each
        self._throttle = Throttle()

    def open(self) -> None:
        """Read the disk. Raises SquallError."""
        if not self._file.exists():
            return
        try:
            self._own = [
                OutsideKey(PublicKey(**one["public"]), _private(one["private"]))
                for one in json.loads(self._file.read_bytes())["keys"]
            ]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise SquallError(
                f"the keys for identity tokens, {self._file}, cannot be read: "
                f"{type(error).__name__}",
                hint="Remove the file to make new ones: identity tokens that were issued are then "
                "refused by foreign parties, and new ones issued ten minutes later.",
            ) from error

    async def refresh(self) -> None:
        """Look at what is published, make a key if one is needed, and publish. Raises StoreError,
        SquallError, SignatureError, OSError."""
        now = self._clock.time()
        last, self._text = await self._look()
        own = kept(self._own, now)
        # After the disk was lost, tokens that were signed before still count.
        known = {one.public.kid for one in own}
        earlier = [] if last is None else [OutsideKey(one, None) for one in last.keys]
        own += kept([one for one in earlier if one.public.kid not in known], now)
        others = bool(served(self.publications(), self.issuer, now))
        begins = next_begins(own, others, now)
        if begins is not None:
            own.append(await asyncio.to_thread(_make, int(now) + AHEAD_SECS))
            self._first = own[-1].public.kid if begins <= now else ""
        await self._publish(own, last, now)
        if self._first:
            # Two that start together both found none. Of two writes the later one's Nimbus sees the
            # other's here, before it has signed anything: its key waits, as a second one does.
            last, self._text = await self._look()
            kids = {one.public.kid for one in own}
            if all(one.kid in kids for one in served(self.publications(), self.issuer, now)):
                own = [_at_once(one, now) if one.public.kid == self._first else one for one in own]
                await self._publish(own, last, now)
            self._first = ""
        if begins is not None:
            log.info("outside_key_made", kid=own[-1].public.kid, begins=own[-1].public.begins)
        self._published = frozenset(one.public.kid for one in own)

    async def _publish(self, own: list[OutsideKey], last: Publication | None, now: float) -> None:
        """Keep these keys, and show their public parts; `last` is what this Nimbus shows."""
        if own != self._own:
            await asyncio.to_thread(write_atomic, self._file, _to_json(own), mode=0o600)
            self._own = own
        public = tuple(sorted((one.public for one in own), key=lambda one: one.kid))
        passing = self._trusted.is_of_newest and not is_by_newest(self._text, self._trusted.ca)
        if last is None or last.keys != public or last.issuer != self.issuer or passing:
            publication = Publication(self._name, self.issuer, public, int(now))
            text = publication.sign(self._keys.key(Use.RECORD), now)
            await self._state.put_outside_keys(self._name, text.encode())
            self._text = text

    def texts(self) -> list[str]:
        """What each Nimbus has published, as it was signed."""
        own = [self._text] if self._text else []
        return [*own, *(text for _, text in self._texts.values())]

    def publications(self) -> list[Publication]:
        """What counts of it now: not what a Nimbus whose certificate was revoked has published."""
        found = []
        for text in self.texts():
            try:
                found.append(Publication.verify(text, self._trust))
            except SignatureError as error:
                self._complain(error)
        return found

    def signing_key(self) -> OutsideKey:
        """The key that signs now. Raises SquallError."""
        now = self._clock.time()
        key = signing(self._own, self._published, now)
        if key is not None:
            # A Nimbus whose certificate has ended, or was replaced, signs nothing.
            self._keys.key(Use.RECORD)
            return key
        begins = [one.public.begins for one in self._own if one.public.begins > now]
        if begins and self._published:
            raise SquallError(
                f"the key of this Nimbus for identity tokens begins to sign in "
                f"{min(begins) - now:.0f} s, when foreign parties have read it"
            )
        raise SquallError("this Nimbus has not published a key for identity tokens yet")

    async def _look(self) -> tuple[Publication | None, str]:
        """Read what is published; what this Nimbus has published, with its text, if it counts."""
        own: tuple[Publication | None, str] = (None, "")
        for name, data in (await self._state.outside_keys()).items():
            text = data.decode("ascii", "replace")
            try:
                seen = Publication.verify(text, self._trust)
                if seen.nimbus != name:
                    raise SignatureError(f"it is of nimbus:{seen.nimbus}")
            except SignatureError as error:
                self._complain(error, name)
                continue
            if name == self._name:
                own = (seen, text)
            # ZooKeeper may have been rolled back: the newest one that was seen counts.
            elif seen.issued >= self._texts.get(name, (0, ""))[0]:
                self._texts[name] = (seen.issued, text)
        return own

    def _complain(self, why: object, name: str = "") -> None:
        if (left_out := self._throttle.left_out(name)) is not None:
            log.error("outside_keys_refused", nimbus=name, reason=why, left_out=left_out)


def _make(begins: int) -> OutsideKey:
    private = generate_private_key(_E, BITS)
    public = PublicKey.of(private.public_key(), begins, begins + SIGNS_SECS)
    return OutsideKey(public, private)


def _at_once(key: OutsideKey, now: float) -> OutsideKey:
    public = replace(key.public, begins=int(now), ends=int(now) + SIGNS_SECS)
    return replace(key, public=public)


def _to_json(keys: Sequence[OutsideKey]) -> bytes:
    value = {
        "keys": [
            {
                "public": {
                    "kid": one.public.kid, "n": one.public.n, "e": one.public.e,
                    "begins": one.public.begins, "ends": one.public.ends,
                },
                "private": None if one.private is None else _pem(one.private),
            }
            for one in keys
        ]
    }  # fmt: skip
    return json.dumps(value).encode()


def _pem(key: RSAPrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _private(text: str | None) -> RSAPrivateKey | None:
    if text is None:
        return None
    key = load_pem_private_key(text.encode(), None)
    if not isinstance(key, RSAPrivateKey):
        raise TypeError("it is not a key of RSA")
    return key
