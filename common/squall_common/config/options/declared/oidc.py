"""Users who prove themselves by a token of an identity provider (OpenID Connect)."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    DAEMON,
    DRPC,
    LOGVIEWER,
    NIMBUS,
    OURS,
    SUPERVISOR,
    UI,
    Option,
)
from squall_common.config.options.kinds import TEXT, either, list_of

_READERS = NIMBUS | UI | LOGVIEWER | DRPC | SUPERVISOR

OPTIONS: tuple[Option, ...] = (
    Option(
        "storm.oidc.issuer",
        TEXT,
        None,
        "An https URL: the identity provider whose tokens prove users, besides the cluster's own. "
        "Its keys are found through its discovery document. null: there is none.",
        scope=DAEMON,
        readers=_READERS,
        storm=OURS,
        secured=True,
    ),
    Option(
        "storm.oidc.audience",
        TEXT,
        None,
        "The audience that a token of storm.oidc.issuer must be for, and no other beside it: the "
        "name under which the provider knows this cluster.",
        scope=DAEMON,
        readers=_READERS,
        storm=OURS,
        secured=True,
    ),
    Option(
        "storm.oidc.algorithms",
        list_of(either("RS256", "PS256", "ES256", "EdDSA"), empty=False),
        ["RS256"],
        "The algorithms that tokens of storm.oidc.issuer may be signed with.",
        scope=DAEMON,
        readers=_READERS,
        storm=OURS,
    ),
    Option(
        "storm.oidc.claim.user",
        TEXT,
        "sub",
        "The claim that names the user, who has that name here. With `email`, the provider must "
        "have verified it.",
        scope=DAEMON,
        readers=_READERS,
        storm=OURS,
    ),
    Option(
        "storm.oidc.claim.groups",
        TEXT,
        None,
        "The claim that lists groups of the user, besides those of storm.group.mapping.service; "
        "null: a token names none.",
        scope=DAEMON,
        readers=_READERS,
        storm=OURS,
    ),
    Option(
        "storm.oidc.ca",
        TEXT,
        None,
        "File with the certificates of authorities, in PEM, that vouch for the provider's host; "
        "null: those of the operating system.",
        scope=DAEMON,
        readers=_READERS,
        storm=OURS,
    ),
)
