"""The Thrift service Nimbus: thin, one file for each group of its 76 methods.

A method checks its arguments, asks a part of `nimbus.Nimbus`, and answers with Thrift's structs.
Squall's errors become the exceptions that the interface declares (`base`).
"""

from squall_nimbus.service.blobs import BlobCalls
from squall_nimbus.service.cluster import ClusterCalls
from squall_nimbus.service.files import FileCalls
from squall_nimbus.service.lifecycle import LifecycleCalls
from squall_nimbus.service.live_state import LiveStateCalls
from squall_nimbus.service.liveness import LivenessCalls
from squall_nimbus.service.tokens import TokenCalls
from squall_nimbus.service.topologies import TopologyCalls
from squall_nimbus.service.user_changes import UserChangesCalls


class NimbusService(
    LifecycleCalls,
    FileCalls,
    BlobCalls,
    ClusterCalls,
    TopologyCalls,
    UserChangesCalls,
    LivenessCalls,
    LiveStateCalls,
    TokenCalls,
):
    """All methods of one Nimbus."""
