"""The service of the invocations port: Storm's DistributedRPCInvocations, and our calls in batches
(`batches.thrift`). The structs have no stub, hence Any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from squall_thrift import idl, storm

_INTERFACE = idl.load(Path(__file__).with_name("batches.thrift"), module=__name__)

TakenRequest: Any = _INTERFACE.structs["TakenRequest"].cls
RequestBatch: Any = _INTERFACE.structs["RequestBatch"].cls
Settlement: Any = _INTERFACE.structs["Settlement"].cls

INVOCATIONS = idl.Service(
    storm.DistributedRPCInvocations.name,
    {
        **storm.DistributedRPCInvocations.methods,
        **_INTERFACE.services["DistributedRPCBatches"].methods,
    },
)
