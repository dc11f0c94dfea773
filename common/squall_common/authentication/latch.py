"""A daemon's own part in a secured cluster, and the latch on its disk.

A daemon that was once secured does not start as one of an open cluster because a line of its
configuration is missing: its folder says which cluster it belongs to.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from squall_common.authentication.options import SecurityOptions
from squall_common.daemon.files import write_atomic
from squall_common.errors import ConfigError
from squall_common.security.identity import Role

if TYPE_CHECKING:
    from squall_common.authentication.files import Trusted

LATCH = "secured.json"  # in storm.local.dir


def require_role(options: SecurityOptions, role: Role, local_dir: str) -> Trusted | None:
    """What a daemon of this role goes by; None if the cluster is open. Raises ConfigError if it is
    secured and the daemon's certificate is missing or another's, or if this daemon was secured
    before."""
    latch = Path(local_dir) / LATCH
    latched = _latched(latch)
    named = (
        options.storm_security_ca,
        options.storm_security_certificate,
        options.storm_security_key,
    )
    trusted = None
    if named != (None, None, None):
        # Imported only where a cluster is secured: it takes some 40 ms.
        from squall_common.authentication.files import read_trusted

        trusted = read_trusted(options)
    if trusted is None:
        if latched is not None:
            raise ConfigError(
                f"this daemon belongs to the secured cluster {latched!r}, and storm.security.ca is "
                "not set: it does not start as one of an open cluster",
                hint=f"Set storm.security.ca; or remove {latch} if the cluster is to be open.",
            )
        return None
    if latched is not None and latched != trusted.cluster:
        raise ConfigError(
            f"this daemon belongs to the secured cluster {latched!r}; storm.security.ca is that of "
            f"{trusted.cluster!r}",
            hint=f"Remove {latch} if it is to move.",
        )
    own = trusted.own
    if own is None or own.holder.role is not role:
        shown = "none is set" if own is None else f"{own.holder.role.value}:{own.holder.name}"
        raise ConfigError(
            f"storm.security.certificate must be that of a {role.value}; {shown}",
            hint=f"storm admin ca issue {role.value} NAME makes one.",
        )
    if latched is None:
        latch.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(latch, json.dumps({"cluster": trusted.cluster}).encode(), mode=0o600)
    return trusted


def _latched(latch: Path) -> str | None:
    try:
        return str(json.loads(latch.read_bytes())["cluster"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{latch} cannot be read: {error}",
            hint="It says which secured cluster this daemon belongs to.",
        ) from error
