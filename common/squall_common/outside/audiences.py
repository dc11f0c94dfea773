"""What a topology may declare: the audiences of its identity tokens, and whom these name."""

from __future__ import annotations

from collections.abc import Collection

from squall_common.outside.issuer import OPTION
from squall_common.security.identity import IdentityError, check_name

AUDIENCES = "topology.identity.audiences"
ALLOWED = "nimbus.identity.audiences"

_SUBJECT_CHARS_MAX = 255  # OpenID Connect Core 1.0, section 2
_AUDIENCE_CHARS_MAX = 255
_AUDIENCES_MAX = 8


def subject_of(cluster: str, owner: str, topology: str) -> str:
    """Whom a token names.

    >>> subject_of("prod", "alice", "words")
    'prod/alice/words'
    """
    return f"{cluster}/{owner}/{topology}"


def audience_problems(
    audiences: Collection[str],
    *,
    issuer: str | None,
    allowed: Collection[str] | None,
    cluster: str | None = None,
    owner: str | None = None,
    topology: str | None = None,
) -> list[str]:
    """List what is wrong with the audiences that a topology declares. `issuer` and `allowed` are
    the site's (None: there is none, and all are allowed); `cluster`, `owner` and `topology` make
    its subject, if they are known."""
    if not audiences:
        return []
    if issuer is None:
        return [f"{AUDIENCES} is set, and this cluster issues no identity tokens ({OPTION})"]
    problems = []
    if len(audiences) > _AUDIENCES_MAX:
        problems.append(f"{AUDIENCES} has {len(audiences)} items; the limit is {_AUDIENCES_MAX}")
    for one in list(audiences)[:_AUDIENCES_MAX]:
        if len(one) > _AUDIENCE_CHARS_MAX or not one.isascii() or not one.isprintable():
            problems.append(
                f"{AUDIENCES}: {one[:80]!r} is not an audience: up to {_AUDIENCE_CHARS_MAX} "
                "printable characters of ASCII"
            )
        elif allowed is not None and one not in allowed:
            problems.append(f"{AUDIENCES}: {one!r} is not among {ALLOWED} of this cluster")
    if cluster is not None and topology is not None:
        try:
            check_name(owner or "")
        except IdentityError as error:
            problems.append(f"{AUDIENCES}: the topology's owner: {error}")
        subject = subject_of(cluster, owner or "", topology)
        if len(subject) > _SUBJECT_CHARS_MAX or not subject.isascii():
            problems.append(
                f"{AUDIENCES}: the subject of its tokens, {subject!r:.300}, is not up to "
                f"{_SUBJECT_CHARS_MAX} characters of ASCII: name the topology otherwise"
            )
    return problems
