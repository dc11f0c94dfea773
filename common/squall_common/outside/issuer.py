"""The issuer of identity tokens: a URL under which foreign parties find the keys.

    https://id.example.org/prod                                        storm.identity.issuer
    https://id.example.org/prod/.well-known/openid-configuration       the discovery document
    https://id.example.org/prod/.well-known/jwks.json                  the keys

The first address is OpenID Connect Discovery 1.0, section 4; the second one is ours, and the
discovery document names it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from squall_common.errors import ConfigError

OPTION = "storm.identity.issuer"

_CHARS_MAX = 1_000
_WELL_KNOWN = "/.well-known"


def check_issuer(issuer: str, option: str = OPTION) -> str:
    """Return a text that can be an issuer, the value of an option. Raises ConfigError for others.

    >>> check_issuer("https://id.example.org/prod")
    'https://id.example.org/prod'
    """
    try:
        parts = urlsplit(issuer)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    good = (
        parts.scheme == "https"
        and bool(parts.hostname)
        and port != 0
        and parts.username is None
        and not (set("?#\\{}") & set(issuer) or issuer.endswith("/"))
        and "//" not in parts.path
        and not {".", ".."} & set(parts.path.split("/"))
        and issuer.isascii()
        and issuer.isprintable()
        and " " not in issuer
        and len(issuer) <= _CHARS_MAX
    )
    if not good:
        raise ConfigError(
            f"{option} is {issuer[:200]!r}, which cannot be an issuer",
            hint="It is an https URL without a query and without / at its end, as "
            "https://id.example.org/prod. Its keys are found below it.",
        )
    return issuer


def host_of(issuer: str) -> str:
    """The name of an issuer's host.

    >>> host_of("https://id.example.org:8443/prod")
    'id.example.org'
    """
    return urlsplit(issuer).hostname or ""


def discovery_path(issuer: str) -> str:
    """Where the discovery document is on the issuer's host.

    >>> discovery_path("https://id.example.org/prod")
    '/prod/.well-known/openid-configuration'
    """
    return f"{urlsplit(issuer).path}{_WELL_KNOWN}/openid-configuration"


def keys_path(issuer: str) -> str:
    """Where the keys are on the issuer's host.

    >>> keys_path("https://id.example.org")
    '/.well-known/jwks.json'
    """
    return f"{urlsplit(issuer).path}{_WELL_KNOWN}/jwks.json"


def discovery_document(issuer: str) -> dict[str, object]:
    """The discovery document (OpenID Connect Discovery 1.0, section 3). Nobody logs in there, so it
    has no endpoint but that of the keys."""
    return {
        "issuer": issuer,
        "jwks_uri": f"{issuer}{_WELL_KNOWN}/jwks.json",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "claims_supported": [
            "iss", "sub", "aud", "exp", "iat", "nbf", "jti",
            "cluster", "owner", "topology", "topology_id",
        ],
    }  # fmt: skip
