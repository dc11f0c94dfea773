"""Credentials of a topology: secrets that its user gives it, for the systems that it talks to.

Nimbus keeps them as a blob that only it reads, and gives them, sealed, to the supervisors that run
the topology; a supervisor writes them into its workers' folders. In between they are never in the
clear: not in ZooKeeper, in a log, in an answer, in an environment or on a command line.

Each version has a number, which only grows: who has one takes no older one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from squall_common.errors import SquallError

CREDENTIALS_FILE = "credentials.json"  # in a topology's folder at the supervisor, and in a worker's

BYTES_MAX = 200_000  # of the names and values together, as JSON
KEYS_MAX = 1_000

_SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class TopologyCredentials:
    """One version of a topology's credentials. Values are not to be seen in a log: `repr` has the
    names at the most."""

    topology_id: str
    number: int = 0  # 0: it never had any
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def to_bytes(self) -> bytes:
        """What is stored. It has a random part, so that its hash, which others may see, says
        nothing about a value that can be guessed."""
        value = {
            "topology": self.topology_id,
            "number": self.number,
            "salt": secrets.token_hex(_SALT_BYTES),
            "credentials": dict(self.values),
        }
        return json.dumps(value).encode()

    @classmethod
    def from_bytes(cls, data: bytes, topology_id: str) -> TopologyCredentials:
        """The inverse of `to_bytes`. Raises ValueError, which does not quote what it read, unless
        these are credentials of this topology."""
        try:
            value = json.loads(data)
            number, values = value["number"], value["credentials"]
            good = (
                value["topology"] == topology_id
                and type(number) is int
                and number > 0
                and all(isinstance(k, str) and isinstance(v, str) for k, v in values.items())
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            good = False
        if not good:
            raise ValueError(f"these are not credentials of {topology_id}")
        return cls(topology_id, number, values)


def check_credentials(values: Mapping[str, str]) -> None:
    """Raises SquallError, which names keys and no values, for credentials that Nimbus would not
    keep."""
    for key, value in values.items():
        if not isinstance(key, str) or not key or len(key) > 1_000 or not key.isprintable():
            raise SquallError(
                f"the name of a credential, {key!r:.100}, is not a printable text of 1 to 1,000 "
                "characters"
            )
        if not isinstance(value, str):
            raise SquallError(f"credential {key!r} is not a text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise SquallError(f"credential {key!r} has half of a surrogate pair") from None
    if len(values) > KEYS_MAX:
        raise SquallError(f"{len(values)} credentials are too many: at most {KEYS_MAX} are kept")
    size = len(json.dumps(dict(values)))
    if size > BYTES_MAX:
        raise SquallError(
            f"the credentials have {size} bytes, and at most {BYTES_MAX} are kept",
            hint="Put larger secrets into a system for them, and its password here.",
        )
