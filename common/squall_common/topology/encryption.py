"""Whether a topology's workers encrypt what they send each other, by its stored configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import ConfigError
from squall_common.security.curve import CURVE


def has_key(topology_conf: Mapping[str, Any]) -> bool:
    """Whether a topology with this stored configuration was given a key. One that was submitted to
    a Nimbus that did not know keys does not even have the option. Never raises: whatever else is
    wrong with the configuration, and a value that cannot be read asks for a key."""
    own = {key: value for key, value in topology_conf.items() if key == CURVE}
    try:
        return bool(own) and TopologyOptions.read(own).storm_messaging_curve is not False
    except ConfigError:
        return True


def encrypts(topology_conf: Mapping[str, Any]) -> bool:
    """Whether a worker uses its topology's key for all that it sends and receives. "auto" means
    yes, on loopback too: other users of the same host are strangers. Only memory that workers of
    one host share, which no other user can open, takes the place of encrypted sockets there; with
    true, which asks for encryption and not for what is best, nothing does.
    """
    return has_key(topology_conf)
