"""A supervisor that is root and runs workers as root: anyone who may submit a topology is root."""

from __future__ import annotations

from squall_common.errors import ConfigError
from squall_common.security.curve import is_loopback
from squall_supervisor.confine.users import ENABLED
from squall_supervisor.settings import SupervisorSettings

INSECURE = "storm.security.insecure"


def root_warning(settings: SupervisorSettings, uid: int) -> str | None:
    """A warning for the operator about the user that workers run as; None if all is well. Raises
    ConfigError if anyone beyond this machine's users could submit topologies, unless the operator
    has declared the network trusted."""
    if uid != 0 or settings.users is not None:
        return None
    # With the default listening address, only an explicit host name can lead elsewhere.
    key, host = "storm.bind.host", settings.thrift_host
    if is_loopback(host):
        key, host = "storm.local.hostname", settings.hostname
    if not is_loopback(host) and not settings.insecure:
        raise ConfigError(
            "this supervisor is root and would run every worker as root, for anyone on the "
            f"network who can submit a topology ({key} is {host})",
            hint=f"Set {ENABLED}: true, or start it as another user. {INSECURE}: true allows it.",
        )
    return (
        "this supervisor is root and runs every worker as root: anyone who can submit a topology "
        f"controls this machine. Set {ENABLED}: true, or start it as another user."
    )
