"""Names that every part of the cluster spells the same way (Storm's own; facts, not choices)."""

import re
from urllib.parse import quote, unquote

DEFAULT_STREAM = "default"

SYSTEM_COMPONENT = "__system"
SYSTEM_TASK = -1
SYSTEM_STREAM = "__system"
TICK_STREAM = "__tick"
HEARTBEAT_STREAM = "__heartbeat"
METRICS_STREAM = "__metrics"
METRICS_CONSUMER_PREFIX = "__metrics_"  # of the components of metrics consumers
# In an entry of topology.metrics.consumer.register, since its topology was submitted: it has a
# component.
METRICS_COMPONENT_KEY = "component"
METRICS_TICK_STREAM = "__metrics_tick"

ACKER_COMPONENT = "__acker"
ACKER_INIT_STREAM = "__ack_init"
ACKER_ACK_STREAM = "__ack_ack"
ACKER_FAIL_STREAM = "__ack_fail"
ACKER_RESET_TIMEOUT_STREAM = "__ack_reset_timeout"

# Of a spout: its messages that failed more often than topology.max.replays allows.
DEAD_LETTER_STREAM = "__dead_letter"
DEAD_LETTER_FIELDS = (
    "message_id",
    "values",
    "stream",
    "reason",
    "component",
    "task",
    "worker",
    "replays",
)

# Of a bolt, with checkpoints: tuples whose tries have all failed. `message_id` is None; `stream`
# and `source` are the tuple's.
BOLT_DEAD_LETTER_FIELDS = (*DEAD_LETTER_FIELDS, "source")

# How far event time has come in the tasks of a component: see `squall.windows.marks`. `stream` is
# the stream that this is about ("": all), `lag_ms` what is subtracted in `at_ms` already.
MARK_STREAM = "__mark"
MARK_FIELDS = ("stream", "at_ms", "lag_ms", "state")
MARK_ENDED = "ended"

EVENTLOGGER_COMPONENT = "__eventlogger"
EVENTLOGGER_STREAM = "__eventlog"

# Ids of system components and streams begin with this; a user's may not.
RESERVED_PREFIX = "__"

# The user of every call when users are not authenticated.
ANONYMOUS = "anonymous"

_TOPOLOGY_NAME = re.compile(r"(?! )(?:[^/.:\\\s\x00-\x1f]| )+(?<! )")  # blanks within
_TOPOLOGY_ID = re.compile(r"(?P<name>.+)-(?P<counter>\d+)-(?P<epoch>\d+)")


def is_system_id(name: str) -> bool:
    """Whether a component or stream id belongs to the system."""
    return name.startswith(RESERVED_PREFIX)


def character_error(name: str) -> str | None:
    """A character of a name that cannot be displayed as itself, or that ZooKeeper refuses, or None:
    control characters (including those that change the direction of text), line separators, halves
    of surrogate pairs, private use."""
    for character in name:
        if not character.isprintable() or "\ufff0" <= character <= "\uffff":
            return f"the character U+{ord(character):04X}, which is not allowed in names"
    return None


def topology_name_error(name: str) -> str | None:
    """Why `name` cannot name a topology, or None. Storm refuses the same characters."""
    if not name:
        return "a topology name may not be empty"
    if (why := character_error(name)) is not None:
        return f"topology name {name!r} has {why}"
    if len(name.encode()) > 200:
        return f"the topology name is {len(name.encode())} bytes long; the limit is 200"
    if _TOPOLOGY_NAME.fullmatch(name) is None:
        return (
            f"topology name {name!r} may not contain '/', '.', ':', '\\' or control characters, "
            "and may not begin or end with a blank"
        )
    return None


def make_topology_id(name: str, counter: int, epoch_secs: int) -> str:
    """`NAME-COUNTER-EPOCHSECS`, as Storm names a submitted topology."""
    return f"{name}-{counter}-{epoch_secs}"


def topology_name_of(topology_id: str) -> str:
    """The name inside a topology id. Raises ValueError if this is not a topology id."""
    match = _TOPOLOGY_ID.fullmatch(topology_id)
    if match is None:
        raise ValueError(f"{topology_id!r} is not a topology id (NAME-COUNTER-EPOCHSECS)")
    return match["name"]


def encode_znode(name: str) -> str:
    """A component id as one znode or file name (URL-encoded, as Storm's error paths are)."""
    return quote(name, safe="").replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")


def decode_znode(name: str) -> str:
    """The inverse of `encode_znode`."""
    return unquote(name)


def jar_blob_key(topology_id: str) -> str:
    """Blob key of a topology's package."""
    return f"{topology_id}-stormjar.jar"


def code_blob_key(topology_id: str) -> str:
    """Blob key of a topology's StormTopology, in Thrift's binary protocol."""
    return f"{topology_id}-stormcode.ser"


def conf_blob_key(topology_id: str) -> str:
    """Blob key of a topology's normalized configuration, as JSON."""
    return f"{topology_id}-stormconf.ser"


def curve_blob_key(topology_id: str) -> str:
    """Blob key of the pair of keys with which a topology's workers encrypt
    (`squall_common.security.curve`)."""
    return f"{topology_id}-curve.key"


def credentials_blob_key(topology_id: str) -> str:
    """Blob key of a topology's credentials (`squall_common.security.credentials`)."""
    return f"{topology_id}-credentials"


_DEPENDENCY_KEY = re.compile(r"dep-([0-9a-f]{64})-([A-Za-z0-9._+!-]{1,200}\.whl)")


def dependency_key(sha256: str, filename: str) -> str:
    """Blob key of a wheel that topologies depend on: it names its content."""
    return f"dep-{sha256}-{filename}"


def parse_dependency_key(key: str) -> tuple[str, str] | None:
    """The hash and the file's name in a dependency's blob key; None for any other key."""
    match = _DEPENDENCY_KEY.fullmatch(key)
    return None if match is None else (match[1], match[2])


_BLOB_OF_TOPOLOGY = re.compile(
    r"(?P<id>.+-\d+-\d+)-(stormjar\.jar|stormcode\.ser|stormconf\.ser|curve\.key|credentials)"
)


def topology_of_blob(key: str) -> str | None:
    """The id of the topology that a blob is part of; None for any other blob."""
    match = _BLOB_OF_TOPOLOGY.fullmatch(key)
    return match["id"] if match else None


def is_system_blob(key: str) -> bool:
    """Whether a blob belongs to topologies (a part of one, or a dependency) and not to a user."""
    return topology_of_blob(key) is not None or parse_dependency_key(key) is not None


def is_secret_blob(key: str) -> bool:
    """Whether a blob is a topology's pair of keys or its credentials, which Nimbus gives away
    sealed for one daemon, and in no other way."""
    topology_id = topology_of_blob(key)
    return topology_id is not None and key in (
        curve_blob_key(topology_id),
        credentials_blob_key(topology_id),
    )
