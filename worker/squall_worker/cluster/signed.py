"""The cluster state as a worker of a secured cluster reads it: what Nimbus has signed."""

from __future__ import annotations

from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.verified import VerifiedStore
from squall_common.daemon.clock import Clock
from squall_common.security.certificates import cluster_of, read_certificate
from squall_common.security.signing import Trust
from squall_common.worker_files.launch_spec import LaunchSpec


def signed_state(state: ClusterState, spec: LaunchSpec, clock: Clock) -> ClusterState:
    """Put a store that verifies in front of the one of `state`. Nothing older than the assignment
    by which the worker was launched counts. Raises CertificateError."""
    assert spec.ca is not None
    ca = read_certificate(spec.ca.encode())
    floor = {spec.topology_id: spec.incarnation.assignment_zxid}
    trust = Trust(cluster_of(ca), ca)
    return ClusterState(VerifiedStore(state.store, trust, now=clock.time, floor=floor))
