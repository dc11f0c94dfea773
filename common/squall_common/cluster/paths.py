"""Where everything lies in the cluster state: Storm's paths (ClusterUtils), below the root."""

import hashlib
import re

from squall_common.names import encode_znode
from squall_common.topology.model import WorkerSlot

STORMS = "/storms"
ASSIGNMENTS = "/assignments"
SUPERVISORS = "/supervisors"
WORKERBEATS = "/workerbeats"
ERRORS = "/errors"
CREDENTIALS = "/credentials"
LOGCONFIGS = "/logconfigs"
PROFILERCONFIGS = "/profilerconfigs"
NIMBUSES = "/nimbuses"
LEADER_LOCK = "/leader-lock"
BLOBSTORE = "/blobstore"

# Ours: its version is the number of the present leader's term (see `leader`).
LEADER_EPOCH = "/leader-epoch"
# Ours: outlives its topology.
CHECKPOINTS = "/checkpoints"

# What Nimbus puts there for a topology that has none yet, where workers may not make nodes.
NO_RECORD = b"no checkpoint yet"

_ROOT = re.compile("[0-9a-f]{16}")

# Made when a daemon starts, so that what lies below needs no care for parents.
LAYOUT = (
    STORMS,
    ASSIGNMENTS,
    SUPERVISORS,
    WORKERBEATS,
    ERRORS,
    CREDENTIALS,
    LOGCONFIGS,
    PROFILERCONFIGS,
    NIMBUSES,
    LEADER_LOCK,
    BLOBSTORE,
    LEADER_EPOCH,
    CHECKPOINTS,
)

# Everything about one topology is at PARENT/ID for these parents; the storm itself comes last, so
# that a clean-up that a crash cut short is seen, and done again, by the next leader.
OF_TOPOLOGY = (
    ASSIGNMENTS,
    CREDENTIALS,
    LOGCONFIGS,
    PROFILERCONFIGS,
    WORKERBEATS,
    ERRORS,
    STORMS,
)


# Ours: what is signed in a secured cluster.
SECURITY = "/security"
TOKEN_REGISTER = f"{SECURITY}/tokens"
CATALOG = f"{SECURITY}/catalog"
TAKEOVER = f"{SECURITY}/takeover"
SIGNED_STATES = f"{SECURITY}/topologies"
MANIFESTS = f"{SECURITY}/nodes"
OUTSIDE_KEYS = f"{SECURITY}/outside"


def signed_state(topology_id: str) -> str:
    return f"{SIGNED_STATES}/{topology_id}"


def manifest(node: str) -> str:
    return f"{MANIFESTS}/{node}"


def outside_keys(nimbus: str) -> str:
    return f"{OUTSIDE_KEYS}/{nimbus}"


def is_notice(path: str) -> bool:
    """Whether Nimbus asks something of daemons and workers there: to profile a worker, or to
    log more."""
    return path.startswith((f"{LOGCONFIGS}/", f"{PROFILERCONFIGS}/")) and (
        path.count("/") == (2 if path.startswith(LOGCONFIGS) else 3)
    )


def below(parent: str, path: str) -> str | None:
    """The name of a node just below another; None for any other path."""
    above, _, name = path.rpartition("/")
    return name if above == parent and name else None


def storm(topology_id: str) -> str:
    return f"{STORMS}/{topology_id}"


def assignment(topology_id: str) -> str:
    return f"{ASSIGNMENTS}/{topology_id}"


def supervisor(supervisor_id: str) -> str:
    return f"{SUPERVISORS}/{supervisor_id}"


def nimbus(host: str, port: int) -> str:
    return f"{NIMBUSES}/{host}:{port}"


def workerbeats(topology_id: str) -> str:
    return f"{WORKERBEATS}/{topology_id}"


def workerbeat(topology_id: str, slot: WorkerSlot) -> str:
    return f"{WORKERBEATS}/{topology_id}/{slot.node}-{slot.port}"


def slot_of_workerbeat(name: str) -> WorkerSlot | None:
    """The slot that a worker's heartbeat node is named for; None for any other name."""
    node, dash, port = name.rpartition("-")
    if not dash or not node or not port.isdecimal() or not port.isascii():
        return None
    return WorkerSlot(node, int(port))


def questions(topology_id: str) -> str:
    """Beside the heartbeats, where workers may write; no slot has this name."""
    return f"{WORKERBEATS}/{topology_id}/questions"


def question(topology_id: str, root: int) -> str:
    return f"{questions(topology_id)}/{root:016x}"


def root_of_question(name: str) -> int | None:
    """The root that a question's node is named for; None for any other name."""
    return int(name, 16) if _ROOT.fullmatch(name) else None


def errors(topology_id: str) -> str:
    return f"{ERRORS}/{topology_id}"


def component_errors(topology_id: str, component: str) -> str:
    return f"{ERRORS}/{topology_id}/{encode_znode(component)}"


def last_error(topology_id: str, component: str) -> str:
    """As in Storm, it is also where the errors of a component `COMPONENT-last-error` would be: that
    node then has a value and children."""
    return component_errors(topology_id, component) + "-last-error"


def credentials(topology_id: str) -> str:
    return f"{CREDENTIALS}/{topology_id}"


def logconfig(topology_id: str) -> str:
    return f"{LOGCONFIGS}/{topology_id}"


def profilerconfigs(topology_id: str) -> str:
    return f"{PROFILERCONFIGS}/{topology_id}"


def profilerconfig(topology_id: str, host: str, port: int, action: str) -> str:
    return f"{PROFILERCONFIGS}/{topology_id}/{host}_{port}_{action}"


def blob(key: str) -> str:
    """Keys are checked before they come here: none has a "/"."""
    return f"{BLOBSTORE}/{key}"


def key_of_blob(path: str) -> str:
    return path.removeprefix(f"{BLOBSTORE}/")


def blob_holder(key: str, holder: str) -> str:
    return f"{BLOBSTORE}/{key}/{holder}"


def checkpoints(topology: str, url: str) -> str:
    """The record of a topology's checkpoints, by its name and its topology.state.url: a topology of
    the same name goes on from there."""
    store = hashlib.blake2b(url.rstrip("/").encode(), digest_size=8).hexdigest()
    return f"{CHECKPOINTS}/{encode_znode(topology)}-{store}"
