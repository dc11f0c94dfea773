"""Who may do what with a blob: Storm's access lists (BlobStoreAclHandler), always enforced.

An entry grants READ, WRITE and ADMIN to one USER, or to all OTHERs; the grants of several entries
add up. Without authentication every caller is the user `anonymous`, who then owns the blobs that
callers create. Administrators (`nimbus.admins`) may do everything; supervisors
(`nimbus.supervisor.users`) may read everything, since they fetch it for the workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from squall_common.cluster.values import Access
from squall_common.config.options.typed import NimbusOptions
from squall_common.errors import SquallError
from squall_common.names import ANONYMOUS

READ, WRITE, ADMIN = 1, 2, 4
OTHER, USER = 1, 2
_ENTRIES_MAX = 1_000
_NAMES = {READ: "READ", WRITE: "WRITE", ADMIN: "ADMIN"}


@dataclass(frozen=True, slots=True)
class Caller:
    """The user who makes a call, and the user's roles apart from access lists."""

    name: str
    is_admin: bool = False
    is_supervisor: bool = False

    @classmethod
    def of(cls, principal: str | None, options: NimbusOptions) -> Caller:
        return cls(
            principal or ANONYMOUS,
            principal is not None and principal in (options.nimbus_admins or ()),
            principal is not None and principal in (options.nimbus_supervisor_users or ()),
        )


def check_access(acl: Iterable[Access], caller: Caller, needed: int, key: str) -> str | None:
    """Return None if the caller may do what needs all bits of `needed`, else why not. Everyone may
    do everything with a blob that has no list."""
    entries = tuple(acl)
    if not entries or caller.is_admin or (caller.is_supervisor and needed == READ):
        return None
    missing = needed
    for entry in entries:
        if entry.type == OTHER or (entry.type == USER and entry.name == caller.name):
            missing &= ~entry.access
    if not missing:
        return None
    named = ", ".join(name for bit, name in _NAMES.items() if missing & bit)
    return f"{caller.name} does not have {named} access to blob {key}"


def may_see(acl: Iterable[Access], caller: Caller, key: str) -> bool:
    """Whether the caller has any access at all, so that a listing shows the key."""
    entries = tuple(acl)
    return any(check_access(entries, caller, bit, key) is None for bit in _NAMES)


def normalized(acl: Iterable[Access], caller: Caller, keep: int) -> tuple[Access, ...]:
    """Check and complete a list that a client sent. Entries without a name become the caller's
    own, and the caller keeps the bits of `keep`, so that no caller is locked out by mistake. Raises
    SquallError."""
    entries: dict[tuple[int, str | None], int] = {}
    for entry in acl:
        if entry.type not in (OTHER, USER):
            raise SquallError(f"an access list has entries for USER and OTHER, not {entry.type}")
        if not 0 <= entry.access <= READ | WRITE | ADMIN:
            raise SquallError(f"access {entry.access} is not a sum of READ 1, WRITE 2 and ADMIN 4")
        name = (entry.name or caller.name) if entry.type == USER else None
        if (entry.type, name) in entries:
            who = "OTHER" if name is None else f"user {name}"
            raise SquallError(f"the access list has two entries for {who}")
        entries[entry.type, name] = entry.access
    if len(entries) > _ENTRIES_MAX:
        raise SquallError(f"the access list has more than {_ENTRIES_MAX} entries")
    lacking = keep & ~entries.get((OTHER, None), 0)
    if lacking & ~entries.get((USER, caller.name), 0):
        entries[USER, caller.name] = entries.get((USER, caller.name), 0) | keep
    return tuple(Access(kind, name, access) for (kind, name), access in entries.items())
