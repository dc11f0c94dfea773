"""The cluster state as a worker of a secured cluster reads it: what Nimbus has signed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cryptography import x509

from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.verified import VerifiedStore
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.security.certificates import (
    Authorities,
    CertificateError,
    cluster_of,
    read_certificates,
)
from squall_common.security.signing import Trust
from squall_common.worker_files.launch_spec import LaunchSpec

log = get_logger(__name__)


class WorkerAuthorities(Authorities):
    """The CAs by which a worker verifies: those of its launch, and later those in the file that its
    supervisor replaces when the CA's own key turns. Raises CertificateError."""

    def __init__(self, pem: str, file: Path) -> None:
        super().__init__(*read_certificates(pem.encode()))
        self._file = file
        self._stat: tuple[int, int] | None = None

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        try:
            found = os.stat(self._file)
            now = (found.st_mtime_ns, found.st_ino)
            if now != self._stat:
                self._stat = now
                pem = json.loads(self._file.read_bytes())["ca"]
                self.replace(read_certificates(str(pem).encode()))
        except FileNotFoundError:
            pass  # it comes some seconds after the start
        except (OSError, ValueError, KeyError, TypeError, CertificateError) as error:
            log.error("identity_not_read", path=self._file, error=type(error).__name__)
        return self._certificates


def signed_state(state: ClusterState, spec: LaunchSpec, clock: Clock) -> ClusterState:
    """Put a store that verifies in front of the one of `state`. Nothing older than the assignment
    by which the worker was launched counts. Raises CertificateError."""
    assert spec.ca is not None
    ca = WorkerAuthorities(spec.ca, spec.identity_file)
    floor = {spec.topology_id: spec.incarnation.assignment_zxid}
    trust = Trust(cluster_of(ca.newest), ca)
    return ClusterState(VerifiedStore(state.store, trust, now=clock.time, floor=floor))
