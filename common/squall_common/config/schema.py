"""What each option may be: the type and range of every option that `squall_common.config.options`
declares."""

from __future__ import annotations

from squall_common.config.options import OPTIONS
from squall_common.config.options.declaration import COMPONENT
from squall_common.config.options.kinds import TASKS_MAX, Kind, show_value

__all__ = [
    "COMPONENT_KEYS",
    "GATHERED_KEYS",
    "SCHEMA",
    "TASKS_MAX",
    "Kind",
    "counts_for_component",
    "show_value",
]

SCHEMA: dict[str, Kind] = {key: option.kind for key, option in OPTIONS.items()}

# The options of a topology that one component may have to itself, as Storm allows it (those of
# Executor.normalizedComponentConf), and ours of the same nature.
COMPONENT_KEYS = frozenset(key for key, option in OPTIONS.items() if option.scope & COMPONENT)

# Options that may stand in a component's own conf and count for the whole topology: the number of
# its tasks is read where tasks are numbered, and serializers are gathered at the submit.
GATHERED_KEYS = frozenset({"topology.tasks", "topology.kryo.register"})


def counts_for_component(key: str) -> bool:
    """Whether a key has an effect in a component's own conf. Keys that are not options are the
    user's own, and do."""
    return key not in SCHEMA or key in COMPONENT_KEYS or key in GATHERED_KEYS
